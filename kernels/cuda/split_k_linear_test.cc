#include "kernels/cuda/split_k_linear.h"

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

SplitKLinear OpOf(const Case& c, const Data& data, const DeviceBytes& out, int32_t blocks) {
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
          .blocks = blocks};
}

TEST(SplitKLinearTest, AgreesWithTheDefinition) {
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
  }
  for (const Case& c : cases) {
    const Data data(c);
    const Expected expected = ExpectedOf(c, data);
    for (const int32_t blocks : {1, 2, 4, 8}) {
      SCOPED_TRACE(c.Name() + " by " + std::to_string(blocks));
      OwnStream stream;
      const DeviceBytes out(DTypeBytes(c.out_dtype, c.rows * (c.n + c.pad)));
      SKEIN_ASSERT_OK(Enqueue(OpOf(c, data, out, blocks), stream));
      SKEIN_ASSERT_OK(stream.Finish());
      EXPECT_TRUE(Agrees(RowsOf(c, Decoded(c.out_dtype, out)), expected));
    }
  }
}

TEST(SplitKLinearTest, AppliesSwiGlu) {
  SKEIN_NEED_HOPPER();
  for (DType dtype : {DType::kBF16, DType::kF16}) {
    for (const int64_t rows : {1, 9, 32, 64}) {
      const Case c = {.dtype = dtype, .out_dtype = dtype, .rows = rows, .n = 688, .k = 264};
      SCOPED_TRACE(c.Name());
      OwnStream stream;
      const Data data(c);
      const DeviceBytes out(DTypeBytes(dtype, rows * c.n / 2));
      SplitKLinear op = OpOf(c, data, out, 4);
      op.swiglu = true;
      op.out_stride = c.n / 2;
      SKEIN_ASSERT_OK(Enqueue(op, stream));
      SKEIN_ASSERT_OK(stream.Finish());
      EXPECT_TRUE(Agrees(Decoded(dtype, out), ExpectedSwiGlu(c, data)));
    }
  }
}

// Launches begin while those before them end, each one's `in` is what the one before wrote, and
// clusters take turns where there are more than run at once.
TEST(SplitKLinearTest, FollowsItselfAndKeepsARowsBits) {
  SKEIN_NEED_HOPPER();
  for (const int64_t rows : {16, 32, 64}) {
    const Case c = {.rows = rows, .n = 4096, .k = 4096};
    Case fewer = c;
    --fewer.rows;
    SCOPED_TRACE(c.Name());
    OwnStream stream;
    const Data data(c);
    const int64_t bytes = 2 * c.rows * c.n;
    const auto chain = [&](const Case& of, int32_t blocks) {
      const DeviceBytes a(bytes);
      const DeviceBytes b(bytes);
      SplitKLinear op = OpOf(of, data, a, blocks);
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
    for (const int32_t blocks : {1, 4, 8}) {
      const std::vector<float> all = chain(c, blocks);
      const std::vector<float> but_one = chain(fewer, blocks);
      EXPECT_TRUE(std::none_of(all.begin(), all.end(), [](float x) { return std::isnan(x); }));
      EXPECT_TRUE(SameBits(but_one, {all.begin(), all.begin() + static_cast<long>(but_one.size())}))
          << blocks;
      EXPECT_TRUE(SameBits(chain(c, blocks), all)) << blocks;
    }
  }
}

TEST(SplitKLinearTest, BlocksShareTilesOfMatricesThatHaveFew) {
  SKEIN_NEED_HOPPER();
  EXPECT_EQ(SplitKBlocks(int64_t{128} * Multiprocessors()), 1);
  EXPECT_EQ(SplitKBlocks(128), 8);
  int32_t before = 8;
  for (int64_t n = 128; n < int64_t{128} * Multiprocessors(); n += 128) {
    const int32_t blocks = SplitKBlocks(n);
    EXPECT_LE(blocks, before) << n;
    EXPECT_LE(blocks == 1 ? 0 : blocks * (n / 128), Multiprocessors()) << n;
    before = blocks;
  }
}

TEST(SplitKLinearTest, RefusesWhatDoesNotFit) {
  const auto refuses = [](const SplitKLinear& op, const char* message) {
    EXPECT_THAT(Enqueue(op, {}),
                StatusIs(absl::StatusCode::kInvalidArgument, testing::HasSubstr(message)));
  };
  refuses({.rows = 65, .n = 8, .k = 8}, "65 rows");
  refuses({.rows = 1, .n = 12, .k = 8}, "multiples of 8");
  refuses({.swiglu = true, .rows = 1, .n = 8, .k = 8}, "SwiGlu");
  refuses({.rows = 1, .n = 8, .k = 8, .blocks = 3}, "3 blocks");
  SplitKLinear op = {.rows = 1, .n = 8, .k = 8};
  refuses(op, "in place");
  op.in = reinterpret_cast<const void*>(uintptr_t{24});
  refuses(op, "16-byte");
}

}  // namespace
}  // namespace skein::kernels::cuda
