#include "worker/engine/step_watch.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace skein::worker {
namespace {

constexpr absl::Duration kLeastDeadline = absl::Seconds(30);
constexpr int kMargin = 10;
constexpr double kForget = 0.99;

}  // namespace

int StepTimes::SizeOf(int64_t rows) {
  const int bits = std::bit_width(static_cast<uint64_t>(std::max<int64_t>(rows, 1)));
  return std::min(bits, kSizes) - 1;
}

void StepTimes::Observe(int64_t rows, absl::Duration time) {
  absl::Duration& slowest = slowest_[SizeOf(rows)];
  slowest = std::max(time, kForget * slowest);
  absl::Duration& fastest = fastest_[SizeOf(rows)];
  fastest = fastest == absl::ZeroDuration() ? time : std::min(time, fastest);
}

absl::Duration StepTimes::Predict(int64_t rows) const {
  for (int size = SizeOf(rows); size < kSizes; ++size) {
    if (slowest_[size] > absl::ZeroDuration()) return slowest_[size];
  }
  for (int size = SizeOf(rows); size >= 0; --size) {
    if (slowest_[size] > absl::ZeroDuration()) {
      return fastest_[size] * rows / static_cast<int64_t>(uint64_t{1} << size);
    }
  }
  return unknown_row_ * rows;
}

absl::Duration StepTimes::Deadline(int64_t rows) const {
  return std::max(kLeastDeadline, kMargin * Predict(rows));
}

void ResultWatch::Observe(int64_t rows, absl::Duration time) {
  times_.Observe(rows + std::exchange(rows_, rows), time);
}

absl::Duration ResultWatch::Timeout(int64_t rows) const {
  const absl::Duration deadline = fixed_.value_or(times_.Deadline(rows + rows_));
  return alone_ ? deadline : 2 * (deadline + StepWatch::kGrace);
}

StepWatch::StepWatch(comm::OperationTracker* tracker, std::vector<comm::Communicator*> groups,
                     std::optional<absl::Duration> fixed, int64_t model_bytes)
    : tracker_(tracker), groups_(std::move(groups)), fixed_(fixed), times_(model_bytes) {}

void StepWatch::Begin(int64_t step, int64_t rows) {
  const int64_t both_rows = rows + std::exchange(rows_, rows);
  absl::Duration deadline = fixed_.value_or(times_.Deadline(both_rows));
  begun_.push_back({step, deadline, both_rows, std::chrono::steady_clock::now()});
  for (const Begun& begun : begun_) deadline = std::max(deadline, begun.deadline);
  tracker_->BeginStep(step, deadline);
  for (comm::Communicator* group : groups_) group->set_timeout(deadline + kGrace);
}

void StepWatch::End() {
  const Begun begun = begun_.front();
  begun_.pop_front();
  times_.Observe(begun.both_rows, absl::FromChrono(std::chrono::steady_clock::now() - begun.time));
  tracker_->EndStep(begun_.empty() ? std::nullopt : std::optional(begun_.front().step));
}

}  // namespace skein::worker
