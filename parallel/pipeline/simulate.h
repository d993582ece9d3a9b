// Carries out a schedule in simulated time. Pure, exact (no rounding beyond absl::Duration) and
// deterministic; any thread. Costs some 100 ns an instruction.
//
// With one time c for every micro-batch and stage, P stages, M micro-batches and h for a hop:
//   prefill leaves (P - 1) / (M + P - 1) of the stages' time idle;
//   a step of steady decode takes max(M c + h, P (c + h)) for P > 1: a stage's work and its flush,
//   or one way round the ring.
// So M = P keeps all stages busy but for h / (c + h), M = P + 1 hides all of the ring's hops but
// one where those together take no longer than one micro-batch, and M = 1 keeps 1 / P of the stages
// busy. (A flush of messages that need no help takes less than is said here.)
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "parallel/pipeline/pipeline_schedule.h"

namespace skein::schedule {

struct Costs {
  // The time that `stage` computes a micro-batch; asked once for each.
  std::function<absl::Duration(int32_t stage, MicroBatchId)> compute;
  absl::Duration sample;     // of one micro-batch, on the last stage
  absl::Duration hop;        // activations, from the end of their computation to the next stage
  absl::Duration token_hop;  // tokens, from the last stage to the first
  // Planning a step and bringing the order to all stages, beside the work of any stage; the way of
  // the results to the leader included.
  absl::Duration planning;
  // A step is planned when the results of the step so many before it are known. 2: step t + 1 is
  // planned while t runs; 1: only when t is over.
  int32_t orders_in_flight = 2;
  bool overlap_sends = true;  // false: the sender waits until its data has arrived
};

// When a stage worked.
struct Interval {
  int32_t stage = 0;
  Operation operation = Operation::kCompute;  // or kSample, where that takes time
  MicroBatchId what;
  absl::Duration begin;
  absl::Duration end;
};

struct Timeline {
  int32_t stages = 0;
  std::vector<Interval> intervals;  // by stage, then by time
  // Messages sent and not taken yet between two stages at once, at most: the buffers that a sender
  // needs to never wait. tokens_left are left out.
  int64_t buffered_messages = 0;
  int64_t tokens_left = 0;  // token messages that no step took: those of the last ones
};

// InvalidArgument for lists that make no sense, naming stage and instruction: what a stage of this
// place cannot do, results sent before they are there, lost or not flushed, a message that is not
// the next on its way. FailedPrecondition for a deadlock: which stage waits for what.
absl::StatusOr<Timeline> Simulate(const Schedule& schedule, const Costs& costs);

// The idle share of all stages' time, from the first begin to the last end.
double BubbleFraction(const Timeline& timeline);

// A schedule without its ramps: the mean time from the begin of a step on stage 0 to that of the
// next, over the second half of the steps, and the idle share of it. Zeros for less than two steps.
struct SteadyState {
  absl::Duration step_period;
  double bubble = 0;
};
SteadyState FindSteadyState(const Timeline& timeline);

}  // namespace skein::schedule
