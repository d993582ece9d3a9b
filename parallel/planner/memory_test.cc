#include "parallel/planner/memory.h"

#include <string>

#include "base/test_util.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "model/config/test_models.h"

namespace skein::plan {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Sizes that packing does not pad: rows in whole tiles.
model::ModelConfig Model(bool tied) {
  model::ModelConfig model = model::Bard();
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
  limits.kv_dtype = kernels::KvDType::kInt8;
  // A scale for each key and each value.
  EXPECT_EQ(MemoryOfRank(model, 0, {0, 8}, limits)->page_bytes,
            8 * model.num_kv_heads * 16 * 2 * (model.head_dim + 4));
  limits.kv_dtype = kernels::KvDType::kBF16;
  // Beside what cuBLAS and stream-K work in, and what steps of up to 16 rows by one kernel
  // exchange: twice a place for every vector, and parts of attention, 128 of a head (kv_heads < 8:
  // some more).
  const int64_t sum = model.hidden_size * 4 + model.hidden_size / 16 * 4;
  const int64_t attended = model.num_heads * model.head_dim;
  const int64_t qkv = attended + 2 * model.num_kv_heads * model.head_dim;
  const int64_t row = sum + 8 * ((qkv + attended + model.intermediate_size) * 2 + 2 * sum);
  const int64_t segments = (128 + model.num_kv_heads - 1) / model.num_kv_heads;
  const int64_t step = 16 * (2 * row + attended * 4 * segments * 8);
  EXPECT_LT(gpu.activation_bytes - (int64_t{38} << 20) - step, cpu.activation_bytes);
  EXPECT_GT(gpu.activation_bytes, (int64_t{37} << 20) + step);
  // Tables of pages are the device's.
  const int64_t before = gpu.activation_bytes;
  limits.context_length *= 8;
  SKEIN_ASSERT_OK_AND_ASSIGN(const RankMemory longer, MemoryOfRank(model, 0, {0, 8}, limits));
  EXPECT_GE(longer.activation_bytes - before, 4 * 7 * limits.context_pages() / 8 * 4);
}

TEST(MemoryOfRank, GpusHaveAContextAndGraphs) {
  ReplicaLimits limits = Limits(1);
  const model::ModelConfig model = Model(true);
  const RankMemory cpu = *MemoryOfRank(model, 0, {0, 8}, limits);
  EXPECT_EQ(cpu.context_bytes + cpu.graph_bytes, 0);
  limits.device = DeviceKind::kCuda;
  limits.kv_dtype = kernels::KvDType::kBF16;
  const auto memory = [&](Range layers) { return *MemoryOfRank(model, 0, layers, limits); };
  const RankMemory whole = memory({0, 8});
  EXPECT_EQ(whole.device_bytes(), whole.weight_bytes + whole.kv_bytes + whole.activation_bytes +
                                      whole.context_bytes + whole.graph_bytes);
  EXPECT_EQ(cpu.pinned_bytes, 0);
  EXPECT_EQ(whole.total(),
            whole.device_bytes() + whole.pinned_bytes + (int64_t{751} << 20) + kProcessBytes);
  // Of two of a host each has half of what they share.
  limits.ranks_of_host = 2;
  EXPECT_EQ(whole.process_bytes() - memory({0, 8}).process_bytes(), int64_t{40 + 6} << 20);
  EXPECT_EQ(memory({0, 8}).device_bytes(), whole.device_bytes());
  limits.ranks_of_host = 1;
  // Hundreds of MiB, whatever the model; with an H200 and driver 580 they are 524, and some.
  EXPECT_GE(whole.context_bytes, int64_t{524} << 20);
  EXPECT_LT(whole.context_bytes, int64_t{560} << 20);
  EXPECT_EQ(memory({4, 8}).context_bytes, whole.context_bytes);
  // A stage captures shorter ones, with or without logits, but for each of two inputs or outputs.
  EXPECT_NEAR(static_cast<double>(memory({0, 4}).graph_bytes),
              static_cast<double>(whole.graph_bytes), 10 * 4 * 2048);
  EXPECT_GT(memory({1, 8}).graph_bytes, whole.graph_bytes);
  EXPECT_LT(memory({6, 8}).graph_bytes, whole.graph_bytes);
  // 5 graphs of 16 sequences: of 1, 2, 4, 8 and 16 rows, each of some 10 kernels a layer.
  EXPECT_NEAR(static_cast<double>(whole.graph_bytes), 5 * 8 * 10 * 2048, 5 * 8 * 2048);
  limits.max_num_seqs = 24;
  EXPECT_EQ(5 * memory({0, 8}).graph_bytes, 6 * whole.graph_bytes);
}

// The figures are NCCL's as measured.
TEST(MemoryOfRank, GpusExchangeOverNcclOrByTheHostsMemory) {
  ReplicaLimits limits = Limits(2);
  limits.device = DeviceKind::kCuda;
  limits.kv_dtype = kernels::KvDType::kBF16;
  limits.hop_dtype = DType::kBF16;
  const auto memory = [&](int32_t tp_size, Range layers, bool nccl) {
    limits.tp_size = tp_size;
    limits.nccl = nccl;
    return *MemoryOfRank(Model(true), 0, layers, limits);
  };
  const struct {
    int32_t tp_size;
    Range layers;
    int64_t groups;
  } cases[] = {{1, {0, 8}, 0}, {2, {0, 8}, 1}, {1, {0, 4}, 1}, {1, {4, 8}, 1},
               {1, {3, 5}, 2}, {2, {0, 4}, 2}, {2, {3, 5}, 3}};
  for (const auto& c : cases) {
    SCOPED_TRACE(testing::Message() << "case " << &c - cases);
    const RankMemory by_host = memory(c.tp_size, c.layers, false);
    const RankMemory over_nccl = memory(c.tp_size, c.layers, true);
    const int64_t mib = c.groups == 0 ? 0
                                      : 500 + (c.groups - 1) * 90 + (c.layers.begin > 0 ? 16 : 0) +
                                            (c.tp_size > 1 ? 616 : 0);
    EXPECT_EQ(by_host.exchange_bytes, 0);
    EXPECT_EQ(over_nccl.exchange_bytes, mib << 20);
    EXPECT_EQ(over_nccl.device_bytes() - by_host.device_bytes(), mib << 20);
    // What is staged: a micro-batch's activations for each group, or where shards draw, 32 rows of
    // logits.
    const int64_t more = c.tp_size > 1 && c.layers.end == 8 ? 32 * 2048 * 4 - 256 * 256 * 2 : 0;
    EXPECT_EQ(
        over_nccl.driver_bytes - by_host.driver_bytes,
        c.groups == 0 ? 0 : int64_t{420 + (c.groups - 1) * 35 + (c.tp_size > 1 ? 20 : 0)} << 20);
    EXPECT_EQ(by_host.pinned_bytes - over_nccl.pinned_bytes, c.groups * 256 * 256 * 2 + more);
  }
  EXPECT_EQ(memory(4, {0, 8}, true).exchange_bytes, int64_t{500 + 616 + 2 * 95} << 20);
  // Sums of more than two shards go by the hosts, in F32; hops stay.
  limits.deterministic = true;
  EXPECT_EQ(memory(2, {0, 8}, true).exchange_bytes, int64_t{500 + 616} << 20);
  EXPECT_EQ(memory(4, {0, 8}, true).exchange_bytes, 0);
  EXPECT_EQ(memory(4, {3, 5}, true).exchange_bytes, int64_t{500 + 90 + 16} << 20);
  EXPECT_EQ(memory(4, {3, 5}, false).pinned_bytes - memory(4, {3, 5}, true).pinned_bytes,
            2 * 256 * 256 * 4);
  limits.device = DeviceKind::kCpu;
  EXPECT_EQ(memory(2, {3, 5}, true).exchange_bytes, 0);
}

// A buffer of 12.5 MiB and some, in pieces of 2 MiB.
TEST(MemoryOfRank, SumsOverPeerMemoryHaveABufferEach) {
  ReplicaLimits limits = Limits(2);
  limits.device = DeviceKind::kCuda;
  limits.kv_dtype = kernels::KvDType::kBF16;
  limits.hop_dtype = DType::kBF16;
  limits.nccl = true;
  const auto peers = [&](int32_t tp_size, Range layers) {
    limits.tp_size = tp_size;
    limits.peers = false;
    const int64_t without = MemoryOfRank(Model(true), 0, layers, limits)->device_bytes();
    limits.peers = true;
    return (MemoryOfRank(Model(true), 0, layers, limits)->device_bytes() - without) >> 20;
  };
  EXPECT_EQ(peers(2, {0, 8}), 14);
  EXPECT_EQ(peers(4, {3, 5}), 14);
  EXPECT_EQ(peers(1, {3, 5}), 0);  // hops have none
  limits.deterministic = true;
  EXPECT_EQ(peers(2, {0, 8}), 14);
  EXPECT_EQ(peers(4, {0, 8}), 0);  // by the hosts
  limits.deterministic = limits.nccl = false;
  EXPECT_EQ(peers(2, {0, 8}), 0);
}

TEST(MemoryOfRank, RefusesWhatGpusCannotNumber) {
  ReplicaLimits limits = Limits(1);
  limits.max_num_seqs = 8192;
  SKEIN_EXPECT_OK(MemoryOfRank(Model(true), 0, {0, 8}, limits).status());
  limits.device = DeviceKind::kCuda;
  limits.kv_dtype = kernels::KvDType::kBF16;
  EXPECT_THAT(MemoryOfRank(Model(true), 0, {0, 8}, limits).status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       testing::HasSubstr("GPUs have at most 8191 sequences")));
}

TEST(CheckDeviceMemory, SaysWhatIsNeededWhatIsFreeAndWhatWouldFit) {
  constexpr int64_t kMiB = int64_t{1} << 20;
  const RankMemory memory = {.weight_bytes = 1000 * kMiB,
                             .page_bytes = 1 * kMiB,
                             .kv_bytes = 300 * kMiB,
                             .swap_bytes = 9999 * kMiB,  // the host's
                             .activation_bytes = 40 * kMiB,
                             .context_bytes = 50 * kMiB,
                             .graph_bytes = 4 * kMiB,
                             .exchange_bytes = 6 * kMiB,
                             .pinned_bytes = 999 * kMiB};  // the host's, too
  const ReplicaLimits limits = {.context_length = 1600, .page_size = 16, .pages = 300};
  SKEIN_EXPECT_OK(CheckDeviceMemory(memory, limits, 1400 * kMiB));
  const auto refusal = [&](int64_t free_bytes) {
    const absl::Status status = CheckDeviceMemory(memory, limits, free_bytes);
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
    return std::string(status.message());
  };
  EXPECT_EQ(
      refusal(1400 * kMiB - 1),
      "the device has 1.37 GiB free and the plan needs 1.37 GiB: weights 1000.0 MiB, KV 300.0 "
      "MiB, buffers 40.0 MiB, context 50.0 MiB, graphs 4.0 MiB, exchange 6.0 MiB; another process "
      "has taken memory since it was made; 299 pages of the plan's 300 would fit: "
      "--kv-memory=313524224B");
  EXPECT_THAT(refusal(1200 * kMiB), testing::HasSubstr("100 pages of the plan's 300 would fit"));
  EXPECT_THAT(refusal(1199 * kMiB),
              testing::HasSubstr("; one sequence with a context of 1584 would fit"));
  EXPECT_THAT(refusal(1100 * kMiB), testing::HasSubstr("; not even a short context would fit"));
  EXPECT_THAT(refusal(0), testing::HasSubstr("has 0 B free"));
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

// What GPUs do not multiply by is refused before anything is loaded; cores take it.
TEST(MemoryOfRank, QuantisedWeightsAreForCores) {
  model::ModelConfig model = model::Bard();
  model.stored.matrices["model.layers.0.mlp.up_proj.weight"] = DType::kQ8_0;
  ReplicaLimits limits = {.context_length = 64,
                          .max_num_seqs = 1,
                          .max_micro_batch_rows = 1,
                          .page_size = 16,
                          .pages = 4};
  SKEIN_ASSERT_OK_AND_ASSIGN(const RankMemory cores, MemoryOfRank(model, 0, {0, 1}, limits));
  SKEIN_ASSERT_OK_AND_ASSIGN(const RankMemory plain,
                             MemoryOfRank(model::Bard(), 0, {0, 1}, limits));
  // 34 bytes for 32 elements, instead of 64.
  EXPECT_EQ(plain.weight_bytes - cores.weight_bytes, 768 * 256 / 32 * 30);
  limits.device = DeviceKind::kCuda;
  limits.kv_dtype = kernels::KvDType::kBF16;
  limits.hop_dtype = DType::kBF16;
  EXPECT_THAT(MemoryOfRank(model, 0, {0, 1}, limits),
              StatusIs(absl::StatusCode::kUnimplemented,
                       AllOf(HasSubstr("mlp.gate_up is of Q8_0"), HasSubstr("--device=cpu"))));
}

}  // namespace
}  // namespace skein::plan
