// A model that one rank holds as a whole, driven without a scheduler.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/device_kind.h"
#include "kernels/ops/backend.h"
#include "model/config/model_config.h"
#include "model/format/tensor_source.h"
#include "parallel/program/rank_program.h"
#include "worker/bench/bench.h"
#include "worker/engine/stage.h"
#include "worker/loader/shard_loader.h"

namespace skein::worker {

// The work that one step is held against.
struct StepCost {
  int64_t weight_bytes = 0;     // read once a step, however many rows it has
  double flops_per_row = 0;     // of products over every row
  double flops_per_output = 0;  // of the output matrix, over rows with logits
};

// Sequence s of the batch has slot s and pages of its own.
class BenchModel {
 public:
  // Opens options.model and loads it. `progress` gets a line that replaces the one before.
  static absl::StatusOr<std::unique_ptr<BenchModel>> Load(
      const BenchOptions& options, int threads, DeviceKind device,
      std::unique_ptr<kernels::Backend> backend,
      const std::function<void(const std::string&)>& progress);

  Stage& stage() { return *stage_; }
  const StepCost& cost() const { return cost_; }
  const model::ModelConfig& config() const { return config_; }
  // Of a position's keys and values, in all layers.
  int64_t BytesPerPosition() const;

  // Starts a sequence and computes its prompt.
  StepOrder PrefillOrder(int32_t slot) const;
  // The next token of all sequences; each is given its newest one.
  StepOrder DecodeOrder() const;
  // From the oldest step's begin to its end.
  absl::StatusOr<absl::Duration> TimeStep(const StepOrder& order);
  // Waits for the oldest step; its error, or a draw's.
  absl::Status Finish();

 private:
  BenchModel(const BenchOptions& options, DeviceKind device) : options_(options), device_(device) {}
  absl::Status Open();
  absl::Status Load(int threads, const std::function<void(const std::string&)>& progress);

  const BenchOptions options_;
  const DeviceKind device_;
  model::ModelConfig config_;
  std::unique_ptr<model::TensorSource> tensors_;
  std::unique_ptr<kernels::Backend> backend_;
  plan::RankProgram program_;
  LoadedShard shard_;
  std::unique_ptr<kernels::KvCache> kv_;
  std::unique_ptr<kernels::Executable> executable_;
  std::unique_ptr<Stage> stage_;
  StepCost cost_;
  int64_t pages_per_sequence_ = 0;
};

}  // namespace skein::worker
