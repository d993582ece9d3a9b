#include "kernels/packing/layout.h"

#include <set>

#include "gtest/gtest.h"

namespace skein::kernels {
namespace {

TEST(PackedBytesTest, Table) {
  using Kind = WeightSpec::Kind;
  struct Case {
    WeightSpec spec;
    int64_t bytes;
  };
  const Case cases[] = {
      {{Kind::kMatrix, 1, 1, DType::kBF16}, 64 * 2},
      {{Kind::kMatrix, 64, 3, DType::kBF16}, 64 * 3 * 2},
      {{Kind::kMatrix, 65, 3, DType::kF16}, 128 * 3 * 2},
      {{Kind::kMatrix, 128256, 2048, DType::kBF16}, int64_t{128256} * 2048 * 2},
      {{Kind::kMatrix, 10, 7, DType::kF32, 8}, 64 * 7 * 4},
      {{Kind::kVector, 1, 5, DType::kBF16}, 64},  // the next weight is on another cache line
      {{Kind::kVector, 1, 17, DType::kBF16}, 128},
      // Parts have tiles of their own.
      {{.rows = 70, .cols = 3, .parts = {{66, DType::kBF16}, {4, DType::kF32}}},
       128 * 3 * 2 + 64 * 3 * 4},
  };
  for (const Case& c : cases) {
    EXPECT_EQ(PackedBytes(c.spec), c.bytes) << c.spec.rows << " x " << c.spec.cols;
  }
}

TEST(PositionInTileTest, IsAPermutationThatPairsRows) {
  for (DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    std::set<int64_t> positions;
    for (int64_t row = 0; row < kTileRows; ++row) positions.insert(PositionInTile(dtype, row));
    EXPECT_EQ(positions.size(), static_cast<size_t>(kTileRows));
    EXPECT_EQ(*positions.begin(), 0);
    EXPECT_EQ(*positions.rbegin(), kTileRows - 1);
  }
  for (int64_t row : {0, 1, 15, 32, 47}) {
    EXPECT_EQ(PositionInTile(DType::kBF16, row) % 2, 0);
    EXPECT_EQ(PositionInTile(DType::kBF16, row + 16), PositionInTile(DType::kBF16, row) + 1);
    EXPECT_EQ(PositionInTile(DType::kF16, row), row);
  }
}

TEST(KvBytesTest, PadsSlotsOfKeysAndElementsOfValues) {
  KvSpec spec{.layers = 2, .kv_heads = 3, .head_dim = 64, .page_size = 16, .pages = 10};
  EXPECT_EQ(KvBytes(spec), 2 * 3 * 10 * (16 * 64 * 2) * 4);
  spec.page_size = 5;
  EXPECT_EQ(KvBytes(spec), 2 * 3 * 10 * (16 * 64 + 5 * 64) * 4);
  spec.head_dim = 10;
  EXPECT_EQ(KvBytes(spec), 2 * 3 * 10 * (16 * 10 + 5 * 16) * 4);
}

TEST(KvBytesTest, FollowsTheDType) {
  KvSpec spec{.layers = 2, .kv_heads = 3, .head_dim = 64, .page_size = 16, .pages = 10};
  spec.dtype = KvDType::kBF16;
  EXPECT_EQ(KvBytes(spec), 2 * 3 * 10 * (16 * 64 * 2) * 2);
  spec.dtype = KvDType::kInt8;  // a slot has two scales, too
  EXPECT_EQ(KvBytes(spec), 2 * 3 * 10 * (16 * 64 * 2 + 16 * 2 * 4));
}

TEST(PageLayoutTest, PartsFollowEachOtherOnCacheLines) {
  for (KvDType dtype : {KvDType::kF32, KvDType::kBF16, KvDType::kInt8}) {
    const int64_t element_bytes = dtype == KvDType::kF32 ? 4 : dtype == KvDType::kBF16 ? 2 : 1;
    for (int64_t head_dim : {1, 18, 80}) {
      for (int64_t page_size : {1, 7, 16, 48}) {
        const KvSpec spec{.layers = 3,
                          .kv_heads = 2,
                          .head_dim = head_dim,
                          .page_size = page_size,
                          .pages = 5,
                          .dtype = dtype};
        const KvPageLayout l = PageLayout(spec);
        int64_t end = l.values + page_size * l.value_stride * element_bytes;
        EXPECT_GE(l.values, head_dim * l.key_stride * element_bytes);
        if (dtype == KvDType::kInt8) {
          EXPECT_GE(l.key_scales, end);
          EXPECT_GE(l.value_scales, l.key_scales + page_size * 4);
          end = l.value_scales + page_size * 4;
        } else {
          EXPECT_EQ(l.key_scales, 0);
          EXPECT_EQ(l.value_scales, 0);
        }
        EXPECT_GE(l.head_stride, end);
        for (int64_t bytes : {l.values, l.key_scales, l.value_scales, l.head_stride}) {
          EXPECT_EQ(bytes % 64, 0);
        }
        EXPECT_EQ(l.page_stride, 2 * l.head_stride);
        EXPECT_EQ(l.layer_stride, 5 * l.page_stride);
        EXPECT_EQ(KvBytes(spec), 3 * l.layer_stride);
      }
    }
  }
}

}  // namespace
}  // namespace skein::kernels
