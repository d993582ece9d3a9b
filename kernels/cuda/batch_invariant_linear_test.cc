// BatchInvariantLinear against sums in double, and against itself where its bits have to agree.
#include "kernels/cuda/batch_invariant_linear.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/dtype.h"
#include "base/test_util.h"
#include "base/tree_sum.h"
#include "gtest/gtest.h"
#include "kernels/cuda/device_testing.h"
#include "kernels/cuda/forms.h"
#include "kernels/cuda/linear_testing.h"
#include "kernels/testing/compare.h"

namespace skein::kernels::cuda {
namespace {

BatchInvariantLinear OpOf(const Case& c, const Data& data, const DeviceBytes& out,
                          int32_t blocks = 1) {
  return {.dtype = c.dtype,
          .out_dtype = c.out_dtype,
          .rows = c.rows,
          .n = c.n,
          .k = c.k,
          .blocks = blocks,
          .in = data.device_in.data(),
          .weight = data.device_weight.data(),
          .out = out.data(),
          .in_stride = c.k + c.pad,
          .weight_stride = c.k + c.pad,
          .out_stride = c.n + c.pad};
}

TEST(BatchInvariantLinearTest, AgreesWithTheDefinition) {
  SKEIN_NEED_HOPPER();
  for (DType dtype : {DType::kBF16, DType::kF16}) {
    for (const int64_t rows : {1, 15, 16, 17, 64, 65, 257, 300}) {
      const DType out_dtype = rows % 2 == 0 ? dtype : DType::kF32;
      for (const int32_t blocks : {1, 2, 4, 8}) {
        // Blocks of whole steps of 64 columns, and of 32, 96 and 16.
        for (const int64_t k : {int64_t{512} * blocks, int64_t{32} * blocks, int64_t{96} * blocks,
                                int64_t{16} * blocks, int64_t{328}}) {
          if (k == 328 && blocks > 1) continue;
          const Case c = {dtype, out_dtype, rows, 200, k, false, false, 8 * (rows % 3)};
          SCOPED_TRACE(c.Name() + " in " + std::to_string(blocks));
          OwnStream stream;
          const Data data(c);
          const DeviceBytes out(DTypeBytes(c.out_dtype, c.rows * (c.n + c.pad)));
          SKEIN_ASSERT_OK(Enqueue(OpOf(c, data, out, blocks), stream));
          SKEIN_ASSERT_OK(stream.Finish());
          EXPECT_TRUE(Agrees(RowsOf(c, Decoded(c.out_dtype, out)), ExpectedOf(c, data)));
        }
      }
    }
  }
}

TEST(BatchInvariantLinearTest, AppliesSwiGlu) {
  SKEIN_NEED_HOPPER();
  for (DType dtype : {DType::kBF16, DType::kF16}) {
    for (const int64_t rows : {1, 17, 64, 300}) {
      const Case c = {.dtype = dtype, .out_dtype = dtype, .rows = rows, .n = 688, .k = 264};
      SCOPED_TRACE(c.Name());
      OwnStream stream;
      const Data data(c);
      const DeviceBytes out(DTypeBytes(dtype, rows * c.n / 2));
      BatchInvariantLinear op = OpOf(c, data, out);
      op.swiglu = true;
      op.out_stride = c.n / 2;
      SKEIN_ASSERT_OK(Enqueue(op, stream));
      SKEIN_ASSERT_OK(stream.Finish());
      EXPECT_TRUE(Agrees(Decoded(dtype, out), ExpectedSwiGlu(c, data)));
    }
  }
}

// Rows [first, first + count) of a case's, by themselves.
std::vector<float> SomeRows(const Case& c, const Data& data, int32_t blocks, int64_t first,
                            int64_t count) {
  OwnStream stream;
  const DeviceBytes out(4 * count * c.n);
  BatchInvariantLinear op = OpOf(c, data, out, blocks);
  op.rows = count;
  op.in = static_cast<const char*>(op.in) + DTypeBytes(c.dtype, first * op.in_stride);
  Require(Enqueue(op, stream));
  Require(stream.Finish());
  return Decoded(DType::kF32, out);
}

TEST(BatchInvariantLinearTest, ARowsBitsDependOnNoOtherNorOnHowMany) {
  SKEIN_NEED_HOPPER();
  for (const int32_t blocks : {1, 8}) {
    const Case c = {.out_dtype = DType::kF32, .rows = 400, .n = 328, .k = 4096};
    const Data data(c);
    const std::vector<float> all = SomeRows(c, data, blocks, 0, c.rows);
    EXPECT_TRUE(Agrees(all, ExpectedOf(c, data)));
    for (const int64_t count : {1, 2, 16, 17, 63, 64, 65, 128, 256, 257, 399}) {
      for (const int64_t first : {int64_t{0}, int64_t{1}, c.rows - count}) {
        SCOPED_TRACE(testing::Message() << count << " rows from " << first << ", " << blocks);
        const auto begin = all.begin() + first * c.n;
        EXPECT_TRUE(SameBits(SomeRows(c, data, blocks, first, count),
                             std::vector<float>(begin, begin + count * c.n)));
      }
    }
  }
}

// Columns [first, first + k) of a case's, in blocks.
std::vector<float> SomeColumns(const Case& c, const Data& data, int32_t blocks, int64_t first,
                               int64_t k) {
  OwnStream stream;
  const DeviceBytes out(4 * c.rows * c.n);
  BatchInvariantLinear op = OpOf(c, data, out, blocks);
  op.k = k;
  op.in = static_cast<const char*>(op.in) + DTypeBytes(c.dtype, first);
  op.weight = static_cast<const char*>(op.weight) + DTypeBytes(c.dtype, first);
  Require(Enqueue(op, stream));
  Require(stream.Finish());
  return Decoded(DType::kF32, out);
}

// So shards of any number have the same sums.
TEST(BatchInvariantLinearTest, BlocksAreJoinedAsATree) {
  SKEIN_NEED_HOPPER();
  for (const int64_t rows : {3, 70}) {
    const Case c = {.out_dtype = DType::kF32, .rows = rows, .n = 136, .k = 1792};
    const Data data(c);
    for (const int32_t shards : {1, 2, 4, 8}) {
      SCOPED_TRACE(testing::Message() << rows << " rows, " << shards << " shards");
      std::vector<std::vector<float>> parts;
      for (int i = 0; i < shards; ++i) {
        parts.push_back(SomeColumns(c, data, 8 / shards, i * c.k / shards, c.k / shards));
      }
      std::vector<float> sum;
      for (size_t i = 0; i < parts[0].size(); ++i) {
        sum.push_back(TreeSum(0, shards, [&](int64_t part) { return parts[part][i]; }));
      }
      EXPECT_TRUE(SameBits(SomeColumns(c, data, 8, 0, c.k), sum));
    }
    // The order is seen in the bits, or the above says nothing.
    EXPECT_FALSE(SameBits(SomeColumns(c, data, 8, 0, c.k), SomeColumns(c, data, 1, 0, c.k)));
  }
}

TEST(BatchInvariantLinearTest, RefusesWhatDoesNotFit) {
  const auto refuses = [](const BatchInvariantLinear& op, const char* message,
                          absl::StatusCode code = absl::StatusCode::kInvalidArgument) {
    EXPECT_THAT(Enqueue(op, {}), StatusIs(code, testing::HasSubstr(message)));
  };
  refuses({.rows = 1, .n = 12, .k = 8}, "multiples of 8");
  refuses({.swiglu = true, .rows = 1, .n = 8, .k = 8}, "SwiGlu");
  refuses({.rows = 1, .n = 8, .k = 48, .blocks = 3}, "3 blocks", absl::StatusCode::kUnimplemented);
  refuses({.rows = 1, .n = 8, .k = 48, .blocks = 2}, "48 columns",
          absl::StatusCode::kUnimplemented);
  refuses({.rows = 1, .n = 8, .k = 8}, "in place");
  refuses({.rows = 1, .n = 8, .k = 8, .in = reinterpret_cast<const void*>(uintptr_t{24})},
          "16-byte");
}

}  // namespace
}  // namespace skein::kernels::cuda
