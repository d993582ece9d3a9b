// Steps by one kernel on two shards, which sum over peer memory inside of it: against the reference
// back end, which has all of the model, and with a peer that follows another order, or none.
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/test_util.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cuda/backend_testing.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/ops/backend.h"
#include "kernels/reference/reference_backend.h"
#include "tests/gpu/two_ranks.h"

namespace skein::comm {
namespace {

using kernels::Batch;
using kernels::CudaBackendTest;
using kernels::Layer;
using kernels::LayerShape;
using ::testing::HasSubstr;

constexpr kernels::Limits kLimits = {.rows = 40, .outputs = 40, .slots = 20, .slot_pages = 8};

// This rank's part of a model, and all of it on the host.
class Shard {
 public:
  Shard(Rank& rank, LayerShape shape, kernels::DecodeForm form = kernels::DecodeForm::kPersistent)
      : group_(rank, "tp", Group::Peers::kAll), sums_(group_) {
    reference_ = std::make_unique<Layer>(kernels::MakeReferenceBackend(), shape);
    exact_ = std::make_unique<Layer>(kernels::MakeReferenceBackend(), kernels::Exact(shape));
    shape.shard = rank.number();
    shape.shards = 2;
    shape.split = true;
    gpu_ = std::make_unique<Layer>(
        *kernels::MakeCudaBackend({.device = rank.device,
                                   .decode = form,
                                   .remark = [this](std::string_view said) { remark_ = said; }}),
        shape, &sums_);
  }

  // This shard's part of the logits may be twice as far from what no rounding gives as those of the
  // reference are, which makes as many roundings.
  void RunAndCompare(Batch batch) {
    batch.step = ++steps_;
    SKEIN_ASSERT_OK(gpu_->Run(batch));
    SKEIN_ASSERT_OK(reference_->Run(batch));
    SKEIN_ASSERT_OK(exact_->Run(batch));
    const LayerShape& shape = gpu_->shape();
    const int64_t part = shape.columns / shape.shards;
    const std::vector<float> ours = gpu_->Logits(batch.outputs());
    const std::vector<float> theirs = reference_->Logits(batch.outputs());
    const std::vector<float> right = exact_->Logits(batch.outputs());
    kernels::Distance our, their;
    for (size_t i = 0; i < ours.size(); ++i) {
      const int64_t column = shape.shard * part + static_cast<int64_t>(i) % part;
      if (column >= shape.vocabulary) continue;
      const int64_t at = static_cast<int64_t>(i) / part * shape.columns + column;
      our.Add(ours[i], right[at]);
      their.Add(theirs[at], right[at]);
    }
    EXPECT_GT(our.squares, 0);
    EXPECT_LT(our.relative(), 2 * their.relative());  // not where it is NaN, either
    EXPECT_LT(their.relative(), 0.05);
  }

  kernels::Executable& executable() { return gpu_->executable(); }
  Layer& gpu() { return *gpu_; }
  Group& group() { return group_; }
  GroupSums& sums() { return sums_; }
  const std::string& remark() const { return remark_; }

 private:
  Group group_;
  GroupSums sums_;
  std::string remark_;
  std::unique_ptr<Layer> reference_, exact_, gpu_;
  int64_t steps_ = 0;
};

bool ByOneKernel(Shard& shard) {
  return shard.executable().Newest().find("by one kernel") != std::string::npos;
}

// Sequences grow beside each other, from prompts that one kernel computes, and some that graphs'
// kernels do, whose sums use the same memory.
void DecodeAll(Rank& rank, const LayerShape& shape) {
  Shard shard(rank, shape);
  EXPECT_THAT(shard.remark(), HasSubstr("by one kernel a step"));
  for (int32_t slot = 0; slot < 16; ++slot) {
    SCOPED_TRACE(absl::StrCat("prompt of slot ", slot));
    Batch prompt = CudaBackendTest::Start(slot, 1 + slot * 7 % 23, 0);
    prompt.updates[0].pages = {3 * slot, 3 * slot + 1, 3 * slot + 2};
    shard.RunAndCompare(prompt);
    EXPECT_EQ(ByOneKernel(shard), prompt.rows() <= 16);
  }
  for (int32_t rows = 1; rows <= 16; ++rows) {
    SCOPED_TRACE(absl::StrCat(rows, " rows"));
    std::vector<int32_t> slots;
    for (int32_t slot = 0; slot < rows; ++slot) slots.push_back((slot * 5 + rows) % 16);
    shard.RunAndCompare(CudaBackendTest::Decode(slots, 7 * rows));
    EXPECT_TRUE(ByOneKernel(shard));
  }
}

TEST(PersistentShardsTest, TwoShardsAgreeWithTheReference) {
  OnRanks([](Rank& rank) { DecodeAll(rank, {.limits = kLimits}); });
}

// Of odd sizes: a KV head each, a vocabulary that ends within the second shard's part.
TEST(PersistentShardsTest, OddShapesAgreeWithTheReference) {
  OnRanks([](Rank& rank) {
    DecodeAll(rank, {.vocabulary = 499,
                     .hidden = 320,
                     .ffn = 384,
                     .heads = 6,
                     .kv_heads = 2,
                     .head_dim = 128,
                     .limits = kLimits,
                     .kv_dtype = kernels::KvDType::kInt8});
  });
}

// A bias of what shards sum is added once.
TEST(PersistentShardsTest, BiasesAndNormsOfHeadsAgreeWithTheReference) {
  OnRanks(
      [](Rank& rank) { DecodeAll(rank, {.limits = kLimits, .biases = true, .qk_norms = true}); });
}

// Both ranks choose by the same times.
TEST(PersistentShardsTest, AllShardsDecodeInOneForm) {
  OnRanks([](Rank& rank) {
    Shard shard(rank, {.limits = kLimits}, kernels::DecodeForm::kAuto);
    EXPECT_THAT(shard.remark(), HasSubstr("steps by one kernel and by graphs take: 1 row "));
    uint64_t own = std::hash<std::string>()(shard.remark());
    uint64_t all[2] = {};
    SKEIN_ASSERT_OK(
        rank.host.AllGather({&own, DType::kU8, 1, 8}, {all, DType::kU8, 2, 8}, kHostStream));
    EXPECT_EQ(all[0], all[1]);
    shard.RunAndCompare(CudaBackendTest::Start(0, 5, 0));
    shard.RunAndCompare(CudaBackendTest::Decode({0}, 3));
  });
}

// Of no loop of the device is left over.
TEST(PersistentShardsTest, RanksThatFollowUnlikeOrdersAreNamed) {
  OnRanks([](Rank& rank) {
    Shard shard(rank, {.limits = kLimits});
    shard.RunAndCompare(CudaBackendTest::Start(0, 5, 0));
    shard.sums().order = 0x70 + rank.number();
    Batch batch = CudaBackendTest::Decode({0}, 3);
    batch.step = 7;
    const absl::Status unlike = shard.gpu().Run(batch);
    const int other = 1 - rank.number();
    EXPECT_THAT(std::string(unlike.message()),
                HasSubstr(absl::StrCat("rank ", other, " on host-", other,
                                       " makes sum 5 of step 7 (512 bytes of BF16, order 0000007",
                                       other, "), where this rank makes sum 5 of step 7")));
    EXPECT_TRUE(shard.group().Ends());
  });
}

// A rank that never comes is named with the sum that waits for it; then the host ends the waiting.
TEST(PersistentShardsTest, ARankThatDoesNotComeIsNamedAndNobodyWaitsOn) {
  OnRanks([](Rank& rank) {
    Shard shard(rank, {.limits = kLimits});
    shard.RunAndCompare(CudaBackendTest::Start(0, 5, 0));
    shard.group().set_timeout(absl::Seconds(2));
    if (rank.number() == 0) {
      Batch batch = CudaBackendTest::Decode({0}, 3);
      batch.step = 7;
      const absl::Time begin = absl::Now();
      const absl::Status late = shard.gpu().Run(batch);
      EXPECT_EQ(late.code(), absl::StatusCode::kDeadlineExceeded) << late;
      EXPECT_THAT(std::string(late.message()),
                  HasSubstr("this rank's device waits for rank 1 on host-1 in sum 1 of step 7"));
      EXPECT_LT(absl::Now() - begin, absl::Seconds(5));
      // As an engine does.
      shard.executable().Abort(late);
      shard.group().Abort(late);
      EXPECT_TRUE(shard.group().Ends());
    }
    // Rank 1 lives on meanwhile.
    char done = 0, all[2] = {};
    SKEIN_EXPECT_OK(
        rank.host.AllGather({&done, DType::kU8, 1, 1}, {all, DType::kU8, 2, 1}, kHostStream));
  });
}

}  // namespace
}  // namespace skein::comm
