// Holds what a replica's decode steps take against what its plan predicts of the same steps.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "serving/output.h"

namespace skein::coordinator {

// Of steps that decode alone.
struct DecodeComparison {
  int64_t steps = 0;
  double rows = 0;     // of a step, on the average
  double context = 0;  // tokens before a row, on the average
  // Of a step, on the average.
  absl::Duration measured;
  absl::Duration predicted;
  absl::Duration host_time;  // of the scheduling thread's CPU

  // 0.25: a quarter slower than predicted.
  double excess() const { return absl::FDivDuration(measured, predicted) - 1; }
};

// "3.41 ms for a step of 4.0 sequences at 310 tokens; predicted were 3.10 ms (+10%)"
std::string FormatComparison(const DecodeComparison& comparison);

// Not thread-safe.
class DecodeWatch {
 public:
  // The time of a step of so many rows, with `context` tokens before each; zero where it cannot be
  // said.
  using Predictor = std::function<absl::Duration(double rows, double context)>;

  // What is to be told: the first comparison, and a warning once nearly all of 60 in a row were
  // further than the tolerance from their prediction. Each is over a second of steps or more.
  struct Remark {
    DecodeComparison comparison;
    bool warns = false;
  };

  // `tolerance`: a share of the prediction.
  DecodeWatch(Predictor predictor, double tolerance);

  // Takes up what the counters of `load`, the newest that the replica has reported, have gained
  // since the first one: a replica may be older than its coordinator. Counters that cannot be begin
  // anew. Call it some times a second.
  std::optional<Remark> Look(const serving::ReplicaLoad& load);

  // Over the last 60, however much time was between them; nothing before the first.
  std::optional<DecodeComparison> Recent() const;

 private:
  Predictor predictor_;
  double tolerance_;
  std::optional<serving::ReplicaLoad> before_;
  std::deque<DecodeComparison> newest_;  // the last one is the newest
  bool warned_ = false;                  // and most of them are far from their prediction since
};

// Why steps may take other than predicted, in a sentence; `measured`: the figures that predictions
// are made of were.
std::string LikelyCause(const DecodeComparison& comparison, bool measured, bool gpus);

}  // namespace skein::coordinator
