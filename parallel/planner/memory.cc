#include "parallel/planner/memory.h"

#include "base/status_macros.h"
#include "kernels/ops/sizes.h"
#include "kernels/packing/layout.h"
#include "parallel/plan/plan.h"
#include "parallel/program/rank_program.h"

namespace skein::plan {

absl::StatusOr<RankMemory> MemoryOfRank(const model::ModelConfig& model, int32_t shard,
                                        Range layers, const ReplicaLimits& limits) {
  SKEIN_ASSIGN_OR_RETURN(
      const RankProgram rank,
      BuildRankProgram(model, /*tensors=*/nullptr,
                       {.tp_size = limits.tp_size,
                        .tp_rank = shard,
                        .layers = layers,
                        .page_size = limits.page_size,
                        .pages = 1,
                        .kv_dtype = limits.kv_dtype,
                        .hop_dtype = limits.hop_dtype,
                        .activations = kernels::ActivationDType(limits.device)}));
  const kernels::Limits batch = {
      .rows = limits.max_micro_batch_rows,
      .outputs = MaxOutputs(limits.max_num_seqs, limits.max_micro_batch_rows),
      .slots = limits.max_num_seqs,
      .slot_pages = limits.context_pages()};
  RankMemory memory;
  const kernels::ProgramSizes sizes = kernels::SizesOf(limits.device, rank.program, rank.kv, batch);
  memory.weight_bytes = sizes.weights;
  memory.page_bytes = sizes.page;
  memory.kv_bytes = limits.pages * memory.page_bytes;
  memory.swap_bytes = limits.swap_pages * memory.page_bytes;
  memory.activation_bytes = sizes.workspace;
  return memory;
}

}  // namespace skein::plan
