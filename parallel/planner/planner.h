// Chooses a job's layout. Pure: from a machine and a model as data to ranked plans with reasons.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "model/config/model_config.h"
#include "parallel/plan/plan.h"
#include "parallel/planner/goal.h"
#include "parallel/planner/kv_memory.h"
#include "topology/machine.h"

namespace skein::plan {

inline constexpr int32_t kMaxNumSeqs = 4096;           // more than a step can serve well
inline constexpr int64_t kMaxBatchedTokens = 1 << 20;  // as CheckPlan has it for a micro-batch

struct Constraints {
  LayoutRequest layout;        // parts that are fixed
  int64_t context_length = 0;  // 0: the model's
  int32_t max_num_seqs = 0;    // per replica; 0: the planner's choice
  // Pages are given to sequences as they grow: more may run at once than would fit if all had their
  // full context. One always fits.
  KvMemory kv_memory;
  // None: what the device computes with, F32 on CPUs and the model's BF16 or F16 on GPUs.
  std::optional<KvDType> kv_dtype;
  std::optional<DType> hop_dtype;      // of activations between stages
  bool deterministic = false;          // kernels::Program's
  bool exact = false;                  // kernels::Program's
  int64_t swap_memory_bytes = 0;       // per rank
  int64_t max_num_batched_tokens = 0;  // per replica; 0: the planner's choice
  Goal goal;
};

struct ModelFacts {
  std::string name;
  std::string path;
  std::string identity;
  model::ModelConfig config;
};

struct RejectedLayout {
  Layout layout;
  std::string reason;
};

struct Planning {
  std::vector<Plan> plans;               // best first; at least one. The caller sets job_id.
  std::vector<RejectedLayout> rejected;  // of those that were looked at: why not these
  std::string pruned;                    // a sentence on those that were not, or none
};

// Plans one job of machine.devices.size() ranks: ranks the layouts that work by what each would do
// (goal.h), on the figures of the machine. Shards are never spread over several nodes unless tp is
// asked for. Errors: InvalidArgument for a machine or constraints that make
// no sense. Unimplemented for dtypes that GPUs do not compute with. FailedPrecondition when nothing
// works: it says why the asked layout cannot be (which numbers do not divide, which node lacks how
// much memory), a line for each reason, and names the nearest layouts that work.
absl::StatusOr<Planning> PlanJob(const topology::Machine& machine, const ModelFacts& model,
                                 const Constraints& constraints);

}  // namespace skein::plan
