#include "kernels/cuda/wide_tile_linear.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/test_util.h"
#include "gtest/gtest.h"
#include "kernels/cuda/device_testing.h"
#include "kernels/cuda/forms.h"
#include "kernels/cuda/linear_testing.h"

namespace skein::kernels::cuda {
namespace {

WideTileLinear OpOf(const Case& c, const Data& data, const DeviceBytes& out, WideTile tile) {
  return {.dtype = c.dtype,
          .out_dtype = c.out_dtype,
          .rows = c.rows,
          .n = c.n,
          .k = c.k,
          .in = data.device_in.data(),
          .weight = data.device_weight.data(),
          .out = out.data(),
          .in_stride = c.k + c.pad,
          .weight_stride = c.k + c.pad,
          .out_stride = c.n + c.pad,
          .tile = tile,
          .multiprocessors = Multiprocessors()};
}

// A ring runs on from a tile to the next one.
TEST(WideTileLinearTest, ABlockTakesSeveralTilesInTurn) {
  SKEIN_NEED_HOPPER();
  for (const bool swiglu : {false, true}) {
    const Case c = {.rows = 33, .n = 992, .k = 1096};
    const Data data(c);
    const Expected expected = swiglu ? ExpectedSwiGlu(c, data) : ExpectedOf(c, data);
    for (const int32_t rows : kWideTileRows) {
      for (const int32_t blocks : {1, 3}) {
        SCOPED_TRACE(testing::Message() << rows << " weight rows, " << blocks << " blocks");
        OwnStream stream;
        const DeviceBytes out(DTypeBytes(c.out_dtype, c.rows * c.n));
        WideTileLinear op = OpOf(c, data, out, {.rows = rows});
        op.multiprocessors = blocks;
        op.swiglu = swiglu;
        op.out_stride = swiglu ? c.n / 2 : c.n;
        SKEIN_ASSERT_OK(Enqueue(op, stream));
        SKEIN_ASSERT_OK(stream.Finish());
        std::vector<float> got = Decoded(c.out_dtype, out);
        got.resize(static_cast<size_t>(c.rows * op.out_stride));
        EXPECT_TRUE(Agrees(got, expected));
      }
    }
  }
}

const std::vector<WideTile>& AllTiles() {
  static const std::vector<WideTile> tiles = [] {
    std::vector<WideTile> all;
    for (const int32_t rows : kWideTileRows) {
      for (const int32_t blocks : {1, 2, 4, 8}) all.push_back({.rows = rows, .blocks = blocks});
    }
    return all;
  }();
  return tiles;
}
std::string NameOf(const WideTile& tile) {
  return std::to_string(tile.rows) + " weight rows by " + std::to_string(tile.blocks);
}

TEST(WideTileLinearTest, AgreesWithTheDefinition) {
  SKEIN_NEED_HOPPER();
  std::vector<Case> cases;
  for (DType dtype : {DType::kBF16, DType::kF16}) {
    for (const int64_t rows : {1, 7, 8, 16, 17, 31, 32, 33, 63, 64}) {
      const DType out = rows % 2 == 0 ? dtype : DType::kF32;
      cases.push_back({dtype, out, rows, 80, 520, false, false, 8 * (rows % 3)});
      cases.push_back({dtype, out == dtype ? DType::kF32 : dtype, rows, 1000, 1096});
    }
    cases.push_back({dtype, dtype, 1, 8, 8});  // fewer steps than blocks
    cases.push_back({dtype, dtype, 64, 136, 200});
    cases.push_back({dtype, dtype, 64, 512, 16384});
    cases.push_back({dtype, DType::kF32, 33, 34000, 64});  // several tiles for each block alone
  }
  for (const Case& c : cases) {
    const Data data(c);
    const Expected expected = ExpectedOf(c, data);
    for (const WideTile& tile : AllTiles()) {
      SCOPED_TRACE(c.Name() + ", " + NameOf(tile));
      OwnStream stream;
      const DeviceBytes out(DTypeBytes(c.out_dtype, c.rows * (c.n + c.pad)));
      SKEIN_ASSERT_OK(Enqueue(OpOf(c, data, out, tile), stream));
      SKEIN_ASSERT_OK(stream.Finish());
      EXPECT_TRUE(Agrees(RowsOf(c, Decoded(c.out_dtype, out)), expected));
    }
  }
}

TEST(WideTileLinearTest, AppliesSwiGlu) {
  SKEIN_NEED_HOPPER();
  for (DType dtype : {DType::kBF16, DType::kF16}) {
    for (const int64_t rows : {1, 9, 32, 64}) {
      const Case c = {.dtype = dtype, .out_dtype = dtype, .rows = rows, .n = 688, .k = 264};
      SCOPED_TRACE(c.Name());
      OwnStream stream;
      const Data data(c);
      const Expected expected = ExpectedSwiGlu(c, data);
      for (const WideTile& tile : AllTiles()) {
        SCOPED_TRACE(NameOf(tile));
        const DeviceBytes out(DTypeBytes(dtype, rows * c.n / 2));
        WideTileLinear op = OpOf(c, data, out, tile);
        op.swiglu = true;
        op.out_stride = c.n / 2;
        SKEIN_ASSERT_OK(Enqueue(op, stream));
        SKEIN_ASSERT_OK(stream.Finish());
        EXPECT_TRUE(Agrees(Decoded(dtype, out), expected));
      }
    }
  }
}

// Launches begin while those before them end, each one's `in` is what the one before wrote, and
// clusters take turns where there are more than run at once.
TEST(WideTileLinearTest, FollowsItselfAndKeepsARowsBits) {
  SKEIN_NEED_HOPPER();
  for (const int64_t rows : {16, 32, 64}) {
    const Case c = {.rows = rows, .n = 4096, .k = 4096};
    Case fewer = c;
    --fewer.rows;
    SCOPED_TRACE(c.Name());
    OwnStream stream;
    const Data data(c);
    const int64_t bytes = 2 * c.rows * c.n;
    const auto chain = [&](const Case& of, const WideTile& tile) {
      const DeviceBytes a(bytes);
      const DeviceBytes b(bytes);
      WideTileLinear op = OpOf(of, data, a, tile);
      for (int i = 0; i < 8; ++i) {
        EXPECT_TRUE(Enqueue(op, stream).ok());
        op.in = op.out;
        op.out = op.out == a.data() ? b.data() : a.data();
      }
      EXPECT_TRUE(stream.Finish().ok());
      std::vector<float> got = Decoded(DType::kBF16, b);
      got.resize(static_cast<size_t>(of.rows * of.n));
      return got;
    };
    for (const WideTile& tile : AllTiles()) {
      SCOPED_TRACE(NameOf(tile));
      const std::vector<float> all = chain(c, tile);
      const std::vector<float> but_one = chain(fewer, tile);
      EXPECT_TRUE(std::none_of(all.begin(), all.end(), [](float x) { return std::isnan(x); }));
      EXPECT_TRUE(
          SameBits(but_one, {all.begin(), all.begin() + static_cast<long>(but_one.size())}));
      EXPECT_TRUE(SameBits(chain(c, tile), all));
    }
  }
}

// What ChooseWideTile makes of it is wide_tile_test's.
TEST(WideTileLinearTest, AsksTheDeviceForItsClusters) {
  SKEIN_NEED_HOPPER();
  const WideTile one = WideTileOf(128, 4096, Multiprocessors());
  EXPECT_EQ(one.blocks, 8);
  const WideTile many = WideTileOf(int64_t{1000} * Multiprocessors(), 4096, Multiprocessors());
  EXPECT_EQ(many.blocks, 1);
  EXPECT_GE(many.used, 0.9);
}

TEST(WideTileLinearTest, RefusesWhatDoesNotFit) {
  const auto refuses = [](const WideTileLinear& op, const char* message) {
    EXPECT_THAT(Enqueue(op, {}),
                StatusIs(absl::StatusCode::kInvalidArgument, testing::HasSubstr(message)));
  };
  refuses({.rows = 65, .n = 8, .k = 8}, "65 rows");
  refuses({.rows = 1, .n = 12, .k = 8}, "multiples of 8");
  refuses({.swiglu = true, .rows = 1, .n = 8, .k = 8}, "SwiGlu");
  refuses({.rows = 1, .n = 8, .k = 8, .tile = {.blocks = 3}, .multiprocessors = 1}, "3 blocks");
  refuses({.rows = 1, .n = 8, .k = 8, .tile = {.rows = 64}, .multiprocessors = 1},
          "64 weight rows");
  refuses({.rows = 1, .n = 8, .k = 8}, "multiprocessors");
  WideTileLinear op = {.rows = 1, .n = 8, .k = 8, .multiprocessors = 1};
  refuses(op, "in place");
  op.in = reinterpret_cast<const void*>(uintptr_t{24});
  refuses(op, "16-byte");
}

}  // namespace
}  // namespace skein::kernels::cuda
