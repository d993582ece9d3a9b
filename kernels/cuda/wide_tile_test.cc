#include "kernels/cuda/wide_tile.h"

#include "gtest/gtest.h"

namespace skein::kernels::cuda {
namespace {

constexpr int32_t kMultiprocessors = 132;
constexpr std::array<int32_t, 3> kClusters = {16, 32, 66};  // as one H200 has them

struct Row {
  int64_t n;
  int64_t k;
  int32_t rows;
  int32_t blocks;
  double used;
};

TEST(ChooseWideTileTest, TakesTheWidestThatKeepsMultiprocessorsBusy) {
  for (const Row& row : {
           Row{28672, 4096, 224, 1, 128.0 / 132},
           Row{16384, 2048, 128, 1, 128.0 / 132},  // 86 tiles of 192 would leave 46 idle
           Row{14336, 4096, 224, 2, 128.0 / 132}, Row{6144, 4096, 192, 4, 128.0 / 132},
           Row{4096, 4096, 128, 4, 128.0 / 132}, Row{2048, 8192, 128, 8, 128.0 / 132},
           Row{33792, 4096, 128, 1, 1.0},  // 264 tiles, in two turns
       }) {
    const WideTile tile = ChooseWideTile(row.n, row.k, kMultiprocessors, kClusters);
    EXPECT_EQ(tile.rows, row.rows) << row.n;
    EXPECT_EQ(tile.blocks, row.blocks) << row.n;
    EXPECT_NEAR(tile.used, row.used, 1e-9) << row.n;
  }
}

TEST(ChooseWideTileTest, BlocksOfAClusterHaveEnoughOfK) {
  EXPECT_EQ(ChooseWideTile(2048, 4096, kMultiprocessors, kClusters).blocks, 8);
  EXPECT_EQ(ChooseWideTile(2048, 4095, kMultiprocessors, kClusters).blocks, 4);
  EXPECT_EQ(ChooseWideTile(2048, 1024, kMultiprocessors, kClusters).blocks, 2);
  EXPECT_EQ(ChooseWideTile(2048, 512, kMultiprocessors, kClusters).blocks, 1);
}

// One chip runs fewer clusters at once than another: what would take turns is not taken.
TEST(ChooseWideTileTest, ClustersRunAtOnce) {
  const WideTile fewer = ChooseWideTile(4096, 4096, kMultiprocessors, {13, 29, 66});
  EXPECT_EQ(fewer.rows, 192);
  EXPECT_EQ(fewer.blocks, 4);
  EXPECT_NEAR(fewer.used, 88.0 / 132, 1e-9);
  const WideTile none = ChooseWideTile(4096, 4096, kMultiprocessors, {0, 0, 0});
  EXPECT_EQ(none.rows, 128);
  EXPECT_EQ(none.blocks, 1);
  EXPECT_NEAR(none.used, 32.0 / 132, 1e-9);
}

// As where some are left to others: 66 clusters of 2 run at once, and 128 blocks are wanted.
TEST(ChooseWideTileTest, ClustersStayWithinTheMultiprocessorsThatAreGiven) {
  const WideTile tile = ChooseWideTile(14336, 4096, 120, kClusters);
  EXPECT_LE((14336 + tile.rows - 1) / tile.rows * tile.blocks, 120);
  EXPECT_LE(tile.used, 1);
}

TEST(ChooseWideTileTest, TellsWhatItUsesForAnySize) {
  for (int64_t n = 8; n < 200'000; n += 8) {
    const WideTile tile = ChooseWideTile(n, 4096, kMultiprocessors, kClusters);
    const int64_t tiles = (n + tile.rows - 1) / tile.rows;
    ASSERT_GT(tile.used, 0) << n;
    ASSERT_LE(tile.used, 1) << n;
    if (tile.blocks > 1) ASSERT_LE(tiles * tile.blocks, kMultiprocessors) << n;
    if (tile.blocks == 1) ASSERT_GT(tiles, kClusters.back()) << n;
  }
}

}  // namespace
}  // namespace skein::kernels::cuda
