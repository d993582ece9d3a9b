// A rank's part of a model, driven without a scheduler.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kernels/ops/backend.h"
#include "model/config/model_config.h"
#include "model/format/tensor_source.h"
#include "parallel/program/rank_program.h"
#include "worker/bench/bench_device.h"
#include "worker/bench/bench_ranks.h"
#include "worker/engine/stage.h"
#include "worker/loader/shard_loader.h"

namespace skein::worker {

// The work that one step is held against.
struct StepCost {
  int64_t weight_bytes = 0;     // read once a step, however many rows it has
  double flops_per_row = 0;     // of products over every row
  double flops_per_output = 0;  // of the output matrix, over rows with logits
  // Of both, those of weights that multiply rows of bytes.
  double byte_ops_per_row = 0;
  double byte_ops_per_output = 0;
  double flops_per_pair = 0;  // of attention: a row, and a position that it attends to
  int64_t kv_bytes = 0;       // of a position's keys and values, in all layers

  void Add(const StepCost& other) {
    weight_bytes += other.weight_bytes;
    flops_per_row += other.flops_per_row;
    flops_per_output += other.flops_per_output;
    byte_ops_per_row += other.byte_ops_per_row;
    byte_ops_per_output += other.byte_ops_per_output;
    flops_per_pair += other.flops_per_pair;
    kv_bytes += other.kv_bytes;
  }
};

struct BenchModelOptions {
  std::string model;  // a folder, or synthetic:NAME
  // Random weights of this shape instead; matrices of a type of their own, where one is given.
  std::optional<model::ModelConfig> config;
  std::optional<DType> matrices;
  int32_t sequences = 1;       // at once
  int32_t most_rows = 1;       // of a step
  int32_t most_tokens = 1;     // of a sequence; of synthetic models, as many as asked for
  bool deterministic = false;  // kernels::Program's
  // Of the cache; none: as keys and values are computed.
  std::optional<kernels::KvDType> kv_dtype;
};

// Sequence s of the batch has slot s and pages of its own.
class BenchModel {
 public:
  // Opens the model, loads this rank's part and connects it. A call of all `ranks`, which make the
  // same calls from then on: each makes the orders for itself. `device` and `ranks` outlive it.
  // Errors that are the model's or the lengths' name their flags.
  static absl::StatusOr<std::unique_ptr<BenchModel>> Load(const BenchModelOptions& options,
                                                          BenchDevice& device, BenchRanks& ranks);

  Stage& stage() { return *stage_; }
  const StepCost& cost() const { return cost_; }  // of this rank's part
  int64_t bytes_loaded() const { return shard_.bytes_read + shard_.bytes_made; }
  // Whether the device made its matrices.
  bool made() const { return shard_.bytes_made > 0; }
  absl::Duration load_time() const { return shard_.time; }

  // Starts a sequence anew and computes a prompt of so many tokens.
  StepOrder PrefillOrder(int32_t slot, int32_t tokens);
  // Likewise, in steps of up to most_rows; waits for them.
  absl::Status Prefill(int32_t slot, int32_t tokens);
  // Starts the first `sequences` anew, each with a prompt of one token behind so many positions of
  // whatever its pages hold.
  StepOrder StartOrder(int32_t sequences, int64_t positions = 0);
  // Puts keys and values into all pages: memory that was never written may be read from a cache.
  absl::Status FillPages();
  // The next token of the first `sequences`, in a micro-batch for each stage; each sequence is
  // given its newest one.
  StepOrder DecodeOrder(int32_t sequences);
  // From the oldest step's begin to its end.
  absl::StatusOr<absl::Duration> TimeStep(const StepOrder& order);
  // Waits for the oldest step; its error, or a draw's.
  absl::Status Finish();

 private:
  BenchModel(const BenchModelOptions& options, BenchDevice& device, BenchRanks& ranks)
      : options_(options), device_(device), ranks_(ranks) {}
  absl::Status Open();
  absl::Status Load();

  const BenchModelOptions options_;
  BenchDevice& device_;
  BenchRanks& ranks_;
  model::ModelConfig config_;
  std::unique_ptr<model::TensorSource> tensors_;
  plan::RankProgram program_;
  LoadedShard shard_;
  std::unique_ptr<kernels::KvCache> kv_;
  std::unique_ptr<kernels::Executable> executable_;
  std::unique_ptr<Stage> stage_;
  StepCost cost_;
  int64_t pages_per_sequence_ = 0;
  int64_t orders_ = 0;
};

}  // namespace skein::worker
