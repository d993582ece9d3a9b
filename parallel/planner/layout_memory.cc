#include "parallel/planner/layout_memory.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/dtype.h"
#include "base/status_macros.h"
#include "kernels/ops/sizes.h"
#include "parallel/plan/shard.h"
#include "parallel/planner/defaults.h"
#include "parallel/planner/device_rules.h"

namespace skein::plan {
namespace {

// The last of a stage's shards, which none is larger than, of the stage that needs the most.
absl::StatusOr<LayoutMemory> Fullest(const model::ModelConfig& model, const Layout& layout,
                                     const ReplicaLimits& limits) {
  LayoutMemory fullest = {.layout = layout};
  for (int32_t stage = 0; stage < layout.pp_size; ++stage) {
    const Range layers = BalancedStageLayers(model, layout.pp_size, stage);
    SKEIN_ASSIGN_OR_RETURN(const RankMemory rank,
                           MemoryOfRank(model, layout.tp_size - 1, layers, limits));
    if (stage > 0 && rank.device_bytes() <= fullest.rank.device_bytes()) continue;
    fullest.stage = stage;
    fullest.layers = layers;
    fullest.rank = rank;
  }
  return fullest;
}

}  // namespace

absl::StatusOr<MemoryOfLayouts> FindMemoryOfLayouts(const model::ModelConfig& model,
                                                    const MemoryTask& task) {
  MemoryOfLayouts found = {.context_length = task.context_length, .streams = task.streams};
  const int64_t longest = model.max_position_embeddings;
  if (found.context_length == 0) found.context_length = longest;
  if (found.context_length > longest) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a context of ", found.context_length, " is too long for the model, which has ", longest));
  }
  const Defaults defaults = DefaultsOf(task.device);
  if (found.streams == 0) found.streams = defaults.max_num_seqs;
  const DType activations = kernels::ActivationDType(task.device, model.dtype);
  SKEIN_ASSIGN_OR_RETURN(found.kv_dtype, ChooseKvDType(task.kv_dtype, task.device, model.dtype));
  ReplicaLimits limits = {
      .context_length = found.context_length,
      .max_num_seqs = found.streams,
      .max_micro_batch_rows = std::max(defaults.micro_batch_rows, found.streams),
      .page_size = kernels::PageTokens(task.device),
      .kv_dtype = found.kv_dtype,
      .hop_dtype = activations,
      .deterministic = task.deterministic,
      .device = task.device,
      .nccl = task.device == DeviceKind::kCuda,
      .peers = task.device == DeviceKind::kCuda,
      .window = model.LargestWindow(found.context_length)};
  for (int32_t ranks = 1; ranks <= task.most_ranks; ranks *= 2) {
    for (int32_t pp = 1; pp <= ranks; pp *= 2) {
      const Layout layout = {.tp_size = ranks / pp, .pp_size = pp};
      if (pp > model.num_layers) {
        found.rejected.push_back(
            {layout, absl::StrCat("the model has ", model.num_layers, " layers")});
        continue;
      }
      limits.tp_size = layout.tp_size;
      limits.step_rows = int64_t{limits.max_micro_batch_rows} * pp;
      limits.pages = found.streams * limits.held_pages();
      absl::StatusOr<LayoutMemory> fullest = Fullest(model, layout, limits);
      if (fullest.ok()) {
        found.layouts.push_back(*std::move(fullest));
      } else {
        found.rejected.push_back({layout, std::string(fullest.status().message())});
      }
    }
  }
  return found;
}

}  // namespace skein::plan
