#include "parallel/planner/memory.h"

#include "base/test_util.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace skein::plan {
namespace {

// Sizes that packing does not pad: rows in whole tiles.
model::ModelConfig Model(bool tied) {
  model::ModelConfig model;
  model.architecture = "LlamaForCausalLM";
  model.vocab_size = 2048;
  model.hidden_size = 256;
  model.intermediate_size = 768;
  model.num_layers = 8;
  model.num_heads = 4;
  model.num_kv_heads = 2;
  model.head_dim = 64;
  model.max_position_embeddings = 1024;
  model.tie_word_embeddings = tied;
  model.dtype = DType::kBF16;
  return model;
}

ReplicaLimits Limits(int32_t tp_size) {
  return {.tp_size = tp_size,
          .context_length = 1024,
          .max_num_seqs = 16,
          .max_micro_batch_rows = 256,
          .page_size = 16,
          .pages = 1024};
}

RankMemory Memory(const model::ModelConfig& model, int32_t tp_size, int32_t shard, Range layers) {
  return *MemoryOfRank(model, shard, layers, Limits(tp_size));
}

TEST(MemoryOfRank, WholeModelIsItsParameters) {
  for (const bool tied : {false, true}) {
    const model::ModelConfig model = Model(tied);
    const int64_t matrices =
        8 * (256 * (256 + 2 * 128) + 256 * 256 + 3 * 256 * 768) + (tied ? 1 : 2) * 2048 * 256;
    const int64_t vectors = (8 * 2 + 1) * 256 + 32;
    const RankMemory memory = Memory(model, 1, 0, {0, 8});
    EXPECT_EQ(memory.weight_bytes, matrices * 2 + vectors * 4) << "tied: " << tied;
    // Keys and values in F32 of 16 sequences, 1,024 tokens each.
    EXPECT_EQ(memory.kv_bytes, int64_t{8} * 2 * 64 * 2 * 4 * 16 * 1024);
    EXPECT_EQ(memory.swap_bytes, 0);
    EXPECT_EQ(memory.total(),
              memory.weight_bytes + memory.kv_bytes + memory.activation_bytes + kProcessBytes);
  }
}

TEST(MemoryOfRank, PagesFollowTheirDType) {
  struct Case {
    kernels::KvDType dtype;
    int64_t slot_bytes;  // of a key or a value of 64
  };
  for (const Case& c : {Case{kernels::KvDType::kF32, 256},
                        {kernels::KvDType::kBF16, 128},
                        {kernels::KvDType::kInt8, 64 + 4}}) {
    ReplicaLimits limits = Limits(1);
    limits.kv_dtype = c.dtype;
    limits.pages = 300;
    limits.swap_pages = 100;
    const model::ModelConfig model = Model(true);
    const RankMemory memory = *MemoryOfRank(model, 0, {0, 5}, limits);
    EXPECT_EQ(memory.page_bytes, 5 * 2 * 16 * 2 * c.slot_bytes);
    EXPECT_EQ(memory.kv_bytes, 300 * memory.page_bytes);
    EXPECT_EQ(memory.swap_bytes, 100 * memory.page_bytes);
    EXPECT_EQ(memory.total(), memory.weight_bytes + 400 * memory.page_bytes +
                                  memory.activation_bytes + kProcessBytes);
  }
}

TEST(MemoryOfRank, GpusComputeWithHalfTheBytes) {
  ReplicaLimits limits = Limits(1);
  limits.max_num_seqs = 4;
  const model::ModelConfig model = Model(true);
  SKEIN_ASSERT_OK_AND_ASSIGN(const RankMemory cpu, MemoryOfRank(model, 0, {0, 8}, limits));
  limits.device = DeviceKind::kCuda;
  limits.kv_dtype = kernels::KvDType::kBF16;
  SKEIN_ASSERT_OK_AND_ASSIGN(const RankMemory gpu, MemoryOfRank(model, 0, {0, 8}, limits));
  // Nothing of a GPU's pages and matrices is padded here, and of vectors the frequencies alone.
  EXPECT_EQ(gpu.page_bytes, 8 * model.num_kv_heads * 16 * 2 * model.head_dim * 2);
  EXPECT_EQ(gpu.weight_bytes, cpu.weight_bytes + 128);
  // Beside what cuBLAS and stream-K work in.
  EXPECT_LT(gpu.activation_bytes - (int64_t{38} << 20), cpu.activation_bytes);
  // Tables of pages are the device's.
  const int64_t before = gpu.activation_bytes;
  limits.context_length *= 8;
  SKEIN_ASSERT_OK_AND_ASSIGN(const RankMemory longer, MemoryOfRank(model, 0, {0, 8}, limits));
  EXPECT_GE(longer.activation_bytes - before, 4 * 7 * limits.context_pages() / 8 * 4);
}

TEST(MemoryOfRank, LogitsAreOfAMicroBatchAtMost) {
  ReplicaLimits limits = Limits(1);
  limits.max_micro_batch_rows = 40;
  limits.max_num_seqs = 64;
  const model::ModelConfig model = Model(true);
  const auto activations = [&] { return MemoryOfRank(model, 0, {0, 8}, limits)->activation_bytes; };
  const int64_t many = activations();
  // A row a sequence, and 16 for log probabilities of prompts.
  limits.max_num_seqs = 24;
  EXPECT_EQ(activations(), many);
  limits.max_num_seqs = 23;
  EXPECT_LT(activations(), many);
}

TEST(MemoryOfRank, ShardsShareMatricesAndRepeatVectors) {
  const model::ModelConfig model = Model(true);
  const RankMemory whole = Memory(model, 1, 0, {0, 8});
  const int64_t vectors = ((8 * 2 + 1) * 256 + 32) * 4;
  const RankMemory half = Memory(model, 2, 1, {0, 8});
  EXPECT_EQ(2 * (half.weight_bytes - vectors), whole.weight_bytes - vectors);
  EXPECT_EQ(2 * half.kv_bytes, whole.kv_bytes);
  // Four shards of two KV heads hold each of them twice.
  EXPECT_EQ(2 * Memory(model, 4, 3, {0, 8}).kv_bytes, whole.kv_bytes);
}

TEST(MemoryOfRank, FirstStageHoldsTheEmbeddingAndLastTheOutput) {
  const int64_t table = 2048 * 256 * 2;
  for (const bool tied : {false, true}) {
    const model::ModelConfig model = Model(tied);
    const RankMemory first = Memory(model, 1, 0, {0, 3});
    const RankMemory middle = Memory(model, 1, 0, {3, 6});
    const RankMemory last = Memory(model, 1, 0, {5, 8});
    EXPECT_EQ(first.weight_bytes, middle.weight_bytes + table);
    EXPECT_EQ(last.weight_bytes, middle.weight_bytes + table + 256 * 4);  // and the last norm
    EXPECT_EQ(first.kv_bytes, middle.kv_bytes);
    // Two batches' inputs, and outputs.
    const int64_t hop = 256 * 256 * 4;
    EXPECT_EQ(first.activation_bytes, middle.activation_bytes - hop);
    // 16 + 16 rows of logits, and the rows that give them, instead of outputs.
    EXPECT_EQ(last.activation_bytes, middle.activation_bytes + 32 * (256 + 2048) * 4 - 2 * hop);
  }
}

TEST(ReplicaLimits, GivesASequenceWholePages) {
  EXPECT_EQ((ReplicaLimits{1, 1024, 16, 256, 16}).context_pages(), 64);
  EXPECT_EQ((ReplicaLimits{1, 1025, 3, 256, 16}).context_pages(), 65);
  EXPECT_EQ((ReplicaLimits{1, 1, 2, 256, 16}).context_pages(), 1);
}

}  // namespace
}  // namespace skein::plan
