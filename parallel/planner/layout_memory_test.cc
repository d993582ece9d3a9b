#include "parallel/planner/layout_memory.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "base/test_util.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/ops/sizes.h"
#include "model/config/test_models.h"
#include "parallel/plan/shard.h"
#include "parallel/planner/defaults.h"

namespace skein::plan {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> NamesOf(const MemoryOfLayouts& found) {
  std::vector<std::string> names;
  for (const LayoutMemory& of : found.layouts) names.push_back(of.layout.ToString());
  return names;
}

model::ModelConfig Model() {
  model::ModelConfig model = model::Llama8B();
  model.dtype = DType::kBF16;
  return model;
}

TEST(LayoutMemoryTest, PowersOfTwoUpToSoManyRanks) {
  SKEIN_ASSERT_OK_AND_ASSIGN(const MemoryOfLayouts found,
                             FindMemoryOfLayouts(Model(), {.most_ranks = 7}));
  EXPECT_THAT(NamesOf(found), ElementsAre("tp=1,pp=1,dp=1", "tp=2,pp=1,dp=1", "tp=1,pp=2,dp=1",
                                          "tp=4,pp=1,dp=1", "tp=2,pp=2,dp=1", "tp=1,pp=4,dp=1"));
}

// The window's positions, those of a step's rows, in every stage's micro-batch, and where the first
// page begins.
TEST(LayoutMemoryTest, KeysAndValuesBehindWindowsAreNotKept) {
  model::ModelConfig model = Model();
  model.windows.assign(model.num_layers, 512);
  SKEIN_ASSERT_OK_AND_ASSIGN(
      const MemoryOfLayouts found,
      FindMemoryOfLayouts(model, {.context_length = 8192, .streams = 10, .most_ranks = 2}));
  const int64_t rows = DefaultsOf(DeviceKind::kCuda).micro_batch_rows;
  const int64_t page_bytes = int64_t{16} * 32 * 2 * 8 * 128 * 2;
  ASSERT_EQ(found.layouts.size(), 3);
  for (const auto& [at, pp] : {std::pair{0, 1}, {2, 2}}) {
    const int64_t positions = 511 + rows * pp;
    ASSERT_LT(positions, 8192);
    const int64_t pages = 10 * ((positions + 14) / 16 + 1);
    EXPECT_EQ(found.layouts[at].rank.kv_bytes, pages * page_bytes / 32 * (pp == 1 ? 32 : 17));
  }
}

// Worked out by hand, of the 8B on GPUs: 32 layers of 8 KV heads of 128.
TEST(LayoutMemoryTest, KeysAndValuesAreOfAllStreams) {
  SKEIN_ASSERT_OK_AND_ASSIGN(
      const MemoryOfLayouts found,
      FindMemoryOfLayouts(Model(), {.context_length = 4096, .streams = 10, .most_ranks = 2}));
  EXPECT_EQ(found.streams, 10);
  EXPECT_EQ(found.context_length, 4096);
  EXPECT_EQ(found.kv_dtype, KvDType::kBF16);
  const int64_t kv_bytes = int64_t{10} * 4096 * 32 * 2 * 8 * 128 * 2;
  ASSERT_EQ(found.layouts.size(), 3);
  EXPECT_EQ(found.layouts[0].rank.kv_bytes, kv_bytes);
  EXPECT_EQ(found.layouts[1].rank.kv_bytes, kv_bytes / 2);  // tp=2
  // pp=2: the stage without the output's matrix has 17 layers.
  EXPECT_EQ(found.layouts[2].rank.kv_bytes, kv_bytes / 32 * 17);
  // Matrices of 16 bits, of both vocabularies; norms are floats.
  const int64_t matrices =
      int64_t{2} * 128256 * 4096 +
      int64_t{32} * (4096 * (4096 + 2 * 1024) + 4096 * 4096 + 3 * 4096 * 14336);
  EXPECT_NEAR(static_cast<double>(found.layouts[0].rank.weight_bytes),
              static_cast<double>(2 * matrices), 4e6);
  EXPECT_EQ(found.layouts[0].rank.exchange_bytes, 0);
  EXPECT_GT(found.layouts[1].rank.exchange_bytes, kNcclBytes);
  SKEIN_ASSERT_OK_AND_ASSIGN(
      const MemoryOfLayouts int8,
      FindMemoryOfLayouts(
          Model(),
          {.context_length = 4096, .streams = 10, .kv_dtype = KvDType::kInt8, .most_ranks = 1}));
  EXPECT_EQ(int8.layouts[0].rank.kv_bytes, int64_t{10} * 4096 * 32 * 2 * 8 * (128 + 4));
}

// Of a vocabulary that weighs as much as many layers, the stages at the ends differ from the rest.
TEST(LayoutMemoryTest, TheFullestStageIsShown) {
  SKEIN_ASSERT_OK_AND_ASSIGN(
      const MemoryOfLayouts found,
      FindMemoryOfLayouts(Model(), {.context_length = 128, .streams = 1, .most_ranks = 4}));
  const LayoutMemory& shown = found.layouts.back();
  ASSERT_EQ(shown.layout.pp_size, 4);
  int64_t most = 0;
  for (int32_t stage = 0; stage < 4; ++stage) {
    const ReplicaLimits limits = {.context_length = 128,
                                  .max_num_seqs = 1,
                                  .max_micro_batch_rows = 2048,
                                  .page_size = kernels::PageTokens(DeviceKind::kCuda),
                                  .kv_dtype = KvDType::kBF16,
                                  .hop_dtype = DType::kBF16,
                                  .pages = 128 / kernels::PageTokens(DeviceKind::kCuda),
                                  .device = DeviceKind::kCuda,
                                  .nccl = true,
                                  .peers = true};
    SKEIN_ASSERT_OK_AND_ASSIGN(
        const RankMemory rank,
        MemoryOfRank(Model(), 0, BalancedStageLayers(Model(), 4, stage), limits));
    if (stage == shown.stage) EXPECT_EQ(rank.device_bytes(), shown.rank.device_bytes());
    most = std::max(most, rank.device_bytes());
  }
  EXPECT_EQ(shown.rank.device_bytes(), most);
}

TEST(LayoutMemoryTest, WhatCannotBeIsTold) {
  model::ModelConfig model = Model();
  model.num_layers = 3;
  SKEIN_ASSERT_OK_AND_ASSIGN(const MemoryOfLayouts found,
                             FindMemoryOfLayouts(model, {.most_ranks = 4}));
  ASSERT_EQ(found.rejected.size(), 1);
  EXPECT_EQ(found.rejected[0].layout.pp_size, 4);
  EXPECT_EQ(found.rejected[0].reason, "the model has 3 layers");
  EXPECT_THAT(FindMemoryOfLayouts(model, {.context_length = 100'000'000}).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("too long for the model")));
}

TEST(LayoutMemoryTest, CoresTakeTheirOwnDefaults) {
  SKEIN_ASSERT_OK_AND_ASSIGN(
      const MemoryOfLayouts found,
      FindMemoryOfLayouts(Model(), {.device = DeviceKind::kCpu, .most_ranks = 1}));
  EXPECT_EQ(found.streams, 16);
  EXPECT_EQ(found.context_length, Model().max_position_embeddings);
  EXPECT_EQ(found.kv_dtype, KvDType::kF32);
  EXPECT_EQ(found.layouts[0].rank.context_bytes, 0);
}

}  // namespace
}  // namespace skein::plan
