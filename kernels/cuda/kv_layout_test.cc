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

TEST(KvLayoutTest, AnInt8BlockHoldsEveryColumnOnceAndScalesBehind) {
  for (int head_dim : {64, 96, 128}) {
    std::set<int> places;
    for (int row = 0; row < kKvBlock; ++row) {
      for (int column = 0; column < head_dim; ++column) {
        const int at = KvInt8Offset(head_dim, row, column);
        EXPECT_EQ(at / 4 * 4, KvInt8Word(head_dim, row, column / 4 * 4));
        places.insert(at);
      }
      // What Widen takes for neighbours.
      const int word = KvInt8Word(head_dim, row, 8);
      EXPECT_EQ(KvInt8Offset(head_dim, row, 8), word);
      EXPECT_EQ(KvInt8Offset(head_dim, row, 9), word + 2);
      EXPECT_EQ(KvInt8Offset(head_dim, row, 10), word + 1);
      EXPECT_EQ(KvInt8Offset(head_dim, row, 11), word + 3);
    }
    EXPECT_EQ(static_cast<int>(places.size()), kKvBlock * head_dim);
    EXPECT_EQ(*places.begin(), 0);
    EXPECT_EQ(*places.rbegin(), KvValuesByte(head_dim, true) - 1);
    EXPECT_EQ(KvScalesByte(head_dim, false), 2 * KvValuesByte(head_dim, true));
    EXPECT_EQ(KvScalesByte(head_dim, true), KvScalesByte(head_dim, false) + 64);
    EXPECT_EQ(KvBlockBytes(head_dim, true), KvScalesByte(head_dim, true) + 64);
    // Blocks of the ring follow each other in all banks alike.
    EXPECT_EQ(KvBlockBytes(head_dim, true) % 128, 0);
  }
}

// Lanes that read 16 bytes of 2 rows (4 units each), and, of values, of 4 even rows (2 each).
TEST(KvLayoutTest, Int8ReadsHaveNoBankConflicts) {
  for (int first : {0, 4}) {
    for (int row = 0; row < kKvBlock; row += 2) {
      std::set<int> banks;
      for (int i = 0; i < 8; ++i) {
        banks.insert(KvInt8Word(128, row + i / 4, (first + i % 4) * 16) % 128);
      }
      EXPECT_EQ(banks.size(), 8u) << row;
    }
  }
  for (int odd : {0, 1, 8, 9}) {
    for (int chunk = 0; chunk < 8; chunk += 2) {
      std::set<int> banks;
      for (int i = 0; i < 8; ++i) {
        banks.insert(KvInt8Word(128, i % 4 * 2 + odd, (chunk + i / 4) * 16) % 128);
      }
      EXPECT_EQ(banks.size(), 8u) << chunk;
    }
  }
}

TEST(KvLayoutTest, BlocksFollowEachOtherByPageHeadAndPosition) {
  for (const bool int8 : {false, true}) {
    const KvLayer kv = {nullptr, 3, 128, 64, int8};
    const int block = KvBlockBytes(128, int8);
    EXPECT_EQ(block, int8 ? 16 * 2 * (128 + 4) : 16 * 2 * 128 * 2);
    EXPECT_EQ(kv.PageBytes(), 3 * 4 * block);
    EXPECT_EQ(kv.BlockByte(0, 0, 15), 0);
    EXPECT_EQ(kv.BlockByte(0, 0, 16), block);
    EXPECT_EQ(kv.BlockByte(0, 1, 0), 4 * block);
    EXPECT_EQ(kv.BlockByte(2, 2, 63), 2 * kv.PageBytes() + 11 * block);
  }
}

}  // namespace
}  // namespace skein::kernels::cuda
