#include "parallel/planner/memory.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/units.h"
#include "kernels/ops/device_kernels.h"
#include "kernels/ops/sizes.h"
#include "kernels/packing/layout.h"
#include "parallel/plan/plan.h"
#include "parallel/planner/device_rules.h"
#include "parallel/program/rank_program.h"

namespace skein::plan {

absl::StatusOr<RankMemory> MemoryOfRank(const model::ModelConfig& model, int32_t shard,
                                        Range layers, const ReplicaLimits& limits) {
  SKEIN_ASSIGN_OR_RETURN(
      const RankProgram rank,
      BuildRankProgram(model, /*tensors=*/nullptr,
                       {.tp_size = limits.tp_size,
                        .tp_rank = shard,
                        .ep_size = limits.ep_size,
                        .layers = layers,
                        .page_size = limits.page_size,
                        .pages = 1,
                        .kv_dtype = limits.kv_dtype,
                        .hop_dtype = limits.hop_dtype,
                        .activations = kernels::ActivationDType(limits.device, model.dtype),
                        .deterministic = limits.deterministic,
                        .exact = limits.exact}));
  const kernels::Limits batch = {
      .rows = limits.max_micro_batch_rows,
      .outputs = MaxOutputs(limits.max_num_seqs, limits.max_micro_batch_rows),
      .slots = limits.max_num_seqs,
      .slot_pages = limits.context_pages()};
  SKEIN_RETURN_IF_ERROR(kernels::CheckLimits(limits.device, batch));
  SKEIN_RETURN_IF_ERROR(kernels::CheckDeviceKernels(limits.device, rank.program));
  RankMemory memory;
  const kernels::ProgramSizes sizes = kernels::SizesOf(limits.device, rank.program, rank.kv, batch);
  memory.weight_bytes = sizes.weights;
  memory.page_bytes = sizes.page;
  memory.kv_bytes = limits.pages * memory.page_bytes;
  memory.swap_bytes = limits.swap_pages * memory.page_bytes;
  memory.activation_bytes = sizes.workspace;
  memory.context_bytes = sizes.context;
  memory.graph_bytes = sizes.graphs;
  memory.pinned_bytes = sizes.pinned;
  // A rank's share of memory of which ranks of a host share a part.
  const auto part_of = [&](int64_t bytes, int64_t shared_bytes) {
    return bytes - shared_bytes + shared_bytes / limits.ranks_of_host;
  };
  memory.program_bytes = part_of(kProcessBytes, kProcessSharedBytes);
  memory.shared_bytes = kProcessSharedBytes;
  if (limits.device == DeviceKind::kCpu) return memory;
  memory.driver_bytes = part_of(kDriverBytes, kDriverSharedBytes);
  memory.shared_bytes += kDriverSharedBytes;
  // Its stage's shards; the stage before and the one behind.
  const bool sums = limits.tp_size > 1;
  const int64_t hops = (layers.begin > 0) + (layers.end < model.num_layers);
  const bool by_hosts = SumsByHosts(limits.device, limits.deterministic, limits.tp_size);
  const bool device_sums = sums && limits.nccl && !by_hosts;
  const int64_t over_nccl = limits.nccl ? hops + device_sums : 0;
  if (over_nccl > 0) {
    memory.exchange_bytes = kNcclBytes + (over_nccl - 1) * kNcclGroupBytes;
    memory.driver_bytes +=
        part_of(kNcclHostBytes, kNcclHostSharedBytes) + (over_nccl - 1) * kNcclHostGroupBytes;
    memory.shared_bytes += kNcclHostSharedBytes;
  }
  if (limits.nccl && layers.begin > 0) memory.exchange_bytes += kNcclReceiveBytes;
  if (device_sums) {
    memory.exchange_bytes += kNcclSumBytes + (limits.tp_size - 2) * kNcclShardBytes;
    memory.driver_bytes += kNcclSumHostBytes;
  }
  if (device_sums && limits.peers) {
    memory.exchange_bytes += kernels::PeerSumBytes(limits.device, limits.tp_size);
  }
  // What is staged: activations of a micro-batch, for each group; draws' sums go the way of others.
  const DType dtype = SumDType(limits.hop_dtype, limits.deterministic);
  const int64_t staged = DTypeBytes(dtype, limits.max_micro_batch_rows * model.hidden_size);
  if (!limits.nccl) memory.pinned_bytes += hops * staged;
  if (sums && !device_sums) memory.pinned_bytes += std::max(staged, sizes.draws);
  return memory;
}

ReplicaLimits ReplicaLimits::Of(const Plan& plan, const model::ModelConfig& model,
                                const topology::Device& device) {
  return {.tp_size = plan.layout.tp_size,
          .context_length = plan.context_length,
          .max_num_seqs = plan.max_num_seqs,
          .max_micro_batch_rows = plan.max_micro_batch_rows,
          .page_size = plan.page_size,
          .kv_dtype = plan.kv_dtype,
          .hop_dtype = plan.hop_dtype,
          .deterministic = plan.deterministic,
          .exact = plan.exact,
          .pages = plan.pages,
          .swap_pages = plan.swap_pages,
          .device = device.kind,
          .nccl = device.nccl,
          .peers = device.peers,
          .ep_size = plan.layout.ep_size,
          .window = model.LargestWindow(plan.context_length),
          .step_rows = plan.max_num_batched_tokens};
}

std::string FormatDeviceMemory(const RankMemory& memory) {
  return absl::StrCat(
      FormatBytes(memory.device_bytes()), ": weights ", FormatBytes(memory.weight_bytes), ", KV ",
      FormatBytes(memory.kv_bytes), ", buffers ", FormatBytes(memory.activation_bytes),
      ", context ", FormatBytes(memory.context_bytes), ", graphs ", FormatBytes(memory.graph_bytes),
      memory.exchange_bytes > 0 ? absl::StrCat(", exchange ", FormatBytes(memory.exchange_bytes))
                                : "");
}

absl::Status CheckDeviceMemory(const RankMemory& memory, const ReplicaLimits& limits,
                               int64_t free_bytes) {
  if (memory.device_bytes() <= free_bytes) return absl::OkStatus();
  const int64_t left = free_bytes - (memory.device_bytes() - memory.kv_bytes);
  const int64_t pages = memory.page_bytes > 0 ? std::max<int64_t>(left, 0) / memory.page_bytes : 0;
  std::string fits = "not even a short context would fit";
  if (pages >= limits.held_pages()) {
    fits = absl::StrCat(FormatCount(pages, "page"), " of the plan's ", limits.pages,
                        " would fit: --kv-memory=", pages * memory.page_bytes, "B");
  } else if (pages > 0) {
    fits = absl::StrCat("one sequence with a context of ", pages * limits.page_size, " would fit");
  }
  return absl::ResourceExhaustedError(absl::StrCat(
      "the device has ", FormatBytes(free_bytes), " free and the plan needs ",
      FormatDeviceMemory(memory), "; another process has taken memory since it was made; ", fits));
}

}  // namespace skein::plan
