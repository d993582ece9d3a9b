// A whole layer and the output head, on a GPU and on the reference: the same Programs, batches and
// roundings.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <numeric>
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

struct LayerShape {
  int64_t vocabulary = kVocabulary;
  int64_t columns = kColumns;  // of logits: the vocabulary and more, 8 blocks
  int64_t hidden = kHidden;
  int64_t ffn = kFfn;
  int32_t heads = kHeads;
  int32_t kv_heads = kKvHeads;
  int32_t head_dim = kHeadDim;
  int64_t page_size = 16;
  int64_t pages = 64;
  Limits limits = {.rows = 300, .outputs = 64, .slots = 40, .slot_pages = 32};
  KvDType kv_dtype = KvDType::kBF16;
  DType dtype = DType::kBF16;  // of weights and activations
  bool exact = false;          // activations of F32 instead, as no GPU has them
  float embedded = 1.7f;       // embeddings are so large
  float last_gain = 2;         // gains of the last norm, at most
  int32_t window = 0;          // of the second layer
  double sharpness = 1;        // what attention multiplies its usual scores by
  bool biases = false;         // of every product
  bool qk_norms = false;       // of query and key heads
  bool tied = true;            // the output's matrix is the embedding, where there is one shard
  // Each has its part of the logits, and all of the rest; or, where layers are split, its heads and
  // its part of the embedding and of the MLP, too.
  int32_t shard = 0;
  int32_t shards = 1;
  bool split = false;
  bool deterministic = false;
};

class Layer {
 public:
  explicit Layer(std::unique_ptr<Backend> backend, Collectives* collectives = nullptr,
                 KvDType kv_dtype = KvDType::kBF16, DType dtype = DType::kBF16, int32_t window = 0,
                 int32_t shard = 0, int32_t shards = 1, bool deterministic = false)
      : Layer(std::move(backend),
              LayerShape{.kv_dtype = kv_dtype,
                         .dtype = dtype,
                         .window = window,
                         .shard = shard,
                         .shards = shards,
                         .deterministic = deterministic},
              collectives) {}
  Layer(std::unique_ptr<Backend> backend, const LayerShape& of, Collectives* collectives = nullptr)
      : backend_(std::move(backend)), of_(of) {
    p_.kv_spec = {.layers = 2,
                  .kv_heads = of.kv_heads,
                  .head_dim = of.head_dim,
                  .page_size = of.page_size,
                  .pages = of.pages,
                  .dtype = of.kv_dtype};
    p_.limits = of.limits;
    const int32_t parts = of.split ? of.shards : 1;
    const int32_t heads = of.heads / parts;
    const int32_t kv_heads = of.kv_heads / parts;
    p_.kv_spec.kv_heads = kv_heads;
    const int64_t ffn = of.ffn / parts;
    const int64_t qkv_cols = int64_t{heads + 2 * kv_heads} * of.head_dim;
    const int64_t attended_cols = int64_t{heads} * of.head_dim;
    const auto scale =
        static_cast<float>(of.sharpness / std::sqrt(static_cast<double>(of.head_dim)));
    const BufferId residual = Buffer(of.hidden);
    const BufferId normed = Buffer(of.hidden);
    const BufferId delta = Buffer(of.hidden);
    const BufferId qkv = Buffer(qkv_cols);
    const BufferId attended = Buffer(attended_cols);
    const BufferId gate_up = Buffer(2 * ffn);
    const BufferId activation = Buffer(ffn);
    const BufferId last = Buffer(of.hidden, BufferSpec::Rows::kOutputs);
    const BufferId logits = p_.AddBuffer(of.columns / of.shards, BufferSpec::Rows::kOutputs);
    const WeightId table =
        of.split ? Head(of.shard, of.shards) : Weight(1, of.columns, of.hidden, of.embedded);
    const WeightId frequencies = p_.AddVector(Frequencies());
    const int64_t rows = of.columns / parts;
    const int64_t first_id = of.split ? of.shard * rows : 0;
    p_.Add(EmbedOp{table, first_id, std::min(rows, of.vocabulary - first_id), residual});
    const auto sum = [&](BufferId id) {
      if (of.split) p_.Add(AllReduceOp{id});
    };
    sum(residual);
    // parts: of which a shard has its part each; none: it has all.
    const auto bias = [&](BufferId id, uint32_t seed, const std::vector<int64_t>& parts) {
      if (!of.biases) return;
      const int64_t cols = p_.program.buffers[id].cols;
      const int64_t all = std::accumulate(parts.begin(), parts.end(), int64_t{0});
      p_.Add(AddBiasOp{id, p_.AddVector(parts.empty() ? RandomFloats(seed, cols)
                                                      : Own(RandomFloats(seed, all), 1, parts))});
    };
    for (int32_t layer = 0; layer < 2; ++layer) {
      const uint32_t seed = 10 * (1 + layer);
      const WeightId gain = p_.AddVector(RandomFloats(seed, of.hidden, 2));
      if (layer == 0) {
        p_.Add(RmsNormOp{residual, gain, kEps, normed});
      } else {
        p_.Add(AddRmsNormOp{residual, delta, gain, kEps, normed});
      }
      p_.Add(MatMulOp{
          normed,
          RowsOf(seed + 1, of.hidden,
                 {of.heads * of.head_dim, of.kv_heads * of.head_dim, of.kv_heads * of.head_dim}),
          qkv});
      const std::vector<int64_t> qkv_parts = {of.heads * of.head_dim, of.kv_heads * of.head_dim,
                                              of.kv_heads * of.head_dim};
      bias(qkv, seed + 6, qkv_parts);
      if (of.qk_norms) {
        const WeightId q_gain = p_.AddVector(RandomFloats(seed + 7, of.head_dim, 2));
        p_.Add(QkNormOp{qkv, heads, kv_heads, of.head_dim, q_gain,
                        p_.AddVector(RandomFloats(seed + 8, of.head_dim, 2)), kEps});
      }
      p_.Add(RopeAppendKvOp{qkv, heads, kv_heads, of.head_dim, frequencies, layer});
      // Layers may differ in what they see.
      p_.Add(AttentionOp{qkv, heads, kv_heads, of.head_dim, scale, layer, attended,
                         layer == 0 ? 0 : of.window});
      p_.Add(MatMulOp{attended, ColsOf(seed + 2, of.hidden, of.heads * of.head_dim), delta});
      sum(delta);
      bias(delta, seed + 9, {});
      p_.Add(AddRmsNormOp{residual, delta, p_.AddVector(RandomFloats(seed + 3, of.hidden, 2)), kEps,
                          normed});
      p_.Add(MatMulOp{normed, RowsOf(seed + 4, of.hidden, {of.ffn, of.ffn}), gate_up});
      bias(gate_up, seed + 50, {of.ffn, of.ffn});
      p_.Add(GluOp{gate_up, activation});
      p_.Add(MatMulOp{activation, ColsOf(seed + 5, of.hidden, of.ffn), delta});
      sum(delta);
      bias(delta, seed + 51, {});
    }
    p_.Add(AddOp{residual, delta, residual});
    p_.Add(GatherRowsOp{residual, last});
    const WeightId gain = p_.AddVector(RandomFloats(5, of.hidden, of.last_gain));
    p_.Add(RmsNormOp{last, gain, kEps, last});
    p_.program.pooled = {residual, gain, kEps};
    WeightId head = table;
    if (of.split) {
      // As they have the embedding.
    } else if (of.shards > 1) {
      head = Head(of.shard, of.shards);
    } else if (!of.tied) {
      head = Weight(6, of.columns, of.hidden, 1.7f);
    }
    p_.Add(MatMulOp{last, head, logits});
    if (of.biases) {
      const std::vector<float> all = RandomFloats(7, of.columns);
      const auto first = all.begin() + of.shard * (of.columns / of.shards);
      p_.Add(AddBiasOp{logits, p_.AddVector({first, first + of.columns / of.shards})});
    }
    p_.program.logits = logits;
    p_.program.deterministic = of.deterministic;
    p_.program.vocab_size = of.vocabulary;
    const int32_t blocks = kVocabularyBlocks / of.shards;
    p_.program.vocab_part = {.first = of.shard * (of.columns / of.shards),
                             .block = of.columns / kVocabularyBlocks,
                             .blocks = blocks};
    p_.program.vocab_shards = of.shards;
    if (of.shards > 1) p_.collectives = collectives;
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
  const LayerShape& shape() const { return of_; }

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
    p_.program.buffers[id].dtype = of_.exact ? DType::kF32 : of_.dtype;
    return id;
  }
  WeightId Weight(uint32_t seed, int64_t rows, int64_t cols, float scale = 1) {
    std::vector<float> values = Matrix(seed, rows, cols);
    for (float& value : values) value *= scale;
    return p_.AddWeight({.rows = rows, .cols = cols, .dtype = of_.dtype}, std::move(values));
  }
  // This shard's rows of each of the parts that a matrix has of rows, or all of them.
  WeightId RowsOf(uint32_t seed, int64_t cols, const std::vector<int64_t>& parts) {
    const int64_t rows = std::accumulate(parts.begin(), parts.end(), int64_t{0});
    if (!of_.split) return Weight(seed, rows, cols);
    return p_.AddWeight({.rows = rows / of_.shards, .cols = cols, .dtype = of_.dtype},
                        Own(Matrix(seed, rows, cols), cols, parts));
  }
  // Likewise of such a matrix's values.
  std::vector<float> Own(std::vector<float> all, int64_t cols,
                         const std::vector<int64_t>& parts) const {
    if (!of_.split) return all;
    std::vector<float> own;
    auto at = all.begin();
    for (const int64_t part : parts) {
      const int64_t count = part / of_.shards * cols;
      own.insert(own.end(), at + of_.shard * count, at + (of_.shard + 1) * count);
      at += part * cols;
    }
    return own;
  }
  // Likewise its columns.
  WeightId ColsOf(uint32_t seed, int64_t rows, int64_t cols) {
    if (!of_.split) return Weight(seed, rows, cols);
    const std::vector<float> all = Matrix(seed, rows, cols);
    const int64_t count = cols / of_.shards;
    std::vector<float> own;
    for (int64_t row = 0; row < rows; ++row) {
      const auto begin = all.begin() + row * cols + of_.shard * count;
      own.insert(own.end(), begin, begin + count);
    }
    return p_.AddWeight({.rows = rows, .cols = count, .dtype = of_.dtype}, std::move(own));
  }
  // A shard's rows of the embedding.
  WeightId Head(int32_t shard, int32_t shards) {
    const int64_t rows = of_.columns / shards;
    std::vector<float> values = Matrix(1, of_.columns, of_.hidden);
    values.erase(values.begin(), values.begin() + shard * rows * of_.hidden);
    values.resize(rows * of_.hidden);
    for (float& value : values) value *= of_.embedded;
    return p_.AddWeight({.rows = rows, .cols = of_.hidden, .dtype = of_.dtype}, std::move(values));
  }
  std::vector<float> Frequencies() const {
    std::vector<float> frequencies;
    for (int i = 0; i < of_.head_dim / 2; ++i) {
      frequencies.push_back(static_cast<float>(std::pow(10000.0, -2.0 * i / of_.head_dim)));
    }
    return frequencies;
  }

  const std::unique_ptr<Backend> backend_;
  const LayerShape of_;
  std::unique_ptr<KvCache> swap_;
  TestProgram p_;
};

// Of the batch that ran last on both. Logits pass some 20 roundings to 8 bits, whose errors of 2^-9
// add up as a random walk's; they are about 1.7 times 1. `finer`: how many times more numbers the
// dtype has, 8 of F16.
inline void CompareLogits(Layer& gpu, Layer& reference, int64_t rows, double finer = 1) {
  const std::vector<float> ours = gpu.Logits(rows);
  const std::vector<float> theirs = reference.Logits(rows);
  const int64_t columns = gpu.shape().columns;
  const int64_t vocabulary = gpu.shape().vocabulary;
  double squares = 0, errors = 0, worst = 0;
  for (int64_t i = 0; i < rows * columns; ++i) {
    if (i % columns >= vocabulary) continue;
    ASSERT_TRUE(std::isfinite(ours[i])) << "row " << i / columns;
    const double error = double{ours[i]} - double{theirs[i]};
    squares += double{theirs[i]} * double{theirs[i]};
    errors += error * error;
    worst = std::max(worst, std::abs(error));
  }
  const double scale = std::sqrt(squares / static_cast<double>(rows * vocabulary));
  EXPECT_GT(scale, 0.1);
  EXPECT_LT(std::sqrt(errors / squares), 0.02 / finer) << "relative error of all logits";
  EXPECT_LT(worst, 0.15 * scale / finer);
}

// How far logits are from those of activations that nothing rounds.
struct Distance {
  double errors = 0, squares = 0;

  void Add(double logit, double exact) {
    errors += (logit - exact) * (logit - exact);
    squares += exact * exact;
  }
  void Add(const std::vector<float>& logits, const std::vector<float>& exact) {
    ASSERT_EQ(logits.size(), exact.size());
    for (size_t i = 0; i < logits.size(); ++i) Add(logits[i], exact[i]);
  }
  void Add(const Distance& other) {
    errors += other.errors;
    squares += other.squares;
  }
  double relative() const { return std::sqrt(errors / squares); }
};
// The same model without roundings, but for those of an int8 cache.
inline LayerShape Exact(LayerShape shape) {
  shape.exact = true;
  if (shape.kv_dtype != KvDType::kInt8) shape.kv_dtype = KvDType::kF32;
  return shape;
}

class CudaBackendTest : public testing::Test {
 protected:
  void SetUp() override {
    SKEIN_NEED_GPU();
    gpu_ = std::make_unique<Layer>(*MakeCudaBackend({.decode = DecodeForm::kGraph}));
    reference_ = std::make_unique<Layer>(MakeReferenceBackend());
  }

  // Runs the batch on both and compares the logits of its outputs.
  void RunAndCompare(const Batch& batch, double finer = 1) {
    SKEIN_ASSERT_OK(gpu_->Run(batch));
    SKEIN_ASSERT_OK(reference_->Run(batch));
    CompareLogits(*gpu_, *reference_, batch.outputs(), finer);
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
