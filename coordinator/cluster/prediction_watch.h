// Holds what a replica's steps take against what its plan predicts of the same steps.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "parallel/planner/predict_plan.h"
#include "serving/output.h"

namespace skein::coordinator {

// Of steps that decode alone, or of steps with prompts.
struct StepComparison {
  int64_t steps = 0;
  // Of a step, on the average.
  double decodes = 0;      // rows, one a sequence
  double context = 0;      // tokens before one of these
  double prompt_rows = 0;  // none where steps decode alone
  absl::Duration measured;
  absl::Duration predicted;
  absl::Duration host_time;  // of the scheduling thread's CPU

  // 0.25: a quarter slower than predicted.
  double excess() const { return absl::FDivDuration(measured, predicted) - 1; }
};

// "3.41 ms for a step of 4.0 sequences at 310 tokens; predicted were 3.10 ms (+10%)"; with prompts,
// "... for a step of 96.0 rows of prompts beside 4.0 sequences; ..."
std::string FormatComparison(const StepComparison& comparison);

// The time of a step, whose means are over as many steps as one wants, all of about the same size;
// zero where it cannot be said. Thread-safe.
using StepPredictor = std::function<absl::Duration(const plan::StepMeans&)>;

enum class StepKind : uint8_t {
  kDecodes,  // alone: their rows are decodes
  kPrompts,  // with rows of prompts
};

// What reports told of steps of one kind.
struct ReportedSteps {
  StepKind kind = StepKind::kDecodes;
  // By size: a mean over unlike sizes would predict too little. Steps that one report tells of
  // together are taken for alike.
  std::map<int, serving::PromptSteps> by_size;
  absl::Duration time;
  absl::Duration host_time;
  int64_t all_steps = 0;  // of both kinds, of which host_time is
};

// Nothing where nothing is predicted of some of them. Takes as long as the predictor does for each
// size.
std::optional<StepComparison> Compare(const ReportedSteps& steps, const StepPredictor& predictor);

// Not thread-safe.
class PredictionWatch {
 public:
  // What is to be told of steps of one kind: the first comparison, and a warning once nearly all of
  // 60 in a row were further than the tolerance from their prediction. Each is over a second of
  // steps or more.
  struct Remark {
    StepComparison comparison;
    bool warns = false;
  };

  // `tolerance`: a share of the prediction.
  explicit PredictionWatch(double tolerance) : tolerance_(tolerance) {}

  // Takes up what the counters of `load` have gained since the last call: a replica may be older
  // than its coordinator, whose first call sees no gain. Counters that cannot be begin anew. To be
  // called with every report, so that steps of unlike size can be told apart.
  void TakeUp(const serving::ReplicaLoad& load);
  // Gives what was taken up of a kind where it is a second of steps, which Compare is for.
  std::vector<ReportedSteps> GiveSeconds();
  std::optional<Remark> Add(StepKind kind, const StepComparison& newest);

  // Over the last 60 of each kind, however much time was between them; nothing before the first.
  std::optional<StepComparison> Decodes() const { return decodes_.Mean(); }
  std::optional<StepComparison> Prompts() const { return prompts_.Mean(); }

 private:
  // The last minute of steps of one kind.
  class Minute {
   public:
    std::optional<Remark> Add(const StepComparison& newest, double tolerance);
    std::optional<StepComparison> Mean() const;

   private:
    std::deque<StepComparison> newest_;  // the last one is the newest
    bool warned_ = false;                // and most of them are far from their prediction since
  };

  double tolerance_;
  std::optional<serving::ReplicaLoad> before_;
  ReportedSteps new_decodes_ = {.kind = StepKind::kDecodes};
  ReportedSteps new_prompts_ = {.kind = StepKind::kPrompts};
  Minute decodes_;
  Minute prompts_;
};

// Why steps may take other than predicted, in a sentence; `measured`: the figures that predictions
// are made of were.
std::string LikelyCause(const StepComparison& comparison, bool measured, bool gpus);

}  // namespace skein::coordinator
