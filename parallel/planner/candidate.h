// Judges one layout of a job by itself: whether it works, and which plan it gives.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/device_kind.h"
#include "base/range.h"
#include "model/config/model_config.h"
#include "parallel/plan/plan.h"
#include "parallel/planner/goal.h"
#include "parallel/planner/host_kinds.h"
#include "parallel/planner/kv_memory.h"
#include "parallel/planner/replica_search.h"
#include "topology/machine.h"
#include "topology/topology.h"

namespace skein::plan {

// The planner's task.
struct Job {
  const topology::Machine& machine;
  const topology::Topology& topology;  // TopologyOf(machine)
  const HostKinds& kinds;              // its
  const model::ModelConfig& model;
  DeviceKind device = DeviceKind::kCpu;  // of all ranks
  int64_t page_size = 0;
  int64_t context_length = 0;
  int32_t max_num_seqs = 0;
  int32_t micro_batch_rows = 0;  // where max_num_batched_tokens is 0
  KvMemory kv_memory;
  KvDType kv_dtype = KvDType::kF32;
  DType hop_dtype = DType::kF32;
  bool deterministic = false;
  bool exact = false;
  int64_t swap_memory_bytes = 0;       // per rank
  int64_t max_num_batched_tokens = 0;  // 0: a micro-batch a stage; otherwise at least max_num_seqs
  cost::Workload workload;
  // Replicas run fewer sequences at once where that keeps TPOT within it.
  std::optional<absl::Duration> tpot_limit;

  int32_t ranks() const { return static_cast<int32_t>(machine.devices.size()); }
  const topology::Node& NodeOf(int32_t rank) const {
    return machine.nodes[machine.devices[rank].node];
  }
};

struct Candidate {
  Layout layout;
  std::vector<int32_t> ranks;  // of the job, by Plan::PlaceOf; all others idle
  std::vector<Range> layers;   // of each of them
  absl::Status refusal;        // why it cannot be; OK when it can
  // Needed over usable memory of the fullest node or device; 0 when unknown.
  double memory_ratio = 0;
  // The nodes that the shards of one stage are spread over, "a and b"; empty when every stage is
  // on one node.
  std::string crossing;
  // Whether shards of a deterministic job on GPUs add by way of the hosts' memory, as more than two
  // do.
  bool sums_by_hosts = false;
  // Filled where refusal is OK, without names, reasons and prediction.
  Plan plan;
  Standing standing;
  std::string memory_reason;       // what the fullest one holds, as a sentence
  std::string cache_reason;        // why so many pages, in sentences
  std::string micro_batch_reason;  // why so many, as a sentence; empty with one stage
  std::string limit_reason;        // why a replica runs fewer sequences, as a sentence; or empty
  std::string split_reason;        // why stages differ, as a sentence; empty where they do not
};

// The layout on layout.ranks() of the job's ranks, by Plan::PlaceOf. Layers are split evenly, by
// bytes, unless that does not fit or other numbers are faster by more than kAlike and the spread.
Candidate JudgeLayout(const Job& job, const Layout& layout, std::vector<int32_t> ranks,
                      ReplicaSearch& splits);

// InvalidArgument when the model has fewer layers than stages.
absl::Status CheckPipelineParallel(const model::ModelConfig& model, int32_t pp_size);

}  // namespace skein::plan
