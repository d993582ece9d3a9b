// What a model needs, layout by layout, with no machine to plan for.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "base/device_kind.h"
#include "base/range.h"
#include "model/config/model_config.h"
#include "parallel/plan/plan.h"
#include "parallel/planner/memory.h"
#include "parallel/planner/planner.h"

namespace skein::plan {

struct MemoryTask {
  DeviceKind device = DeviceKind::kCuda;  // of all ranks
  int64_t context_length = 0;             // 0: the model's
  int32_t streams = 0;                    // of a replica, each with a full context; 0: DefaultsOf
  std::optional<KvDType> kv_dtype;        // none: as keys and values are computed
  bool deterministic = false;
  int32_t most_ranks = 8;  // of a replica
};

struct LayoutMemory {
  Layout layout;  // of one replica
  // Of the rank that needs the most of its device: its stage, and what is on it.
  int32_t stage = 0;
  Range layers;
  RankMemory rank;
};

struct MemoryOfLayouts {
  // Those of the task, with what was left open.
  int64_t context_length = 0;
  int32_t streams = 0;
  KvDType kv_dtype = KvDType::kF32;
  std::vector<LayoutMemory> layouts;     // by ranks, then more shards first
  std::vector<RejectedLayout> rejected;  // that the model cannot have
};

// Layouts of powers of two, split as a plan without machines splits them: stages of as equal work
// as layers allow, GPUs of one host. InvalidArgument for a context that the model does not have.
absl::StatusOr<MemoryOfLayouts> FindMemoryOfLayouts(const model::ModelConfig& model,
                                                    const MemoryTask& task);

}  // namespace skein::plan
