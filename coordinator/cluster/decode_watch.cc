#include "coordinator/cluster/decode_watch.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_format.h"

namespace skein::coordinator {
namespace {

constexpr size_t kSeconds = 60;
// Of these, a warning takes so many; and another one that so many were well meanwhile.
constexpr int64_t kNearlyAll = 54;
constexpr int64_t kMany = 30;

DecodeComparison Sum(const std::deque<DecodeComparison>& seconds) {
  DecodeComparison sum;
  double rows = 0;
  double context = 0;
  for (const DecodeComparison& of : seconds) {
    const auto steps = static_cast<double>(of.steps);
    sum.steps += of.steps;
    rows += steps * of.rows;
    context += steps * of.rows * of.context;
    sum.measured += steps * of.measured;
    sum.predicted += steps * of.predicted;
    sum.host_time += steps * of.host_time;
  }
  const auto steps = static_cast<double>(sum.steps);
  sum.rows = rows / steps;
  sum.context = context / rows;
  sum.measured /= steps;
  sum.predicted /= steps;
  sum.host_time /= steps;
  return sum;
}

}  // namespace

std::string FormatComparison(const DecodeComparison& comparison) {
  return absl::StrFormat(
      "%.3g ms for a step of %.1f sequences at %.0f tokens; predicted were %.3g ms (%+.0f%%)",
      absl::ToDoubleMilliseconds(comparison.measured), comparison.rows, comparison.context,
      absl::ToDoubleMilliseconds(comparison.predicted), 100 * comparison.excess());
}

DecodeWatch::DecodeWatch(Predictor predictor, double tolerance)
    : predictor_(std::move(predictor)), tolerance_(tolerance) {}

std::optional<DecodeWatch::Remark> DecodeWatch::Look(const serving::ReplicaLoad& load) {
  const absl::Duration time = load.decode_time - before_.decode_time;
  if (time < absl::Seconds(1)) return std::nullopt;
  const int64_t steps = load.decode_steps - before_.decode_steps;
  const auto rows = static_cast<double>(load.decode_rows - before_.decode_rows);
  const auto context = static_cast<double>(load.decode_context - before_.decode_context);
  const absl::Duration host_time = load.host_time - before_.host_time;
  const int64_t all_steps = std::max(steps, load.steps - before_.steps);
  before_ = load;
  // Workers are not believed.
  if (steps < 1 || rows < static_cast<double>(steps) || context < 0 ||
      time == absl::InfiniteDuration()) {
    return std::nullopt;
  }
  DecodeComparison second = {.steps = steps,
                             .rows = rows / static_cast<double>(steps),
                             .context = context / rows,
                             .measured = time / steps,
                             .host_time = host_time / all_steps};
  second.predicted = predictor_(second.rows, second.context);
  if (second.predicted <= absl::ZeroDuration()) return std::nullopt;
  const bool first = seconds_.empty();
  seconds_.push_back(second);
  if (seconds_.size() > kSeconds) seconds_.pop_front();
  const int64_t far = absl::c_count_if(
      seconds_, [this](const DecodeComparison& of) { return std::abs(of.excess()) > tolerance_; });
  const bool warns = !warned_ && far >= kNearlyAll;
  warned_ = warns || (warned_ && far >= kMany);
  if (!first && !warns) return std::nullopt;
  return Remark{Sum(seconds_), warns};
}

std::optional<DecodeComparison> DecodeWatch::Recent() const {
  if (seconds_.empty()) return std::nullopt;
  return Sum(seconds_);
}

std::string LikelyCause(const DecodeComparison& comparison, bool measured, bool gpus) {
  if (!measured) {
    return gpus
               ? "the figures of its hosts are assumed; start workers with --probe, which measures "
                 "them"
               : "the figures of its hosts are assumed; start workers without --no-probe, which "
                 "measures them";
  }
  if (comparison.excess() < 0) {
    return "its hosts were busy with other things as they were measured; `skein topo --probe` "
           "measures again";
  }
  const absl::Duration more = comparison.measured - comparison.predicted;
  if (comparison.host_time > more / 2) {
    return absl::StrFormat("the scheduling thread needs %.3g ms a step, and has no core of its own",
                           absl::ToDoubleMilliseconds(comparison.host_time));
  }
  return gpus ? "a GPU of its hosts is slowed, shared, or has lost an NVLink, which `skein topo` "
                "shows there"
              : "other programs, clients and the coordinator among them, use the cores or the "
                "memory "
                "of its hosts";
}

}  // namespace skein::coordinator
