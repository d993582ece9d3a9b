// Tells how long a step's exchanges between ranks may take, and who hears of it.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "absl/time/time.h"
#include "parallel/comm/communicator.h"
#include "parallel/comm/operation_tracker.h"

namespace skein::worker {

// Predicts a step's time from its rows, by the steps that this rank has seen: no step takes longer
// than the slowest of at least its size, and one that is larger than all takes at most as much
// longer as it is larger than the fastest of the largest size seen (rows share the reading of
// weights; a slow moment of a single row says nothing of many). Sizes are told apart by powers of
// two. Before the first step a row is assumed to cost what an 8B model in bf16 takes on two cores,
// 0.1 s, or less in proportion where the model weighs less.
class StepTimes {
 public:
  static constexpr int64_t kUnknownModelBytes = int64_t{16} << 30;

  explicit StepTimes(int64_t model_bytes = kUnknownModelBytes)
      : unknown_row_(std::min(
            absl::Milliseconds(100),
            absl::Milliseconds(100) * (static_cast<double>(model_bytes) / kUnknownModelBytes))) {}

  // Slow steps are forgotten by and by, 1% with every later one of their size.
  void Observe(int64_t rows, absl::Duration time);
  absl::Duration Predict(int64_t rows) const;
  // Returns the time after which an exchange of such a step counts as hung: 10 times the
  // prediction, at least 30 s.
  absl::Duration Deadline(int64_t rows) const;

 private:
  static constexpr int kSizes = 32;
  static int SizeOf(int64_t rows);

  const absl::Duration unknown_row_;
  // [i] is of 2^i rows to 2^(i+1) - 1; 0: none
  std::array<absl::Duration, kSizes> slowest_{};
  std::array<absl::Duration, kSizes> fastest_{};
};

// Tells how long a leader waits for the result of a step, by the results so far. A leader that is
// alone decides by the same deadline as ranks that wait for each other. A leader that is not lets
// those judge first, who know who is to blame, and stands in where none of them waits.
class ResultWatch {
 public:
  // `fixed` replaces the prediction.
  ResultWatch(bool alone, std::optional<absl::Duration> fixed,
              int64_t model_bytes = StepTimes::kUnknownModelBytes)
      : alone_(alone), fixed_(fixed), times_(model_bytes) {}

  // The oldest outstanding step, of so many rows, gave its result after that time.
  void Observe(int64_t rows, absl::Duration time);
  // Returns the time-out of the next one.
  absl::Duration Timeout(int64_t rows) const;

 private:
  const bool alone_;
  const std::optional<absl::Duration> fixed_;
  StepTimes times_;
  int64_t rows_ = 0;  // the last step's: it may have been late, as for StepWatch
};

// The thread that carries out steps tells it of every one; it sets the deadline of the step's
// exchanges. A rank that is ahead waits for others to end the step before, so the rows of both
// count; where several steps are under way, the longest deadline holds.
//
// Every rank reckons for itself, so that a deadline costs no byte; ranks of one step see about the
// same times, since they wait for each other. The tracker says the deadline to whoever hears the
// heartbeats, and can then name the rank that holds up the others. The groups themselves give up 5
// s later, where nobody hears.
class StepWatch {
 public:
  static constexpr absl::Duration kGrace = absl::Seconds(5);

  // `fixed` replaces the prediction. Tracker and groups outlive the watch.
  StepWatch(comm::OperationTracker* tracker, std::vector<comm::Communicator*> groups,
            std::optional<absl::Duration> fixed,
            int64_t model_bytes = StepTimes::kUnknownModelBytes);

  void Begin(int64_t step, int64_t rows);
  // Ends the oldest step that has begun.
  void End();

 private:
  struct Begun {
    int64_t step = 0;
    absl::Duration deadline;
    int64_t both_rows = 0;  // its own and those of the step before
    std::chrono::steady_clock::time_point time;
  };

  comm::OperationTracker* const tracker_;
  const std::vector<comm::Communicator*> groups_;
  const std::optional<absl::Duration> fixed_;
  StepTimes times_;
  int64_t rows_ = 0;  // of the last step
  std::deque<Begun> begun_;
};

}  // namespace skein::worker
