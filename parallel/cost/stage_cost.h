// What a stage of a replica takes for a micro-batch, and its activations to the next stage:
// predicted from bytes, operations and exchanges, against rates that were measured or are of
// datasheets. Pure; any thread.
//
// A micro-batch takes the longer of reading weights and of multiplying with them, then that of
// reading the keys and values of its contexts and of multiplying with those (as attention of
// decodes was measured, where it was), what it costs to begin its layers and to pass rows from
// product to product, then its exchanges: the sums of each layer over the shards, and on the last
// stage what draws need.
//
// Of experts those are read that some row has chosen, if all are as likely, and a row multiplies
// with its own; shards sum what each of a row's experts adds, apart.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/time/time.h"
#include "base/dtype.h"
#include "base/range.h"
#include "model/config/model_config.h"
#include "parallel/cost/device_cost.h"
#include "parallel/cost/exchange_cost.h"
#include "topology/topology.h"

namespace skein::cost {

// How long Linux leaves a core to who does not wait, where others want it: a tick of its usual
// kernels, at which it looks.
inline constexpr absl::Duration kTurn = absl::Milliseconds(4);

struct Stage {
  Range layers;             // of the model
  std::vector<Site> sites;  // [tp]
  CoreShare share;          // of each of them, on cores

  friend bool operator==(const Stage&, const Stage&) = default;
};

struct Replica {
  std::vector<Stage> stages;  // [pp]
  int32_t sequences = 1;      // that run at once
  int32_t waiting = 0;        // requests that wait for a place among these
  int32_t micro_batches = 1;  // of their decodes
  int32_t prompt_pieces = 1;  // micro-batches that the prompts of a step are cut into
  int64_t max_micro_batch_rows = 1;
  DType activations = DType::kF32;
  DType hops = DType::kF32;       // between stages
  DType sums = DType::kF32;       // of shards
  bool sums_by_hosts = false;     // of GPUs, by way of the hosts' memory
  double kv_bytes_per_value = 4;  // int8 has scales beside it
};

// Rows that are computed together.
struct Batch {
  int64_t decodes = 0;  // each of a sequence
  int64_t context = 0;  // tokens before each of these
  int64_t prompt_rows = 0;
  double prompts = 0;          // whose rows read their keys and values together
  int64_t prompt_context = 0;  // tokens before each of their rows
  int64_t outputs = 0;         // rows with logits

  int64_t rows() const { return decodes + prompt_rows; }

  friend bool operator==(const Batch&, const Batch&) = default;
};

struct StageTime {
  absl::Duration compute;
  absl::Duration exchange;

  absl::Duration total() const { return compute + exchange; }
};

// The times of a replica whose sequences have `context` tokens each.
class StageClock {
 public:
  // All of them outlive the clock.
  StageClock(const topology::Topology& topology, const model::ModelConfig& model,
             const Replica& replica, int64_t context)
      : topology_(topology), model_(model), replica_(replica), context_(context) {}

  // With its share of its cores alone.
  StageTime Of(size_t stage, const Batch& batch) const;
  // Of all stages, each of which works on such a batch. Those that share cores leave each other
  // what they do not need: the slowest of them have more than their share.
  std::vector<StageTime> OfAll(const Batch& batch) const;
  std::vector<StageTime> OfDecodes(int64_t rows) const {
    return OfAll({.decodes = rows, .context = context_, .outputs = rows});
  }
  // With a core for itself.
  StageTime AloneOnCore(size_t stage, int64_t rows) const;

  // The longest way between two stages, activations of `rows`.
  absl::Duration Hop(int64_t rows, Receiver receiver) const;
  // Of their tokens, from the last stage to the first.
  absl::Duration TokenHop(int64_t rows, Receiver receiver) const;

 private:
  StageTime TimeOf(const Stage& stage, bool is_last, const Batch& batch) const;
  absl::Duration InTurns(const Stage& stage, int64_t working_set, absl::Duration step) const;

  const topology::Topology& topology_;
  const model::ModelConfig& model_;
  const Replica& replica_;
  const int64_t context_;
};

// The time of one layer, of the output beside the layers, for `rows` decodes at `context` tokens:
// what splits of layers over stages are weighed by. Stage::layers is not read.
absl::Duration LayerTime(const topology::Topology& topology, const model::ModelConfig& model,
                         const Replica& replica, const Stage& stage, int64_t rows, int64_t context);
absl::Duration OutputTime(const topology::Topology& topology, const model::ModelConfig& model,
                          const Stage& stage, int64_t rows);

}  // namespace skein::cost
