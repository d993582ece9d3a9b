// A whole model on this host's CPUs, one sequence after the other, for what is computed of its
// logits.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/ops/backend.h"
#include "model/config/model_config.h"
#include "parallel/program/rank_program.h"
#include "worker/loader/shard_loader.h"

namespace skein::worker {

struct HostModelOptions {
  std::string model;  // a folder or a GGUF file
  int threads = 1;
  int64_t context = 512;    // the longest sequence, tokens
  int64_t step_rows = 128;  // computed at once; their logits take memory
  kernels::KvDType kv_dtype = kernels::KvDType::kF32;
  bool exact = false;  // kernels::Program's
};

// One thread uses it.
class HostModel {
 public:
  // Loads the model, with progress on a terminal. Errors name the model; InvalidArgument: it was
  // made for shorter contexts.
  static absl::StatusOr<std::unique_ptr<HostModel>> Load(const HostModelOptions& options);

  const model::ModelConfig& config() const { return config_; }
  const plan::RankProgram& program() const { return program_; }
  const std::string& path() const { return options_.model; }
  int64_t step_rows() const { return options_.step_rows; }

  // What follows sees its inputs; null: nobody does.
  void Observe(kernels::ProductObserver* observer) { observer_.to = observer; }

  // The next step's tokens are the first of a new sequence.
  void BeginSequence() { begins_ = true; }

  // Logits of some rows; valid until the next step.
  class Logits {
   public:
    Logits(const float* data, int64_t stride, int64_t vocab)
        : data_(data), stride_(stride), vocab_(vocab) {}
    absl::Span<const float> row(int64_t i) const {
      return {data_ + i * stride_, static_cast<size_t>(vocab_)};
    }

   private:
    const float* data_;
    int64_t stride_;
    int64_t vocab_;
  };
  // Computes the sequence's next tokens, at most step_rows; the logits of the last `outputs`.
  absl::StatusOr<Logits> Step(absl::Span<const int32_t> tokens, int64_t outputs);

 private:
  // The executable's, which lasts; whoever asks comes and goes.
  struct Forward final : kernels::ProductObserver {
    void Multiplied(kernels::WeightId weight, const float* in, int64_t rows) override {
      if (to != nullptr) to->Multiplied(weight, in, rows);
    }
    kernels::ProductObserver* to = nullptr;
  };

  explicit HostModel(const HostModelOptions& options) : options_(options) {}
  absl::Status Load();

  const HostModelOptions options_;
  model::ModelConfig config_;
  std::unique_ptr<kernels::Backend> backend_;
  plan::RankProgram program_;
  LoadedShard shard_;
  std::unique_ptr<kernels::KvCache> kv_;
  Forward observer_;
  std::unique_ptr<kernels::Executable> executable_;
  bool begins_ = true;
};

}  // namespace skein::worker
