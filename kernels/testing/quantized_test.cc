// Products with quantised weights: the bits of products with the floats that the blocks stand for.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "base/dtype.h"
#include "base/random_blocks.h"
#include "base/test_util.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/ops/validate.h"
#include "kernels/reference/reference_backend.h"
#include "kernels/testing/compare.h"
#include "kernels/testing/harness.h"

namespace skein::kernels {
namespace {

using ::testing::HasSubstr;

Batch Rows(int64_t rows) { return BatchOf({{{0}, 0, std::vector<int32_t>(rows, 0)}}); }

// The rows of a weight's parts as floats, by base/quantized_blocks.
std::vector<float> Floats(const WeightSpec& spec, absl::Span<const std::byte> stored) {
  std::vector<float> values(spec.rows * spec.cols);
  float* next = values.data();
  for (const WeightSpec::Part& part : PartsOf(spec)) {
    const int64_t count = part.rows * spec.cols;
    ConvertToFloat(part.dtype, stored.data(), count, next);
    stored.remove_prefix(DTypeBytes(part.dtype, count));
    next += count;
  }
  return values;
}

std::vector<std::byte> RandomRows(const WeightSpec& spec) {
  std::vector<std::byte> stored;
  uint32_t seed = 7;
  for (const WeightSpec::Part& part : PartsOf(spec)) {
    const int64_t count = part.rows * spec.cols;
    std::vector<std::byte> bytes;
    if (IsQuantized(part.dtype)) {
      bytes = RandomBlocks(++seed, part.dtype, count / BlockElements(part.dtype));
    } else {
      const std::vector<float> values = RandomFloats(++seed, count);
      bytes.resize(DTypeBytes(part.dtype, count));
      ConvertFromFloat(part.dtype, values.data(), count, bytes.data());
    }
    stored.insert(stored.end(), bytes.begin(), bytes.end());
  }
  return stored;
}

std::vector<float> Product(Backend& backend, const WeightSpec& spec, std::vector<std::byte> stored,
                           const std::vector<float>& in, bool exact = true) {
  TestProgram p;
  p.program.exact = exact;
  const BufferId x = p.AddBuffer(spec.cols);
  const BufferId y = p.AddBuffer(spec.rows);
  p.Add(MatMulOp{x, p.AddStored(spec, std::move(stored)), y});
  p.Bind(backend);
  p.Set(x, in);
  const int64_t rows = static_cast<int64_t>(in.size()) / spec.cols;
  SKEIN_EXPECT_OK(p.Run(Rows(rows)));
  return p.Get(y, rows);
}

struct Case {
  int64_t rows, blocks, outputs;
  std::vector<int64_t> bounds;  // in blocks of 256 columns
};
const Case kCases[] = {
    {1, 1, 1, {0, 1}},
    {1, 3, 70, {0, 3}},
    {2, 2, 64, {0, 1, 2}},
    {5, 5, 17, {0, 0, 2, 5}},
    {7, 11, 65, {0, 1, 2, 4, 5, 6, 8, 9, 11}},
    {75, 3, 130, {0, 1, 1, 3, 3}},
};

WeightSpec SpecOf(const Case& c, DType dtype) {
  WeightSpec spec = {.rows = c.outputs, .cols = c.blocks * 256, .dtype = dtype};
  spec.inner_blocks = static_cast<int32_t>(c.bounds.size()) - 1;
  for (const int64_t bound : c.bounds) spec.inner_bounds.push_back(bound * 256);
  return spec;
}

std::string Name(const Case& c, DType dtype) {
  return absl::StrCat(std::string(DTypeName(dtype)), ": ", c.rows, " x ", c.blocks, " -> ",
                      c.outputs);
}

// The sums of the magnitudes of all products.
std::vector<float> Magnitudes(WeightSpec spec, absl::Span<const std::byte> stored,
                              std::vector<float> in) {
  std::vector<float> weights = Floats(spec, stored);
  for (float& value : weights) value = std::abs(value);
  for (float& value : in) value = std::abs(value);
  spec.dtype = DType::kF32;
  spec.parts.clear();
  std::vector<std::byte> bytes(weights.size() * sizeof(float));
  ConvertFromFloat(DType::kF32, weights.data(), static_cast<int64_t>(weights.size()), bytes.data());
  return Product(*MakeReferenceBackend(), spec, bytes, in);
}

// So often a term is rounded: scaled, added, its minimum taken away.
constexpr double kRoundings = 40;

class QuantizedTest : public testing::TestWithParam<BackendCase> {
 protected:
  // Multiplies by the blocks and by their floats, summed in the same inner blocks; and integers, as
  // the reference does.
  void Expect(WeightSpec spec, int64_t rows) {
    const std::vector<float> in = RandomFloats(1, rows * spec.cols, 3);
    const std::vector<std::byte> stored = RandomRows(spec);
    EXPECT_TRUE(Close(Product(*backend_, spec, stored, in, /*exact=*/false),
                      Product(*MakeReferenceBackend(), spec, stored, in, /*exact=*/false),
                      Magnitudes(spec, stored, in), kRoundings));
    const std::vector<float> floats = Floats(spec, stored);
    const std::vector<float> actual = Product(*backend_, spec, stored, in);
    spec.dtype = DType::kF32;
    spec.parts.clear();
    std::vector<std::byte> bytes(floats.size() * sizeof(float));
    ConvertFromFloat(DType::kF32, floats.data(), static_cast<int64_t>(floats.size()), bytes.data());
    EXPECT_TRUE(SameBits(actual, Product(*backend_, spec, bytes, in)));
  }

  const std::unique_ptr<Backend> backend_ = GetParam().make();
};

TEST_P(QuantizedTest, ProductsHaveTheBitsOfTheirFloats) {
  for (DType dtype : QuantizedDTypes()) {
    for (const Case& c : kCases) {
      SCOPED_TRACE(Name(c, dtype));
      Expect(SpecOf(c, dtype), c.rows);
    }
  }
}

// Rows as QuantizedRows have them: integers of blocks of 32, times a scale.
std::vector<float> RoundedToIntegers(std::vector<float> values) {
  for (size_t begin = 0; begin < values.size(); begin += 32) {
    float largest = 0;
    for (size_t i = begin; i < begin + 32; ++i) largest = std::max(largest, std::abs(values[i]));
    for (size_t i = begin; i < begin + 32; ++i) {
      values[i] = largest == 0 ? 0 : std::nearbyint(values[i] * (127 / largest)) * (largest / 127);
    }
  }
  return values;
}

std::vector<DType> IntegerDTypes() {
  std::vector<DType> dtypes = QuantizedDTypes();
  std::erase_if(dtypes, [](DType dtype) { return !HasIntegers(dtype); });
  return dtypes;
}

// FP8 alone has no integers: its products take floats, whether a job is exact or not.
TEST_P(QuantizedTest, FloatsOf8BitsMultiplyFloats) {
  EXPECT_EQ(IntegerDTypes().size() + 1, QuantizedDTypes().size());
  const WeightSpec spec = SpecOf(kCases[3], DType::kFp8);
  const std::vector<std::byte> stored = RandomRows(spec);
  const std::vector<float> in = RandomFloats(1, kCases[3].rows * spec.cols, 3);
  EXPECT_TRUE(SameBits(Product(*backend_, spec, stored, in, /*exact=*/false),
                       Product(*backend_, spec, stored, in, /*exact=*/true)));
}

// Sums of integers are exact: what floats make of the rounded rows differs by rounding alone.
TEST_P(QuantizedTest, IntegersAreProductsOfRoundedRows) {
  for (DType dtype : IntegerDTypes()) {
    for (const Case& c : kCases) {
      SCOPED_TRACE(Name(c, dtype));
      const WeightSpec spec = SpecOf(c, dtype);
      std::vector<float> in = RandomFloats(1, c.rows * spec.cols, 3);
      std::fill_n(in.begin() + 32, 32, 0.0f);  // without a scale
      const std::vector<std::byte> stored = RandomRows(spec);
      const std::vector<float> actual = Product(*backend_, spec, stored, in, /*exact=*/false);
      const std::vector<float> rounded = RoundedToIntegers(in);
      const std::vector<float> expected =
          Product(*MakeReferenceBackend(), spec, stored, rounded, /*exact=*/true);
      EXPECT_TRUE(Close(actual, expected, Magnitudes(spec, stored, rounded), kRoundings));
      EXPECT_FALSE(SameBits(actual, Product(*backend_, spec, stored, in)));
    }
  }
}

// Sums of the largest numbers are exact, too: bytes of all ones, of signs alone and of none, times
// the largest integers of either sign.
TEST_P(QuantizedTest, LargestIntegersAreSummedExactly) {
  const auto reference = MakeReferenceBackend();
  for (DType dtype : IntegerDTypes()) {
    for (const int byte : {0xFF, 0x80, 0x7F, 0x00}) {
      SCOPED_TRACE(absl::StrCat(std::string(DTypeName(dtype)), ": ", byte));
      const WeightSpec spec = {.rows = 64, .cols = 256, .dtype = dtype};
      std::vector<std::byte> stored = RandomRows(spec);
      // Scales stay as they are: numbers at a block's begin or end.
      const auto block_bytes = static_cast<size_t>(BlockBytes(dtype));
      for (size_t i = 0; i < stored.size(); ++i) {
        const bool half = i % block_bytes < 4 || i % block_bytes >= block_bytes - 4;
        if (!half) stored[i] = static_cast<std::byte>(byte);
      }
      for (const auto& sign : {std::pair(1.0f, 1.0f), {-1.0f, -1.0f}, {1.0f, -1.0f}}) {
        std::vector<float> in(256);
        for (size_t i = 0; i < in.size(); ++i) in[i] = 2 * (i % 2 == 0 ? sign.first : sign.second);
        const std::vector<float> actual = Product(*backend_, spec, stored, in, /*exact=*/false);
        const std::vector<float> expected = Product(*reference, spec, stored, in);
        EXPECT_TRUE(Close(actual, expected, Magnitudes(spec, stored, in), kRoundings));
      }
    }
  }
}

// A NaN or an infinity, wherever it stands, is not lost; tiny values are zeros.
TEST_P(QuantizedTest, WhatIsNoNumberStaysSo) {
  const WeightSpec spec = {.rows = 3, .cols = 64, .dtype = DType::kQ8_0};
  const std::vector<std::byte> stored = RandomRows(spec);
  for (const size_t at : {0, 8, 15, 17, 31, 40}) {
    for (const float odd : {NAN, -NAN, INFINITY, -INFINITY}) {
      std::vector<float> in = RandomFloats(1, 64);
      in[at] = odd;
      for (const float value : Product(*backend_, spec, stored, in, /*exact=*/false)) {
        EXPECT_TRUE(std::isnan(value)) << at << " " << odd;
      }
    }
  }
  std::vector<float> tiny(64, 1e-38f);
  for (const float value : Product(*backend_, spec, stored, tiny, /*exact=*/false)) {
    EXPECT_EQ(value, 0);
  }
}

// Each row has the bits that it has alone, whatever the threads, and on every instruction set (the
// reference has an order of its own).
TEST_P(QuantizedTest, IntegersHaveOneOrder) {
  const auto other = CpuBackends().front().make();
  for (DType dtype : QuantizedDTypes()) {
    SCOPED_TRACE(std::string(DTypeName(dtype)));
    const WeightSpec spec = {
        .rows = 70, .cols = 768, .dtype = dtype, .inner_blocks = 2, .inner_bounds = {0, 512, 768}};
    const std::vector<std::byte> stored = RandomRows(spec);
    const std::vector<float> in = RandomFloats(1, 60 * spec.cols, 3);
    const std::vector<float> all = Product(*backend_, spec, stored, in, /*exact=*/false);
    if (GetParam().name != "Reference") {
      EXPECT_TRUE(SameBits(all, Product(*other, spec, stored, in, /*exact=*/false)));
    }
    const std::vector<float> last(in.end() - spec.cols, in.end());
    EXPECT_TRUE(SameBits({all.end() - spec.rows, all.end()},
                         Product(*backend_, spec, stored, last, /*exact=*/false)));
  }
}

// Blocks of 32 need no multiples of 256.
TEST_P(QuantizedTest, ShortRows) {
  for (DType dtype : QuantizedDTypes()) {
    if (BlockElements(dtype) != 32) continue;
    SCOPED_TRACE(std::string(DTypeName(dtype)));
    Expect({.rows = 3, .cols = 32, .dtype = dtype}, 1);
    Expect(
        {.rows = 66, .cols = 352, .dtype = dtype, .inner_blocks = 2, .inner_bounds = {0, 160, 352}},
        9);
  }
}

// Q4_K_M has such q, k and v.
TEST_P(QuantizedTest, PartsMayBeOfUnlikeTypes) {
  Expect({.rows = 138,
          .cols = 512,
          .parts = {{70, DType::kQ4_K}, {3, DType::kF32}, {64, DType::kQ6_K}, {1, DType::kBF16}}},
         3);
  Expect(
      {.rows = 131, .cols = 96, .parts = {{65, DType::kInt4}, {2, DType::kF16}, {64, DType::kFp8}}},
      3);
}

TEST_P(QuantizedTest, RowsAreLookedUp) {
  for (DType dtype : QuantizedDTypes()) {
    SCOPED_TRACE(std::string(DTypeName(dtype)));
    const WeightSpec spec = {.rows = 130, .cols = 512, .dtype = dtype};
    const std::vector<std::byte> stored = RandomRows(spec);
    const std::vector<float> floats = Floats(spec, stored);
    TestProgram p;
    const BufferId out = p.AddBuffer(spec.cols);
    p.Add(EmbedOp{p.AddStored(spec, stored), 0, spec.rows, out});
    p.Bind(*backend_);
    const std::vector<int32_t> ids = {0, 1, 63, 64, 129};
    SKEIN_ASSERT_OK(p.Run(BatchOf({{{0}, 0, ids}})));
    std::vector<float> expected;
    for (const int32_t id : ids) {
      expected.insert(expected.end(), floats.begin() + id * spec.cols,
                      floats.begin() + (id + 1) * spec.cols);
    }
    EXPECT_TRUE(SameBits(p.Get(out, 5), expected));
  }
}

// Rows come in pieces, in any order.
TEST_P(QuantizedTest, PiecesOfRowsMakeTheWhole) {
  const WeightSpec spec = {.rows = 70, .cols = 256, .dtype = DType::kQ6_K};
  const std::vector<std::byte> stored = RandomRows(spec);
  const std::vector<float> in = RandomFloats(1, spec.cols);
  TestProgram p;
  const BufferId x = p.AddBuffer(spec.cols);
  const BufferId y = p.AddBuffer(spec.rows);
  p.Add(MatMulOp{x, p.AddStored(spec, std::vector<std::byte>(stored.size())), y});
  p.program.exact = true;
  p.Bind(*backend_);
  const auto row_bytes = static_cast<size_t>(DTypeBytes(spec.dtype, spec.cols));
  for (const auto& [first, count] : {std::pair<int64_t, int64_t>{61, 9}, {0, 1}, {1, 60}}) {
    SKEIN_ASSERT_OK(
        LoadRows(*p.weights, {.weight = 0, .first = first, .count = count},
                 absl::MakeConstSpan(stored).subspan(first * row_bytes, count * row_bytes)));
  }
  p.Set(x, in);
  SKEIN_ASSERT_OK(p.Run(Rows(1)));
  EXPECT_TRUE(SameBits(p.Get(y, 1), Product(*backend_, spec, stored, in)));
}

INSTANTIATE_TEST_SUITE_P(All, QuantizedTest, testing::ValuesIn(AllBackends()),
                         [](const auto& info) { return info.param.name; });

TEST(ValidateWeightSpecTest, InnerBlocksFollowTheTypesBlocks) {
  struct Case {
    WeightSpec spec;
    std::string message;  // empty: none
  };
  const Case cases[] = {
      {{.rows = 1, .cols = 64, .dtype = DType::kQ8_0}, ""},
      {{.rows = 1, .cols = 64, .dtype = DType::kQ8_0, .inner_blocks = 2}, ""},
      {{.rows = 1, .cols = 64, .inner_blocks = 3, .inner_bounds = {0, 0, 5, 64}}, ""},
      {{.rows = 1, .cols = 48, .dtype = DType::kQ8_0},
       "ends at column 48, inside of a block of 32 of Q8_0"},
      {{.rows = 1, .cols = 64, .dtype = DType::kQ8_0, .inner_blocks = 4},
       "inner block 0 ends at column 16"},
      {{.rows = 2, .cols = 288, .parts = {{1, DType::kQ8_0}, {1, DType::kQ4_K}}},
       "inside of a block of 256 of Q4_K"},
      {{.rows = 1, .cols = 64, .inner_blocks = 2, .inner_bounds = {0, 64}},
       "2 bounds of 2 inner blocks"},
      {{.rows = 1, .cols = 64, .inner_blocks = 1, .inner_bounds = {0, 63}},
       "inner blocks from 0 to 63 of 64 columns"},
      {{.rows = 1, .cols = 64, .inner_blocks = 2, .inner_bounds = {0, 70, 64}},
       "inner block 1 ends at 64"},
      {{.kind = WeightSpec::Kind::kVector, .rows = 1, .cols = 32, .dtype = DType::kQ8_0},
       "a vector of Q8_0"},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.message);
    if (c.message.empty()) {
      SKEIN_EXPECT_OK(ValidateWeightSpec(c.spec));
    } else {
      EXPECT_THAT(ValidateWeightSpec(c.spec),
                  StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(c.message)));
    }
  }
}

}  // namespace
}  // namespace skein::kernels
