// What a replica of a model does in a second, on given machines: predicted from bytes, operations
// and exchanges, against rates that were measured or are of datasheets. Pure; any thread.
//
// A micro-batch of a stage takes the longer of reading weights and of multiplying with them, then
// that of reading the keys and values of its contexts and of multiplying with those (as attention
// of decodes was measured, where it was), what it costs to begin its layers and to pass rows from
// product to product, then its exchanges: the sums of each layer over the shards, and on the last
// stage what draws need. A pipeline's steps are those of parallel/pipeline.
//
// Of experts those are read that some row has chosen, if all are as likely, and a row multiplies
// with its own; shards sum what each of a row's experts adds, apart.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/dtype.h"
#include "base/range.h"
#include "model/config/model_config.h"
#include "parallel/cost/device_cost.h"
#include "parallel/pipeline/simulate.h"
#include "topology/topology.h"

namespace skein::cost {

// Requests as they come: each of the same length, and as many at once at any time.
struct Workload {
  int64_t prompt_tokens = 512;
  int64_t output_tokens = 256;
  int64_t concurrency = 1;

  friend bool operator==(const Workload&, const Workload&) = default;
};

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
  int64_t max_micro_batch_rows = 1;
  DType activations = DType::kF32;
  DType hops = DType::kF32;       // between stages
  DType sums = DType::kF32;       // of shards
  bool sums_by_hosts = false;     // of GPUs, by way of the hosts' memory
  double kv_bytes_per_value = 4;  // int8 has scales beside it
};

struct ReplicaCost {
  absl::Duration prompt;  // until the first token of a prompt that nobody delays
  absl::Duration ttft;    // the same on the average, waiting for others included
  absl::Duration tpot;    // from token to token of one answer, prompts of others between included
  absl::Duration step;    // of decodes alone
  double output_tokens_per_s = 0;
  double bubble = 0;          // idle share of all stages' time in steady decode
  double exchange_share = 0;  // of a step's time on the stage that takes longest
};

// InvalidArgument where Simulate refuses the pipeline. Costs some microseconds for one stage, and
// some 100 ns for each stage, micro-batch and step of the 16 that are simulated for several.
absl::StatusOr<ReplicaCost> PredictReplica(const topology::Topology& topology,
                                           const model::ModelConfig& model, const Replica& replica,
                                           const Workload& workload);

// The time of a step of steady decode, each sequence `context` tokens long. Errors as above.
absl::StatusOr<absl::Duration> DecodeStepTime(const topology::Topology& topology,
                                              const model::ModelConfig& model,
                                              const Replica& replica, int64_t context);

// So many steps of steady decode: what the stages do when. Errors as above.
absl::StatusOr<schedule::Timeline> SimulateDecodes(const topology::Topology& topology,
                                                   const model::ModelConfig& model,
                                                   const Replica& replica, const Workload& workload,
                                                   int32_t steps);

// The time of one layer, of the output beside the layers, for `rows` decodes at `context` tokens:
// what splits of layers over stages are weighed by. Stage::layers is not read.
absl::Duration LayerTime(const topology::Topology& topology, const model::ModelConfig& model,
                         const Replica& replica, const Stage& stage, int64_t rows, int64_t context);
absl::Duration OutputTime(const topology::Topology& topology, const model::ModelConfig& model,
                          const Stage& stage, int64_t rows);

}  // namespace skein::cost
