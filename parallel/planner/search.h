// Searches the layouts of machines by what each would do: over tensor, pipeline and data parallel
// degrees, where ranks go, how layers are split, micro-batches, and how many devices are worth it.
// Pure and deterministic: equal input gives equal output.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/device_kind.h"
#include "model/config/model_config.h"
#include "parallel/cost/replica_cost.h"
#include "parallel/plan/plan.h"
#include "parallel/planner/goal.h"
#include "parallel/planner/planner.h"
#include "topology/topology.h"

namespace skein::plan {

struct SearchTask : Goal {
  LayoutRequest layout;        // parts that are fixed
  int32_t core_ranks = 0;      // of each host, where there are no GPUs; 0: as cores of the smallest
  int64_t context_length = 0;  // 0: the workload's prompt and answer
  // Of a replica; 0: 16 on cores, 256 on GPUs, or as many as keep the limit on TPOT.
  int32_t max_num_seqs = 0;
  std::optional<KvDType> kv_dtype;
  bool deterministic = false;

  int64_t context() const {
    return context_length > 0 ? context_length : workload.prompt_tokens + workload.output_tokens;
  }
};

struct Choice : Standing {
  std::vector<cost::Replica> replicas;  // [dp]
  // [dp][stages]: what a rank takes of the memory that its site has.
  std::vector<std::vector<int64_t>> rank_bytes;
  int32_t devices = 0;  // that it uses
  // The rank with the least room: what it needs, and what it may take.
  int64_t needed_bytes = 0;
  int64_t usable_bytes = 0;
  bool within_limits = true;
  bool bounded = false;  // some replica runs fewer sequences, by the limit on TPOT
};

struct SearchResult {
  std::vector<Choice> choices;           // best first
  std::vector<RejectedLayout> rejected;  // that cannot be, dp as if it could; in order of tp, pp
  std::string pruned;                    // a sentence on layouts that were not looked at, or none
};

// What ranks of these machines compute on: GPUs where any host has some.
DeviceKind DeviceOf(const topology::Topology& topology);

// InvalidArgument for a workload or constraints that make no sense, and a topology without rates
// (cost::CheckComplete). A result without choices says by `rejected` why there are none. Costs some
// 0.1 ms a layout and stage.
absl::StatusOr<SearchResult> SearchLayouts(const topology::Topology& topology,
                                           const model::ModelConfig& model, const SearchTask& task);

// What a choice that is not the best suffers from, by what it differs in the most plainly.
std::string WhyItIsBehind(const Choice& choice, const Choice& best, const SearchTask& task);

}  // namespace skein::plan
