// A whole layer and the output head, on a GPU and on the reference: the same Programs, batches and
// roundings.
#pragma once

#include <cuda_runtime_api.h>

#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "base/dtype.h"
#include "base/test_util.h"
#include "gtest/gtest.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/device_testing.h"
#include "kernels/reference/reference_backend.h"
#include "kernels/sampling/sampling.h"
#include "kernels/testing/harness.h"

namespace skein::kernels {
inline constexpr int64_t kVocabulary = 500;
inline constexpr int64_t kColumns = 512;  // 8 blocks of 64
inline constexpr int64_t kHidden = 256;
inline constexpr int64_t kFfn = 2048;  // gates and ups are 32 tiles: 5 to 32 rows go by stream-K
inline constexpr int32_t kHeads = 4;
inline constexpr int32_t kKvHeads = 2;
inline constexpr int32_t kHeadDim = 64;
inline constexpr float kEps = 1e-5f;

// Of a product's outputs about 1, whatever its inner dimension.
inline std::vector<float> Matrix(uint32_t seed, int64_t rows, int64_t cols) {
  return RandomFloats(seed, rows * cols, std::sqrt(3.0f / static_cast<float>(cols)));
}

class Layer {
 public:
  // Of several shards each has its part of the logits, and all of the rest.
  explicit Layer(std::unique_ptr<Backend> backend, Collectives* collectives = nullptr,
                 KvDType kv_dtype = KvDType::kBF16, DType dtype = DType::kBF16, int32_t window = 0,
                 int32_t shard = 0, int32_t shards = 1, bool deterministic = false)
      : backend_(std::move(backend)), dtype_(dtype) {
    p_.kv_spec = {.layers = 2,
                  .kv_heads = kKvHeads,
                  .head_dim = kHeadDim,
                  .page_size = 16,
                  .pages = 64,
                  .dtype = kv_dtype};
    p_.limits = {.rows = 300, .outputs = 64, .slots = 40, .slot_pages = 32};
    const BufferId residual = Buffer(kHidden);
    const BufferId normed = Buffer(kHidden);
    const BufferId delta = Buffer(kHidden);
    const BufferId qkv = Buffer((kHeads + 2 * kKvHeads) * kHeadDim);
    const BufferId attended = Buffer(kHeads * kHeadDim);
    const BufferId gate_up = Buffer(2 * kFfn);
    const BufferId activation = Buffer(kFfn);
    const BufferId last = Buffer(kHidden, BufferSpec::Rows::kOutputs);
    const BufferId logits = p_.AddBuffer(kColumns / shards, BufferSpec::Rows::kOutputs);
    const WeightId table = Weight(1, kColumns, kHidden, 1.7f);
    const WeightId frequencies = p_.AddVector(Frequencies());
    p_.Add(EmbedOp{table, 0, kVocabulary, residual});
    for (int32_t layer = 0; layer < 2; ++layer) {
      const uint32_t seed = 10 * (1 + layer);
      const WeightId gain = p_.AddVector(RandomFloats(seed, kHidden, 2));
      if (layer == 0) {
        p_.Add(RmsNormOp{residual, gain, kEps, normed});
      } else {
        p_.Add(AddRmsNormOp{residual, delta, gain, kEps, normed});
      }
      p_.Add(MatMulOp{normed, Weight(seed + 1, (kHeads + 2 * kKvHeads) * kHeadDim, kHidden), qkv});
      p_.Add(RopeAppendKvOp{qkv, kHeads, kKvHeads, kHeadDim, frequencies, layer});
      // Layers may differ in what they see.
      p_.Add(AttentionOp{qkv, kHeads, kKvHeads, kHeadDim, 0.125f, layer, attended,
                         layer == 0 ? 0 : window});
      p_.Add(MatMulOp{attended, Weight(seed + 2, kHidden, kHeads * kHeadDim), delta});
      p_.Add(AddRmsNormOp{residual, delta, p_.AddVector(RandomFloats(seed + 3, kHidden, 2)), kEps,
                          normed});
      p_.Add(MatMulOp{normed, Weight(seed + 4, 2 * kFfn, kHidden), gate_up});
      p_.Add(SwiGluOp{gate_up, activation});
      p_.Add(MatMulOp{activation, Weight(seed + 5, kHidden, kFfn), delta});
    }
    p_.Add(AddOp{residual, delta, residual});
    p_.Add(GatherRowsOp{residual, last});
    p_.Add(RmsNormOp{last, p_.AddVector(RandomFloats(5, kHidden, 2)), kEps, last});
    p_.Add(MatMulOp{last, shards == 1 ? table : Head(shard, shards), logits});
    p_.program.logits = logits;
    p_.program.deterministic = deterministic;
    p_.program.vocab_size = kVocabulary;
    const int32_t blocks = kVocabularyBlocks / shards;
    p_.program.vocab_part = {.first = shard * (kColumns / shards),
                             .block = kColumns / kVocabularyBlocks,
                             .blocks = blocks};
    p_.program.vocab_shards = shards;
    if (shards > 1) p_.collectives = collectives;
    p_.Bind(*backend_);
    KvSpec swap = p_.kv_spec;
    swap.pages = 4;
    swap_ = *backend_->AllocateSwap(swap);
    p_.executable = *backend_->Compile(p_.program, p_.limits,
                                       {.weights = p_.weights.get(),
                                        .kv = p_.kv.get(),
                                        .swap = swap_.get(),
                                        .collectives = collectives});
    SKEIN_EXPECT_OK(p_.executable->WarmUp());
  }

  Executable& executable() { return *p_.executable; }

  absl::Status Run(const Batch& batch, int i = 0) {
    executable().batch(i) = batch;
    const absl::StatusOr<Ticket> ticket = executable().Enqueue(i);
    if (!ticket.ok()) return ticket.status();
    return executable().Wait(*ticket, kHostStream, absl::InfiniteFuture()).status();
  }
  // Of the batch that ran last.
  std::vector<float> Logits(int64_t rows) {
    const View view = executable().port(p_.program.logits, 0).First(rows);
    std::vector<float> logits(view.elements());
    if (backend_->name() == "cuda") {
      EXPECT_EQ(cudaMemcpy(logits.data(), view.data, static_cast<size_t>(view.bytes()),
                           cudaMemcpyDeviceToHost),
                cudaSuccess);
    } else {
      const auto* const from = static_cast<const float*>(view.data);
      logits.assign(from, from + view.elements());
    }
    return logits;
  }

 private:
  BufferId Buffer(int64_t cols, BufferSpec::Rows rows = BufferSpec::Rows::kTokens) {
    const BufferId id = p_.AddBuffer(cols, rows);
    p_.program.buffers[id].port = false;
    p_.program.buffers[id].dtype = dtype_;
    return id;
  }
  WeightId Weight(uint32_t seed, int64_t rows, int64_t cols, float scale = 1) {
    std::vector<float> values = Matrix(seed, rows, cols);
    for (float& value : values) value *= scale;
    return p_.AddWeight({.rows = rows, .cols = cols, .dtype = dtype_}, std::move(values));
  }
  // A shard's rows of the embedding.
  WeightId Head(int32_t shard, int32_t shards) {
    const int64_t rows = kColumns / shards;
    std::vector<float> values = Matrix(1, kColumns, kHidden);
    values.erase(values.begin(), values.begin() + shard * rows * kHidden);
    values.resize(rows * kHidden);
    for (float& value : values) value *= 1.7f;
    return p_.AddWeight({.rows = rows, .cols = kHidden, .dtype = dtype_}, std::move(values));
  }
  static std::vector<float> Frequencies() {
    std::vector<float> frequencies;
    for (int i = 0; i < kHeadDim / 2; ++i) {
      frequencies.push_back(static_cast<float>(std::pow(10000.0, -2.0 * i / kHeadDim)));
    }
    return frequencies;
  }

  const std::unique_ptr<Backend> backend_;
  const DType dtype_;  // of weights and activations
  std::unique_ptr<KvCache> swap_;
  TestProgram p_;
};

class CudaBackendTest : public testing::Test {
 protected:
  void SetUp() override {
    SKEIN_NEED_GPU();
    gpu_ = std::make_unique<Layer>(*MakeCudaBackend({}));
    reference_ = std::make_unique<Layer>(MakeReferenceBackend());
  }

  // Runs the batch on both and compares the logits of its outputs. They pass some 20 roundings to
  // 8 bits, whose errors of 2^-9 add up as a random walk's; logits are about 1.7 times 1. `finer`:
  // how many times more numbers the dtype has, 8 of F16.
  void RunAndCompare(const Batch& batch, double finer = 1) {
    SKEIN_ASSERT_OK(gpu_->Run(batch));
    SKEIN_ASSERT_OK(reference_->Run(batch));
    const int64_t rows = batch.outputs();
    const std::vector<float> ours = gpu_->Logits(rows);
    const std::vector<float> theirs = reference_->Logits(rows);
    double squares = 0, errors = 0, worst = 0;
    for (int64_t i = 0; i < rows * kColumns; ++i) {
      if (i % kColumns >= kVocabulary) continue;
      ASSERT_TRUE(std::isfinite(ours[i])) << "row " << i / kColumns;
      const double error = double{ours[i]} - double{theirs[i]};
      squares += double{theirs[i]} * double{theirs[i]};
      errors += error * error;
      worst = std::max(worst, std::abs(error));
    }
    const double scale = std::sqrt(squares / static_cast<double>(rows * kVocabulary));
    EXPECT_GT(scale, 0.1);
    EXPECT_LT(std::sqrt(errors / squares), 0.02 / finer) << "relative error of all logits";
    EXPECT_LT(worst, 0.15 * scale / finer);
  }

 public:
  static Batch Start(int32_t slot, int32_t rows, int32_t first_page,
                     const serving::SamplingParams& sampling = {.temperature = 0}) {
    Batch batch;
    std::vector<int32_t> prompt, pages;
    for (int32_t i = 0; i < rows; ++i) prompt.push_back((slot * 37 + i * 11 + 3) % kVocabulary);
    for (int32_t p = 0; p <= rows / 16; ++p) pages.push_back((first_page + p * 7) % 64);
    batch.starts.push_back({.slot = slot, .prompt = prompt, .sampling = sampling});
    batch.updates.push_back({.slot = slot, .pages = pages});
    batch.sequences.push_back({.slot = slot, .rows = rows, .outputs = 1, .draws = true});
    batch.token_ids = prompt;
    return batch;
  }
  static void Join(Batch& batch, const Batch& other) {
    const auto append = [](auto& to, const auto& from) {
      to.insert(to.end(), from.begin(), from.end());
    };
    append(batch.starts, other.starts);
    append(batch.updates, other.updates);
    append(batch.sequences, other.sequences);
    append(batch.token_ids, other.token_ids);
  }
  static Batch Decode(const std::vector<int32_t>& slots, int32_t token) {
    Batch batch;
    for (int32_t slot : slots) {
      batch.sequences.push_back({.slot = slot, .outputs = 1, .draws = true});
      batch.token_ids.push_back(token == kNewestToken ? token : (token + slot) % kVocabulary);
    }
    return batch;
  }

 protected:
  std::unique_ptr<Layer> gpu_, reference_;
};

}  // namespace skein::kernels
