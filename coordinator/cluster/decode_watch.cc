#include "coordinator/cluster/decode_watch.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_format.h"

namespace skein::coordinator {
namespace {

constexpr size_t kKept = 60;
// So many of them that are far from their prediction are a warning; fewer than this end it.
constexpr int64_t kWarnFrom = 54;
constexpr int64_t kStillFar = 30;

// Counters of the replica's life, of which differences are made: workers are not believed.
bool CanBe(const serving::ReplicaLoad& load) {
  constexpr int64_t kMost = int64_t{1} << 53;
  constexpr absl::Duration kLongest = absl::Hours(24 * 366 * 100);
  for (const int64_t count :
       {load.steps, load.decode_steps, load.decode_rows, load.decode_context}) {
    if (count < 0 || count > kMost) return false;
  }
  for (const absl::Duration time : {load.decode_time, load.host_time}) {
    if (time < absl::ZeroDuration() || time > kLongest) return false;
  }
  return true;
}

DecodeComparison Sum(const std::deque<DecodeComparison>& comparisons) {
  DecodeComparison sum;
  double rows = 0;
  double context = 0;
  for (const DecodeComparison& of : comparisons) {
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
  if (load.steps == 0) return std::nullopt;  // it has reported nothing
  if (!CanBe(load)) {
    before_.reset();
    return std::nullopt;
  }
  if (!before_.has_value()) before_ = load;
  const absl::Duration time = load.decode_time - before_->decode_time;
  if (time >= absl::ZeroDuration() && time < absl::Seconds(1)) return std::nullopt;
  const int64_t steps = load.decode_steps - before_->decode_steps;
  const auto rows = static_cast<double>(load.decode_rows - before_->decode_rows);
  const auto context = static_cast<double>(load.decode_context - before_->decode_context);
  const absl::Duration host_time = load.host_time - before_->host_time;
  const int64_t all_steps = std::max(steps, load.steps - before_->steps);
  before_ = load;
  if (time < absl::ZeroDuration() || host_time < absl::ZeroDuration() || steps < 1 ||
      rows < static_cast<double>(steps) || context < 0) {
    return std::nullopt;
  }
  DecodeComparison newest = {.steps = steps,
                             .rows = rows / static_cast<double>(steps),
                             .context = context / rows,
                             .measured = time / steps,
                             .host_time = host_time / all_steps};
  newest.predicted = predictor_(newest.rows, newest.context);
  if (newest.predicted <= absl::ZeroDuration()) return std::nullopt;
  const bool first = newest_.empty();
  newest_.push_back(newest);
  if (newest_.size() > kKept) newest_.pop_front();
  const int64_t far = absl::c_count_if(
      newest_, [this](const DecodeComparison& of) { return std::abs(of.excess()) > tolerance_; });
  const bool warns = !warned_ && far >= kWarnFrom;
  warned_ = warns || (warned_ && far >= kStillFar);
  if (!first && !warns) return std::nullopt;
  return Remark{Sum(newest_), warns};
}

std::optional<DecodeComparison> DecodeWatch::Recent() const {
  if (newest_.empty()) return std::nullopt;
  return Sum(newest_);
}

std::string LikelyCause(const DecodeComparison& comparison, bool measured, bool gpus) {
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
    return absl::StrFormat("the thread that schedules needs %.3g ms a step",
                           absl::ToDoubleMilliseconds(comparison.host_time));
  }
  return gpus ? "a GPU of its hosts is slowed, shared, or has lost an NVLink, which `skein topo` "
                "shows there"
              : "other programs, clients and the coordinator among them, use the cores or the "
                "memory of its hosts";
}

}  // namespace skein::coordinator
