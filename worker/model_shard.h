// A rank's part of a model, loaded and ready to compute.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/ops/backend.h"
#include "model/config/model_config.h"
#include "parallel/plan/plan.h"
#include "parallel/program/rank_program.h"
#include "worker/loader/shard_loader.h"

namespace skein::worker {

struct ModelShard {
  model::ModelConfig config;
  std::unique_ptr<kernels::Backend> backend;
  plan::RankProgram program;
  LoadedShard weights;
  std::unique_ptr<kernels::KvCache> kv;
  // Where pages of sequences that gave way are kept, plan.swap_pages of them; null when there are
  // none.
  std::unique_ptr<kernels::KvCache> swap;
  double swap_pages_per_s = 0;  // one way, as measured; 0 without `swap`
  std::unique_ptr<kernels::Executable> executable;
};

struct ModelShardOptions {
  std::string model_root;       // see RankOptions
  std::string backend = "cpu";  // on CPUs: "cpu" or "reference"
  int gpu = 0;                  // on GPUs: CUDA's number
  // On GPUs; kernels::CudaOptions.
  kernels::DecodeForm decode = kernels::DecodeForm::kAuto;
  int profile_steps = 0;
  std::function<void()> profile_ended;
  std::function<void(std::string_view)> remark;
  std::function<void(std::string_view)> warming_up;
  // See RankOptions; may be null.
  std::function<std::unique_ptr<kernels::Backend>(std::unique_ptr<kernels::Backend>)> wrap_backend;
  kernels::Collectives* collectives = nullptr;                            // see kernels::Bindings
  std::function<void(int64_t done_bytes, int64_t total_bytes)> progress;  // may be null
};

// Where this node has the model: the plan's path, or the folder of the same name under
// `model_root`.
std::string ResolveModelPath(std::string_view plan_path, std::string_view model_root);

// Opens the model, checks that it is the one that was planned, and loads the rank's slices.
// NotFound and FailedPrecondition name the path and what to do. ResourceExhausted, before anything
// is loaded, where a GPU's memory has gone to another process since it was planned with.
absl::StatusOr<ModelShard> LoadModelShard(const plan::Plan& plan, const plan::RankPlan& rank,
                                          const ModelShardOptions& options);

// For the device that the rank was planned on.
absl::StatusOr<std::unique_ptr<kernels::Backend>> MakeBackend(const plan::RankPlan& rank,
                                                              const ModelShardOptions& options);

}  // namespace skein::worker
