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
#include "model/config/model_config.h"
#include "parallel/cost/replica_cost.h"
#include "parallel/plan/plan.h"
#include "parallel/planner/planner.h"
#include "topology/topology.h"

namespace skein::plan {

enum class Objective : uint8_t {
  kThroughput,  // output tokens a second, of all replicas
  kLatency,     // the time of one answer, from its request to its last token
};

struct SearchTask {
  cost::Workload workload;
  Objective objective = Objective::kThroughput;
  // Layouts beyond these lose to all within.
  std::optional<absl::Duration> ttft_limit;
  std::optional<absl::Duration> tpot_limit;
  LayoutRequest layout;        // parts that are fixed
  int32_t core_ranks = 0;      // of each host, where there are no GPUs; 0: as cores of the smallest
  int64_t context_length = 0;  // 0: the workload's prompt and answer
  int32_t max_num_seqs = 0;    // of a replica; 0: 16 on cores, 256 on GPUs
  std::optional<KvDType> kv_dtype;
  bool deterministic = false;
};

struct Choice {
  Layout layout;
  std::vector<cost::Replica> replicas;  // [dp]
  int32_t devices = 0;                  // that it uses
  // The rank with the least room: what it needs, and what it may take.
  int64_t needed_bytes = 0;
  int64_t usable_bytes = 0;
  // The slowest replica's; tokens of all. Where replicas differ, requests are spread evenly.
  cost::ReplicaCost cost;
  double output_tokens_per_s = 0;
  bool within_limits = true;

  absl::Duration AnswerTime(const cost::Workload& workload) const {
    return cost.ttft + cost.tpot * static_cast<double>(workload.output_tokens - 1);
  }
};

struct SearchResult {
  std::vector<Choice> choices;           // best first
  std::vector<RejectedLayout> rejected;  // that cannot be, dp as if it could; in order of tp, pp
  std::string pruned;                    // a sentence on layouts that were not looked at, or none
};

// Layouts within this of each other count as equal. First among such is the one with the smallest
// replicas, then one whose shards NVLink connects, by fewer stages; of others that with fewer
// shards. So plans do not flap with measurements.
inline constexpr double kAlike = 0.05;

// InvalidArgument for a workload or constraints that make no sense, and a topology without rates
// (cost::CheckRates). A result without choices says by `rejected` why there are none. Costs some
// 0.1 ms a layout and stage.
absl::StatusOr<SearchResult> SearchLayouts(const topology::Topology& topology,
                                           const model::ModelConfig& model, const SearchTask& task);

// "exchanges take 40% of a step": what a choice that is not the best suffers from, by what it
// differs in the most plainly.
std::string WhyItIsBehind(const Choice& choice, const Choice& best, const SearchTask& task);

}  // namespace skein::plan
