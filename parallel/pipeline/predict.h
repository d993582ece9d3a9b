// The time that a schedule takes on given hardware, and how many micro-batches decode should have.
// Pure; any thread.
//
// Decode reads all weights once a micro-batch, so that more micro-batches cost more bytes, and
// fewer than stages leave stages idle. P keep every stage busy but for the hops, P + 1 hide all
// hops but one at the price of one more pass over the weights: with equal stages that pays where a
// stage reads its weights in less time than P - 1 hops take, and rows cost something, too
// (simulate.h has the closed forms).
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "parallel/pipeline/simulate.h"
#include "parallel/plan/plan.h"

namespace skein::schedule {

// The work of one rank of a stage; of several shards, the one with the most.
struct StageWork {
  int64_t weight_bytes = 0;   // read once a micro-batch
  int64_t row_bytes = 0;      // read once a row of decode: the keys and values of its context
  double row_operations = 0;  // of a row, two for a multiply-add
};

struct Rates {
  double bytes_per_s = 0;  // that a rank reads from memory; more than 0
  double operations_per_s = std::numeric_limits<double>::infinity();
  absl::Duration hop;  // one message between two stages
  absl::Duration sample;
  absl::Duration planning;  // as in Costs
};

// max(bytes / bytes_per_s, operations / operations_per_s) of a micro-batch of `rows`.
absl::Duration ComputeTime(const StageWork& work, const Rates& rates, int64_t rows);

// `steps` steps of `sequences` sequences, a row each, spread evenly over the micro-batches.
// InvalidArgument for numbers that are out of range; micro_batches is at most sequences.
absl::StatusOr<Timeline> PredictDecode(absl::Span<const StageWork> stages, const Rates& rates,
                                       int64_t sequences, int32_t micro_batches, int32_t steps);

struct Prediction {
  int32_t micro_batches = 0;
  SteadyState steady;
};

struct MicroBatchChoice {
  int32_t micro_batches = 0;
  std::vector<Prediction> predictions;  // of all that were weighed, for reasons
};

// P or P + 1, but one where there is one stage, and never more than sequences: what gives the
// shorter step in steady decode, the fewer where they are equal. Errors as above.
absl::StatusOr<MicroBatchChoice> ChooseMicroBatches(absl::Span<const StageWork> stages,
                                                    const Rates& rates, int64_t sequences);

// The stages of a plan's first replica. `context` tokens have been read and written by every
// sequence; a weight takes `bytes_per_weight` as packed. An estimate on the large side: it counts
// the whole embedding as read.
std::vector<StageWork> WorkOfPlan(const plan::Plan& plan, int64_t context, double bytes_per_weight);

}  // namespace skein::schedule
