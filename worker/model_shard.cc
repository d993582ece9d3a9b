#include "worker/model_shard.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/status_macros.h"
#include "base/units.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/ops/sizes.h"
#include "kernels/reference/reference_backend.h"
#include "model/format/identity.h"
#include "model/format/open.h"
#include "parallel/planner/memory.h"
#include "worker/host_backend.h"

namespace skein::worker {
namespace {

// Pages per second that go from one cache to the other: the best of a few tries with a few pages,
// after one that touches their memory.
absl::StatusOr<double> MeasureSwap(const kernels::KvCache& kv, kernels::KvCache& swap) {
  constexpr int64_t kPages = 8;
  constexpr int kTries = 4;
  const int64_t pages = std::min({kPages, kv.spec().pages, swap.spec().pages});
  absl::Duration best = absl::InfiniteDuration();
  for (int i = 0; i < kTries; ++i) {
    const absl::Time begin = absl::Now();
    for (int32_t page = 0; page < pages; ++page) {
      SKEIN_RETURN_IF_ERROR(swap.CopyPage(kv, page, page));
    }
    best = std::min(best, absl::Now() - begin);
  }
  return static_cast<double>(pages) / absl::ToDoubleSeconds(best);
}

// The plan was made of what was free as the rank attached.
absl::Status CheckGpuMemory(const plan::Plan& plan, const plan::RankPlan& rank,
                            const model::ModelConfig& config, int gpu) {
  const auto limits = plan::ReplicaLimits::Of(plan, config, rank.device);
  SKEIN_ASSIGN_OR_RETURN(plan::RankMemory memory,
                         plan::MemoryOfRank(config, rank.tp_rank, rank.layers, limits));
  memory.exchange_bytes = 0;  // the ranks have met: it is taken
  SKEIN_ASSIGN_OR_RETURN(const kernels::CudaDevice device, kernels::DescribeCudaDevice(gpu));
  spdlog::info("memory of GPU {}: {} are free; needed are {}", gpu, FormatBytes(device.free_bytes),
               plan::FormatDeviceMemory(memory));
  return plan::CheckDeviceMemory(memory, limits, device.free_bytes);
}

}  // namespace

std::string ResolveModelPath(std::string_view plan_path, std::string_view model_root) {
  if (model_root.empty()) return std::string(plan_path);
  std::filesystem::path path = std::filesystem::path(plan_path).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();  // "bard/"
  return (std::filesystem::path(model_root) / path.filename()).string();
}

absl::StatusOr<std::unique_ptr<kernels::Backend>> MakeBackend(const plan::RankPlan& rank,
                                                              const ModelShardOptions& options) {
  if (rank.device.kind == DeviceKind::kCuda) {
    return kernels::MakeCudaBackend({.device = options.gpu,
                                     .threads = rank.threads,
                                     .profile_steps = options.profile_steps,
                                     .profile_ended = options.profile_ended,
                                     .decode = options.decode,
                                     .remark = options.remark,
                                     .warming_up = options.warming_up});
  }
  const std::string& name = options.backend;
  if (name == "cpu") return MakeHostBackend(rank.threads);
  if (name == "reference") return kernels::MakeReferenceBackend();
  return absl::InvalidArgumentError(
      absl::StrCat("unknown back end '", name, "'; there are: cpu, reference"));
}

absl::StatusOr<ModelShard> LoadModelShard(const plan::Plan& plan, const plan::RankPlan& rank,
                                          const ModelShardOptions& options) {
  const std::string path = ResolveModelPath(plan.model_path, options.model_root);
  if (!std::filesystem::exists(path)) {
    return absl::NotFoundError(absl::StrCat(
        "there is no model '", path, "' (looked from ", std::filesystem::current_path().string(),
        "); put a copy there, or name the folder that holds it with --model-root"));
  }
  ModelShard shard;
  SKEIN_ASSIGN_OR_RETURN(shard.config, model::LoadModelConfig(path));
  SKEIN_ASSIGN_OR_RETURN(const std::unique_ptr<model::TensorSource> tensors,
                         model::OpenTensorSource(path));
  SKEIN_ASSIGN_OR_RETURN(const std::string identity, model::ComputeModelIdentity(path, *tensors));
  if (identity != plan.model_identity) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the model in '", path, "' is another one than the coordinator's: identity ", identity,
        ", planned was ", plan.model_identity, "; copy the coordinator's folder to this node"));
  }
  SKEIN_RETURN_IF_ERROR(plan::ValidatePlan(plan, shard.config));
  if (rank.device.kind == DeviceKind::kCuda) {
    SKEIN_RETURN_IF_ERROR(CheckGpuMemory(plan, rank, shard.config, options.gpu));
  }
  SKEIN_ASSIGN_OR_RETURN(shard.backend, MakeBackend(rank, options));
  if (options.wrap_backend) shard.backend = options.wrap_backend(std::move(shard.backend));
  SKEIN_ASSIGN_OR_RETURN(shard.program,
                         plan::BuildRankProgram(shard.config, tensors.get(),
                                                {.tp_size = plan.layout.tp_size,
                                                 .tp_rank = rank.tp_rank,
                                                 .ep_size = plan.layout.ep_size,
                                                 .layers = rank.layers,
                                                 .context_length = plan.context_length,
                                                 .page_size = plan.page_size,
                                                 .pages = plan.pages,
                                                 .kv_dtype = plan.kv_dtype,
                                                 .hop_dtype = plan.hop_dtype,
                                                 .activations = kernels::ActivationDType(
                                                     rank.device.kind, shard.config.dtype),
                                                 .deterministic = plan.deterministic,
                                                 .exact = plan.exact}));
  SKEIN_ASSIGN_OR_RETURN(shard.weights,
                         LoadShard(*tensors, shard.program, *shard.backend,
                                   {.threads = rank.threads, .progress = options.progress}));
  SKEIN_ASSIGN_OR_RETURN(shard.kv, shard.backend->AllocateKv(shard.program.kv));
  if (plan.swap_pages > 0) {
    kernels::KvSpec swap = shard.program.kv;
    swap.pages = plan.swap_pages;
    SKEIN_ASSIGN_OR_RETURN(shard.swap, shard.backend->AllocateSwap(swap));
    SKEIN_ASSIGN_OR_RETURN(shard.swap_pages_per_s, MeasureSwap(*shard.kv, *shard.swap));
  }
  SKEIN_ASSIGN_OR_RETURN(
      shard.executable,
      shard.backend->Compile(
          shard.program.program,
          {.rows = plan.max_micro_batch_rows,
           .outputs = plan::MaxOutputs(plan.max_num_seqs, plan.max_micro_batch_rows),
           .slots = plan.max_num_seqs,
           .slot_pages = (plan.context_length + plan.page_size - 1) / plan.page_size},
          {.weights = shard.weights.weights.get(),
           .kv = shard.kv.get(),
           .swap = shard.swap.get(),
           .collectives = options.collectives}));
  return shard;
}

}  // namespace skein::worker
