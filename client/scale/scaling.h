// What a scaling experiment gave: times of steps by number of ranks, predicted and measured. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "parallel/plan/plan.h"

namespace skein::client {

// By the newest probe before it was measured: what a host does in a second may change until the
// next round.
struct ScalingRound {
  double predicted_s = 0;
  double measured_s = 0;

  friend bool operator==(const ScalingRound&, const ScalingRound&) = default;
};

// A layout at a load.
struct ScalingRun {
  plan::Layout layout;
  int32_t batch = 1;             // sequences that decode together
  bool chosen = false;           // the best layout of as many ranks, as one probe predicts it
  double predicted_s = 0;        // of a step; the median, as the next
  std::optional<double> step_s;  // measured; none: not yet
  std::vector<ScalingRound> rounds;

  double tokens_per_s() const { return batch / step_s.value(); }
  // (predicted - measured) / measured: the median of the rounds, of which there is one at least.
  double error() const;

  friend bool operator==(const ScalingRun&, const ScalingRun&) = default;
};

// A prompt that a layout computes alone.
struct PromptRun {
  plan::Layout layout;
  double predicted_s = 0;            // to its first token
  std::optional<double> measured_s;  // none: not yet
  std::vector<ScalingRound> rounds;

  double error() const;

  friend bool operator==(const PromptRun&, const PromptRun&) = default;
};

// How a run compares with the experiment's first number of ranks, by tokens/s of what was measured.
struct Speedup {
  double factor = 1;
  double efficiency = 1;  // by ranks
};

// Of two layouts of as many ranks at one batch that differ by more than 15%, as measured.
struct LayoutOrder {
  int32_t pairs = 0;
  int32_t wrong = 0;  // of these, those that are predicted the other way round
};

struct ScalingExperiment {
  std::string model;
  bool weak = false;  // the batch grows with the ranks; else it is the same
  int64_t prompt_tokens = 0;
  int32_t steps = 0;
  int32_t rounds = 1;              // that are asked for: figures are medians of those that are over
  double spread = 0;               // of what predictions are made of: topology::DeviceRates'
  std::vector<ScalingRun> runs;    // by ranks, of these by batch, of these as first predicted
  std::vector<PromptRun> prompts;  // of the layouts of `runs`, where they are asked for

  // Its batch (strong), or that of each rank (weak): runs of one load are compared.
  int32_t LoadOf(const ScalingRun& run) const {
    return weak ? run.batch / run.layout.ranks() : run.batch;
  }
  // Against the chosen run of the fewest ranks that has the same load; none where that was not
  // measured.
  std::optional<Speedup> SpeedupOf(const ScalingRun& run) const;
  // Of all measured runs, and of all measured prompts: |error|.
  std::vector<double> Errors() const;
  std::vector<double> PromptErrors() const;
  LayoutOrder Order() const;
};

// Marks the runs of each number of ranks and batch that are predicted to be the fastest.
void MarkChosen(std::vector<ScalingRun>& runs);

// A line for each run, and what they say of predictions and of what was chosen.
std::string FormatScaling(const ScalingExperiment& experiment);
// The same for programs.
std::string ScalingToJson(const ScalingExperiment& experiment);
// Speed-ups over ranks, and predicted beside measured times. Stand-alone, light or dark as the
// viewer asks.
std::string ScalingSvg(const ScalingExperiment& experiment);

}  // namespace skein::client
