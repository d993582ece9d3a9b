// The immutable assignment of replica, stage, shard, layers, micro-batches and KV pages to every
// rank of one job. Plain data: printable, storable, replayable.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/range.h"
#include "kernels/packing/layout.h"
#include "model/config/model_config.h"
#include "topology/machine.h"

namespace skein::plan {

// The most that each part of a layout can be. The product of three of them fits into an int32, and
// no model or machine is split further.
inline constexpr int32_t kMaxWays = 1024;

using kernels::KvDType;
std::string_view KvDTypeName(KvDType dtype);  // "f32", "bf16", "f16", "int8"
// The inverse of KvDTypeName. InvalidArgument for any other name.
absl::StatusOr<KvDType> ParseKvDType(std::string_view name);
// Of activations between stages, likewise: "f32", "bf16", "f16".
std::string_view HopDTypeName(DType dtype);
absl::StatusOr<DType> ParseHopDType(std::string_view name);

// The degrees of tensor, pipeline and data parallelism: how many ways the model's matrices, its
// layers and the requests are split. Expert parallelism takes no more ranks: it makes groups of the
// shards, of which each has a part of the experts, and splits those over its shards.
struct Layout {
  int32_t tp_size = 1;
  int32_t pp_size = 1;
  int32_t dp_size = 1;
  int32_t ep_size = 1;  // divides tp_size

  int32_t ranks() const { return tp_size * pp_size * dp_size; }
  std::string ToString() const;  // "tp=2,pp=2,dp=2"; with ",ep=2" only where that is above 1
  friend bool operator==(const Layout&, const Layout&) = default;
};

// A layout in which unset parts are left to the planner, as in "tp=2,dp=2".
struct LayoutRequest {
  std::optional<int32_t> tp_size;
  std::optional<int32_t> pp_size;
  std::optional<int32_t> dp_size;
  std::optional<int32_t> ep_size;  // unset: 1

  bool Allows(const Layout& layout) const {
    return tp_size.value_or(layout.tp_size) == layout.tp_size &&
           pp_size.value_or(layout.pp_size) == layout.pp_size &&
           dp_size.value_or(layout.dp_size) == layout.dp_size &&
           ep_size.value_or(layout.ep_size) == layout.ep_size;
  }
  // That the set parts ask for; the job has a multiple of it, or leaves some idle.
  int64_t ranks() const {
    return int64_t{tp_size.value_or(1)} * pp_size.value_or(1) * dp_size.value_or(1);
  }
  std::string ToString() const;  // "tp=2,dp=2"; "" when nothing is asked
  friend bool operator==(const LayoutRequest&, const LayoutRequest&) = default;
};
// Parses any parts of "tp=2,pp=2,dp=2", in any order; "" asks for nothing. InvalidArgument quotes
// the text and says what is wrong, with an example.
absl::StatusOr<LayoutRequest> ParseLayoutRequest(std::string_view text);

// The part of one rank. A stage is the ranks of one pp_rank in a replica, a shard what one tp_rank
// holds.
struct RankPlan {
  int32_t rank = 0;          // as mpirun numbers it
  int32_t dp_rank = 0;       // the replica, within the job; kNoReplica: the rank has no part
  int32_t pp_rank = 0;       // the stage
  int32_t tp_rank = 0;       // the shard
  Range layers;              // of the model
  int32_t threads = 1;       // to compute with
  int64_t weight_bytes = 0;  // packed
  int64_t kv_bytes = 0;
  // All that it needs of its device, and of the host: on cores the same. 0: not told.
  int64_t memory_bytes = 0;
  int64_t host_bytes = 0;
  topology::Device device;  // that the plan was made for

  friend bool operator==(const RankPlan&, const RankPlan&) = default;
};

inline constexpr int32_t kNoReplica = -1;

// The most rows of a step that compute log probabilities of prompts: enough to make reading the
// weights once for a prompt worth it, few enough for the logits of a large vocabulary (16 MiB).
inline constexpr int32_t kLogitRows = 16;

// The most rows of a micro-batch that have logits: one per sequence, and kLogitRows.
constexpr int32_t MaxOutputs(int32_t max_num_seqs, int32_t max_micro_batch_rows) {
  return std::min(max_micro_batch_rows, max_num_seqs + kLogitRows);
}

// What a plan is expected to do, and with which load.
struct Prediction {
  int64_t prompt_tokens = 0;  // of each request; 0: nothing was predicted
  int64_t output_tokens = 0;
  int64_t concurrency = 0;  // requests at once, over all replicas
  absl::Duration ttft;      // on the average, waiting for others included; of the slowest replica
  absl::Duration tpot;      // likewise
  double output_tokens_per_s = 0;
  bool measured = false;  // by figures that were measured, not assumed
  double spread = 0;      // of these, topology::DeviceRates', the largest of all devices

  friend bool operator==(const Prediction&, const Prediction&) = default;
};

struct Plan {
  std::string job_id;
  std::string model_name;      // what clients call it
  std::string model_path;      // as the coordinator was given it
  std::string model_identity;  // hash of config, tokenizer, tensor headers and file sizes
  Layout layout;
  std::vector<RankPlan> ranks;      // by PlaceOf: shards fastest, replicas slowest
  std::vector<int32_t> idle_ranks;  // of the job, that have no part

  // The scheduler's limits, per replica.
  int32_t micro_batches = 1;           // that a step's decodes are spread over; prompts make more
  int32_t max_num_seqs = 0;            // that run at once
  int32_t max_micro_batch_rows = 0;    // tokens of one micro-batch
  int64_t max_num_batched_tokens = 0;  // rows of a step, over all of its micro-batches
  int64_t page_size = 0;               // tokens of a page
  int64_t pages = 0;                   // of every rank's cache
  int64_t swap_pages = 0;              // of every rank's second cache, for sequences that gave way
  KvDType kv_dtype = KvDType::kF32;    // of both
  DType hop_dtype = DType::kF32;       // of activations between stages
  bool deterministic = false;          // kernels::Program's
  bool exact = false;                  // kernels::Program's
  int64_t context_length = 0;          // tokens of one sequence at most, prompt included

  Prediction prediction;
  std::vector<std::string> reasons;  // why this plan, a sentence each

  int32_t PlaceOf(int32_t dp_rank, int32_t pp_rank, int32_t tp_rank) const {
    return (dp_rank * layout.pp_size + pp_rank) * layout.tp_size + tp_rank;
  }
  const RankPlan& At(int32_t dp_rank, int32_t pp_rank, int32_t tp_rank) const {
    return ranks[PlaceOf(dp_rank, pp_rank, tp_rank)];
  }
  // Null for a rank without a part.
  const RankPlan* Find(int32_t rank) const {
    const auto found = std::find_if(ranks.begin(), ranks.end(),
                                    [&](const RankPlan& part) { return part.rank == rank; });
    return found == ranks.end() ? nullptr : &*found;
  }
  int32_t job_size() const { return static_cast<int32_t>(ranks.size() + idle_ranks.size()); }
  friend bool operator==(const Plan&, const Plan&) = default;
};

// Checks that every number is in its range and that the ranks' parts are consistent, as far as that
// can be said without the model. InvalidArgument names the field, its value and what is allowed.
// Does not check names, paths and hashes: others compare them.
absl::Status CheckPlan(const Plan& plan);

// Runs CheckPlan, then checks that plan and model fit together. A worker calls it before it acts on
// a plan that came over the wire.
absl::Status ValidatePlan(const Plan& plan, const model::ModelConfig& model);

// The plan as a table for people: a row per rank, then limits and reasons. Lines have at most 96
// columns, a longer word aside.
std::string FormatPlan(const Plan& plan);

}  // namespace skein::plan
