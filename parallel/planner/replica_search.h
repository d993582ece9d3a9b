// The best replica of one layout on given sites: layer split, memory, micro-batches. Pure, but for
// what it keeps of earlier answers.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/device_kind.h"
#include "model/config/model_config.h"
#include "parallel/cost/replica_cost.h"
#include "parallel/planner/host_kinds.h"
#include "parallel/planner/memory.h"
#include "parallel/planner/placement.h"
#include "topology/topology.h"

namespace skein::plan {

struct JudgedReplica {
  cost::Replica replica;
  cost::ReplicaCost cost;
  int64_t needed_bytes = 0;  // of the rank with the least room
  int64_t usable_bytes = 0;
  std::vector<RankMemory> memory;  // [stages], of a rank
  bool bounded = false;            // to fewer sequences than memory holds, by the limit on TPOT
};

// What a rank takes of the memory that its site has.
int64_t NeededBytes(const RankMemory& memory, const cost::Site& site);

// What is the same for all replicas of a search.
struct ReplicaTask {
  const topology::Topology& topology;
  const model::ModelConfig& model;
  cost::Workload workload;  // its concurrency is not read
  DeviceKind device = DeviceKind::kCpu;
  int64_t context_length = 0;
  int32_t max_num_seqs = 0;
  int32_t max_micro_batch_rows = 0;
  DType activations = DType::kF32;
  kernels::KvDType kv_dtype = kernels::KvDType::kF32;
  bool deterministic = false;
  int32_t ep_size = 1;
  std::optional<absl::Duration> tpot_limit;  // that fewer sequences than asked for may keep
};

// How the ranks of a replica share their hosts with others.
struct HostShare {
  int32_t ranks = 1;   // on each host, of all replicas
  int32_t active = 1;  // of them, that compute at the same time
};

class ReplicaSearch {
 public:
  explicit ReplicaSearch(const ReplicaTask& task);

  // `sequences`, or as many of them as memory holds and as keep the limit on TPOT; where none do,
  // the limit is broken. FailedPrecondition, with the numbers, where
  // memory does not hold one; others are MemoryOfRank's and PredictReplica's. Replicas on alike
  // sites are judged once.
  absl::StatusOr<JudgedReplica> Judge(const std::vector<Group>& stages, int32_t sequences,
                                      const HostShare& share);

 private:
  absl::StatusOr<JudgedReplica> JudgeAnew(const std::vector<Group>& stages, int32_t asked,
                                          const HostShare& share);
  // Of so many sequences, with as many micro-batches as take the least time. Errors are
  // PredictReplica's.
  // For so many sequences at once of those that are asked for.
  absl::Status Time(int32_t asked, int32_t sequences, JudgedReplica& judged) const;
  ReplicaLimits LimitsOf(const std::vector<Group>& stages) const;
  absl::StatusOr<RankMemory> MemoryOf(const ReplicaLimits& limits, Range layers);
  absl::StatusOr<int64_t> MostLayers(const ReplicaLimits& limits, const Group& sites, bool first,
                                     bool last, const HostShare& share);
  absl::Status Split(const ReplicaLimits& limits, const HostShare& share, cost::Replica& replica);
  absl::Status FitMemory(const ReplicaLimits& limits, const HostShare& share, int32_t sequences,
                         JudgedReplica& judged);
  int64_t UsableBytesOf(const cost::Site& site, const HostShare& share) const;

  const ReplicaTask task_;
  const HostKinds kinds_;
  std::map<std::string, absl::StatusOr<JudgedReplica>> judged_;
  // (tp, whether its nodes share peers, pages, layers, first, last) to the memory of a rank.
  std::map<std::tuple<int32_t, bool, int64_t, int64_t, bool, bool>, RankMemory> memories_;
};

}  // namespace skein::plan
