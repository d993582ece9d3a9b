#include "coordinator/cluster/prediction_watch.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_format.h"
#include "base/units.h"

namespace skein::coordinator {
namespace {

constexpr size_t kKept = 60;
// So many of them that are far from their prediction are a warning; fewer than this end it.
constexpr int64_t kWarnFrom = 54;
constexpr int64_t kStillFar = 30;

// Each counter of steps that have prompts.
constexpr int64_t serving::PromptSteps::* kCounts[] = {
    &serving::PromptSteps::steps,          &serving::PromptSteps::behind_nothing,
    &serving::PromptSteps::behind_decodes, &serving::PromptSteps::prompts,
    &serving::PromptSteps::rows,           &serving::PromptSteps::context,
    &serving::PromptSteps::outputs,        &serving::PromptSteps::decodes,
    &serving::PromptSteps::decode_context};

// Counters of the replica's life, of which differences are made: workers are not believed.
bool CanBe(const serving::ReplicaLoad& load) {
  constexpr int64_t kMost = int64_t{1} << 57;  // of which 60 can be added
  constexpr absl::Duration kLongest = absl::Hours(24 * 366 * 100);
  const auto counts = [&](int64_t count) { return 0 <= count && count <= kMost; };
  const auto lasts = [&](absl::Duration time) {
    return absl::ZeroDuration() <= time && time <= kLongest;
  };
  return absl::c_all_of(std::initializer_list<int64_t>{load.steps, load.decode_steps,
                                                       load.decode_rows, load.decode_context},
                        counts) &&
         absl::c_all_of(kCounts, [&](auto count) { return counts(load.prompt_steps.*count); }) &&
         absl::c_all_of(std::initializer_list<absl::Duration>{load.decode_time, load.host_time,
                                                              load.prompt_steps.time},
                        lasts);
}

serving::PromptSteps Difference(const serving::PromptSteps& now,
                                const serving::PromptSteps& before) {
  serving::PromptSteps gained;
  for (const auto count : kCounts) gained.*count = now.*count - before.*count;
  gained.time = now.time - before.time;
  return gained;
}

serving::PromptSteps DecodesOf(const serving::ReplicaLoad& load) {
  return {.steps = load.decode_steps,
          .decodes = load.decode_rows,
          .decode_context = load.decode_context,
          .time = load.decode_time};
}

// Whether steps have what steps of their kind must have, and no less than nothing of the rest.
bool AreSteps(const serving::PromptSteps& gained, bool decode_alone) {
  if (absl::c_any_of(kCounts, [&](auto count) { return gained.*count < 0; })) return false;
  if (decode_alone) return gained.decodes >= gained.steps;
  return gained.prompts >= gained.steps && gained.rows >= gained.prompts &&
         gained.outputs <= gained.rows &&
         gained.behind_nothing + gained.behind_decodes <= gained.steps;
}

double Ratio(int64_t count, int64_t of) {
  return of == 0 ? 0 : static_cast<double>(count) / static_cast<double>(of);
}

plan::StepMeans MeansOf(const serving::PromptSteps& steps) {
  return {.decodes = Ratio(steps.decodes, steps.steps),
          .context = Ratio(steps.decode_context, steps.decodes),
          .prompts = Ratio(steps.prompts, steps.steps),
          .prompt_rows = Ratio(steps.rows, steps.steps),
          .prompt_context = Ratio(steps.context, steps.rows),
          .outputs = Ratio(steps.outputs, steps.steps),
          .behind_nothing = Ratio(steps.behind_nothing, steps.steps),
          .behind_decodes = Ratio(steps.behind_decodes, steps.steps)};
}

}  // namespace

std::string FormatComparison(const StepComparison& comparison) {
  const std::string what = comparison.prompt_rows > 0
                               ? absl::StrFormat("%.1f rows of prompts beside %.1f sequences",
                                                 comparison.prompt_rows, comparison.decodes)
                               : absl::StrFormat("%.1f sequences at %.0f tokens",
                                                 comparison.decodes, comparison.context);
  return absl::StrFormat("%s for a step of %s; predicted were %s (%+.0f%%)",
                         FormatMilliseconds(comparison.measured), what,
                         FormatMilliseconds(comparison.predicted), 100 * comparison.excess());
}

std::optional<PredictionWatch::Remark> PredictionWatch::Minute::Add(const StepComparison& newest,
                                                                    double tolerance) {
  const bool first = newest_.empty();
  newest_.push_back(newest);
  if (newest_.size() > kKept) newest_.pop_front();
  // Too long for some time and too short for some other is no deviation with a cause.
  const auto beyond = [&](double sign) {
    return absl::c_count_if(
        newest_, [&](const StepComparison& of) { return sign * of.excess() > tolerance; });
  };
  const int64_t far = std::max(beyond(1), beyond(-1));
  const bool warns = !warned_ && far >= kWarnFrom;
  warned_ = warns || (warned_ && far >= kStillFar);
  if (!first && !warns) return std::nullopt;
  return Remark{*Mean(), warns};
}

std::optional<StepComparison> PredictionWatch::Minute::Mean() const {
  if (newest_.empty()) return std::nullopt;
  StepComparison mean;
  double decodes = 0, context = 0;
  for (const StepComparison& of : newest_) {
    const auto steps = static_cast<double>(of.steps);
    mean.steps += of.steps;
    decodes += steps * of.decodes;
    context += steps * of.decodes * of.context;
    mean.prompt_rows += steps * of.prompt_rows;
    mean.measured += steps * of.measured;
    mean.predicted += steps * of.predicted;
    mean.host_time += steps * of.host_time;
  }
  const auto steps = static_cast<double>(mean.steps);
  mean.decodes = decodes / steps;
  mean.context = decodes > 0 ? context / decodes : 0;
  mean.prompt_rows /= steps;
  mean.measured /= steps;
  mean.predicted /= steps;
  mean.host_time /= steps;
  return mean;
}

void PredictionWatch::TakeUp(const serving::ReplicaLoad& load) {
  if (load.steps == 0) return;  // it has reported nothing
  const bool can_be = CanBe(load);
  const serving::ReplicaLoad before = before_.value_or(load);
  before_.reset();
  if (can_be) before_ = load;
  const absl::Duration host_time = load.host_time - before.host_time;
  const int64_t all_steps = load.steps - before.steps;
  for (ReportedSteps* const sums : {&new_decodes_, &new_prompts_}) {
    const bool decode_alone = sums->kind == StepKind::kDecodes;
    const serving::PromptSteps steps = !can_be ? serving::PromptSteps()
                                       : decode_alone
                                           ? Difference(DecodesOf(load), DecodesOf(before))
                                           : Difference(load.prompt_steps, before.prompt_steps);
    if (!can_be || host_time < absl::ZeroDuration() || all_steps < 0 ||
        steps.time < absl::ZeroDuration() || !AreSteps(steps, decode_alone)) {
      *sums = {.kind = sums->kind};
      continue;
    }
    if (steps.steps == 0) continue;
    sums->host_time += host_time;
    sums->all_steps += std::max(steps.steps, all_steps);
    sums->time += steps.time;
    const double rows = Ratio(steps.decodes + steps.rows, steps.steps);
    sums->by_size[std::ilogb(rows)] += steps;
  }
}

std::vector<ReportedSteps> PredictionWatch::GiveSeconds() {
  std::vector<ReportedSteps> given;
  for (ReportedSteps* const sums : {&new_decodes_, &new_prompts_}) {
    if (sums->time < absl::Seconds(1)) continue;
    given.push_back(std::exchange(*sums, {.kind = sums->kind}));
  }
  return given;
}

std::optional<PredictionWatch::Remark> PredictionWatch::Add(StepKind kind,
                                                            const StepComparison& newest) {
  return (kind == StepKind::kDecodes ? decodes_ : prompts_).Add(newest, tolerance_);
}

std::optional<StepComparison> Compare(const ReportedSteps& steps, const StepPredictor& predictor) {
  serving::PromptSteps all;
  absl::Duration predicted;
  for (const auto& [size, of_size] : steps.by_size) {
    const absl::Duration of = predictor(MeansOf(of_size));
    if (of <= absl::ZeroDuration()) return std::nullopt;
    predicted += of_size.steps * of;
    all += of_size;
  }
  const plan::StepMeans means = MeansOf(all);
  return StepComparison{.steps = all.steps,
                        .decodes = means.decodes,
                        .context = means.context,
                        .prompt_rows = means.prompt_rows,
                        .measured = steps.time / all.steps,
                        .predicted = predicted / all.steps,
                        .host_time = steps.host_time / steps.all_steps};
}

std::string LikelyCause(const StepComparison& comparison, bool measured, bool gpus) {
  if (!measured) {
    return gpus ? "the figures of its hosts are assumed; workers that are started with --probe "
                  "measure them"
                : "the figures of its hosts are assumed; the workers' log says why they were not "
                  "measured";
  }
  if (comparison.excess() < 0) {
    return "its hosts were busy with other things as they were measured, or other replicas on them "
           "rest; `worker probe` measures again, started as the job was, once that has ended";
  }
  if (comparison.host_time > 0.7 * comparison.measured) {
    return absl::StrFormat("the thread that schedules needs %s a step",
                           FormatMilliseconds(comparison.host_time));
  }
  return gpus ? "a GPU of its hosts is slowed, shared, or has lost an NVLink, which `skein topo` "
                "shows there"
              : "other programs, clients and the coordinator among them, use the cores or the "
                "memory of its hosts";
}

}  // namespace skein::coordinator
