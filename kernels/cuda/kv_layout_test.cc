#include "kernels/cuda/kv_layout.h"

#include <set>

#include "gtest/gtest.h"

namespace skein::kernels::cuda {
namespace {

TEST(KvLayoutTest, ABlockHoldsEveryChunkOnce) {
  for (int head_dim : {64, 96, 128}) {
    std::set<int> places;
    for (int row = 0; row < kKvBlock; ++row) {
      for (int chunk = 0; chunk < head_dim / kKvChunk; ++chunk) {
        const int at = KvChunkOffset(head_dim, row, chunk);
        EXPECT_EQ(at % kKvChunk, 0);
        EXPECT_LT(at, KvBlockElements(head_dim) / 2);
        places.insert(at);
      }
    }
    EXPECT_EQ(static_cast<int>(places.size()), kKvBlock * head_dim / kKvChunk) << head_dim;
  }
}

// What ldmatrix reads at once, a chunk of each of 8 rows, is in 8 different sixteenths of 128
// bytes.
TEST(KvLayoutTest, ReadsHaveNoBankConflicts) {
  for (int head_dim : {64, 96, 128}) {
    for (int first : {0, 8}) {
      for (int chunk = 0; chunk < head_dim / kKvChunk; ++chunk) {
        std::set<int> banks;
        for (int row = first; row < first + 8; ++row) {
          banks.insert(KvChunkOffset(head_dim, row, chunk) / kKvChunk % 8);
        }
        EXPECT_EQ(banks.size(), 8u) << head_dim << " chunk " << chunk;
      }
    }
  }
}

TEST(KvLayoutTest, BlocksFollowEachOtherByPageHeadAndPosition) {
  const KvLayer kv = {nullptr, 3, 128, 64};
  EXPECT_EQ(kv.PageElements(), 3 * 64 * 2 * 128);
  EXPECT_EQ(kv.BlockBegin(0, 0, 15), 0);
  EXPECT_EQ(kv.BlockBegin(0, 0, 16), KvBlockElements(128));
  EXPECT_EQ(kv.BlockBegin(0, 1, 0), 4 * KvBlockElements(128));
  EXPECT_EQ(kv.BlockBegin(2, 2, 63), 2 * kv.PageElements() + 11 * KvBlockElements(128));
}

}  // namespace
}  // namespace skein::kernels::cuda
