// Draws of the most likely token, against a search through the row; and what shards exchange to
// draw.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "base/dtype.h"
#include "base/test_util.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cuda/device_draws.h"
#include "kernels/cuda/device_draws_testing.h"
#include "kernels/cuda/device_testing.h"

namespace skein::kernels::cuda {
namespace {

using ::testing::Each;

TEST(GreedyDrawsTest, AgreesWithASearch) {
  SKEIN_NEED_GPU();
  for (const int64_t tokens : {1, 3, 500, 8191, 8192, 8193, 128256}) {
    SCOPED_TRACE(tokens);
    Problem problem(tokens, 7);
    // Equal ones, in one block and in several: the first counts.
    for (const int64_t t : {tokens / 3, tokens / 2, tokens - 1}) problem.Row(5)[t] = 100;
    const std::vector<int32_t> rows = {5, 0, 6, 2};
    const std::vector<DeviceDraw> drawn = problem.Run(rows);
    for (size_t i = 0; i < rows.size(); ++i) {
      const float* const row = problem.Row(rows[i]);
      const float* const first = std::max_element(row, row + tokens);
      EXPECT_EQ(drawn[i].largest, *first);
      EXPECT_EQ(drawn[i].id, 1000 + (first - row));
      EXPECT_EQ(problem.newest[rows[i] + 1], drawn[i].id);
    }
    EXPECT_EQ(problem.newest[2], -5);  // of a row that nobody draws from
    EXPECT_EQ(problem.Run(rows, /*put_down=*/false).at(1).id, drawn[1].id);
    EXPECT_THAT(problem.newest, Each(-5));
  }
}

TEST(GreedyDrawsTest, TellsOfNaN) {
  SKEIN_NEED_GPU();
  Problem problem(20000, 5);
  problem.Row(0)[12345] = kNan;
  problem.Row(1)[7] = -kNan;
  problem.Row(1)[9] = kInfinity;
  problem.Row(2)[19999] = kInfinity;
  std::fill_n(problem.Row(3), 20000, -kInfinity);
  std::fill_n(problem.Row(4), 20000, -0.0f);
  problem.Row(4)[3] = 0.0f;  // no greater than -0
  const std::vector<DeviceDraw> drawn = problem.Run({0, 1, 2, 3, 4});
  EXPECT_TRUE(std::isnan(drawn[0].largest));
  EXPECT_EQ(drawn[0].id, -1);
  EXPECT_EQ(problem.newest[1], 0);
  EXPECT_TRUE(std::isnan(drawn[1].largest));
  EXPECT_EQ(drawn[2].largest, kInfinity);
  EXPECT_EQ(drawn[2].id, 1000 + 19999);
  EXPECT_EQ(drawn[3].largest, -kInfinity);
  EXPECT_EQ(drawn[3].id, 1000);
  EXPECT_EQ(drawn[4].largest, 0);
  EXPECT_EQ(drawn[4].id, 1000);
}

TEST(DeviceDrawsTest, RefuseWhatDoesNotFit) {
  SKEIN_NEED_GPU();
  const float* const logits = nullptr;
  const auto refused = [](const DrawRows& rows, const char* why) {
    for (const absl::Status& status : {Enqueue(GreedyDraws{.of = rows}, Stream()),
                                       Enqueue(SampledDraws{.of = rows}, Stream())}) {
      EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument, testing::HasSubstr(why)));
    }
  };
  refused({.tokens = 8, .logits = logits, .logits_stride = 9}, "multiples of 4");
  refused({.tokens = 8, .logits = logits + 1, .logits_stride = 8}, "16-byte");
  EXPECT_THAT(Enqueue(SampledDraws{.of = {.tokens = kMaxSampledTokens + 1,
                                          .logits = logits,
                                          .logits_stride = kMaxSampledTokens + 4}},
                      Stream()),
              StatusIs(absl::StatusCode::kInvalidArgument, testing::HasSubstr("tokens")));
}

// What shards of a vocabulary give each other, which the sum of all is.
TEST(ShardsOfDrawsTest, DrawAsFromTheWholeRow) {
  SKEIN_NEED_HOPPER();
  constexpr int64_t kTokens = 20001;
  constexpr int64_t kPart = 8000;  // the last one is short
  constexpr int32_t kShards = 3;
  constexpr int64_t kStride = 20004;
  Problem whole(kTokens, 6);
  for (const int64_t t : {7999, 8000, 20000}) whole.Row(1)[t] = 50;  // the first counts
  whole.Row(2)[20000] = 60;
  whole.Row(3)[9000] = kNan;
  std::fill_n(whole.Row(4), kTokens, -kInfinity);
  const std::vector<int32_t> rows = {5, 1, 3, 2, 4};
  const auto count = static_cast<int32_t>(rows.size());
  const std::vector<DeviceDraw> want = whole.Run(rows);

  std::vector<SetPair> pairs;
  std::vector<SampledDraw> draws;
  for (const int32_t row : rows) {
    pairs.push_back({row, row + 1});
    draws.push_back({.row = row});
  }
  pairs.back().value = -1;
  const DeviceArray<SetPair> device_pairs(pairs);
  const DeviceArray<SampledDraw> device_draws(draws);
  const DeviceBytes candidates(kShards * count * int64_t{sizeof(DrawCandidate)});
  OwnStream stream;
  std::vector<float> sums(count * kStride);
  for (int32_t shard = 0; shard < kShards; ++shard) {
    Problem part(std::min(kPart, kTokens - shard * kPart), 6);
    for (int64_t r = 0; r < 6; ++r)
      std::copy_n(whole.Row(r) + shard * kPart, part.tokens, part.Row(r));
    const DeviceBytes logits = Encoded(DType::kF32, part.logits);
    const DeviceArray<uint64_t> best(std::vector<uint64_t>(count, 0));
    const DeviceArray<uint32_t> arrived(std::vector<uint32_t>(count, 0));
    const DrawRows of = {.tokens = part.tokens,
                         .logits = static_cast<const float*>(logits.data()),
                         .logits_stride = part.stride,
                         .first_id = static_cast<int32_t>(shard * kPart)};
    Require(Enqueue(
        GreedyDraws{.draws = count,
                    .rows = device_pairs.get(),
                    .of = of,
                    .best = best.get(),
                    .arrived = arrived.get(),
                    .candidates = static_cast<DrawCandidate*>(candidates.data()) + shard * count},
        stream));
    const DeviceBytes spread(count * kStride * int64_t{sizeof(float)});
    Require(Enqueue(SpreadRows{.draws = count,
                               .rows = device_draws.get(),
                               .of = of,
                               .out = static_cast<float*>(spread.data()),
                               .out_stride = kStride},
                    stream));
    Require(stream.Finish());
    const std::vector<float> parts = Decoded(DType::kF32, spread);
    for (size_t i = 0; i < sums.size(); ++i) sums[i] += parts[i];
  }
  for (int32_t i = 0; i < count; ++i) {
    for (int64_t t = 0; t < kStride; ++t) {
      const float logit = t < kTokens ? whole.Row(rows[i])[t] : 0;
      ASSERT_TRUE(sums[i * kStride + t] == logit || std::isnan(logit)) << t;
    }
  }
  const DeviceArray<int32_t> newest(std::vector<int32_t>(10, -5));
  const DeviceArray<DeviceDraw> drawn{std::vector<DeviceDraw>(count)};
  Require(Enqueue(JoinGreedyDraws{.draws = count,
                                  .rows = device_pairs.get(),
                                  .shards = kShards,
                                  .candidates = static_cast<DrawCandidate*>(candidates.data()),
                                  .newest_tokens = newest.get(),
                                  .drawn = drawn.get()},
                  stream));
  Require(stream.Finish());
  std::vector<DeviceDraw> got(count);
  drawn.Download(got.data(), drawn.bytes());
  for (int32_t i = 0; i < count; ++i) {
    SCOPED_TRACE(rows[i]);
    // The other one numbers from 1,000.
    EXPECT_EQ(got[i].id, want[i].id < 0 ? -1 : want[i].id - 1000);
    EXPECT_TRUE(got[i].largest == want[i].largest || std::isnan(want[i].largest));
    EXPECT_EQ(std::isnan(got[i].largest), std::isnan(want[i].largest));
    EXPECT_EQ(At<int32_t>(newest, rows[i] + 1), i + 1 < count ? std::max(got[i].id, 0) : -5);
  }
  EXPECT_EQ(At<int32_t>(newest, 1), -5);  // of a row that nobody draws from
}

}  // namespace
}  // namespace skein::kernels::cuda
