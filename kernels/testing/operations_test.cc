// Holds every operation on every back end of the CPU against the reference, over shapes, dtypes and
// odd sizes.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/dtype.h"
#include "base/test_util.h"
#include "kernels/testing/compare.h"
#include "kernels/testing/harness.h"
#include "kernels/testing/operations_fixture.h"

namespace skein::kernels {
namespace {

TEST_P(OperationsTest, MatMul) {
  struct Case {
    int64_t rows, cols, outputs;
    int32_t blocks;
  };
  const Case cases[] = {
      {0, 16, 64, 1},    {1, 1, 1, 1},      {1, 17, 1, 1},     {1, 64, 64, 1},  {1, 100, 63, 1},
      {2, 33, 65, 1},    {3, 16, 130, 1},   {4, 257, 16, 1},   {5, 31, 15, 1},  {6, 64, 128, 1},
      {7, 100, 17, 1},   {13, 96, 200, 1},  {70, 128, 96, 1},  {1, 100, 64, 8}, {5, 257, 70, 3},
      {8, 256, 64, 8},   {5, 3000, 64, 7},  {8, 2500, 70, 8},  {31, 64, 33, 2}, {2, 3, 65, 8},
      {6, 77, 64, 7},    {1, 2048, 192, 1}, {50, 2049, 64, 1}, {77, 40, 70, 8}, {5, 3000, 64, 2},
      {17, 1024, 64, 1},
  };
  for (const Case& c : cases) {
    for (DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
      SCOPED_TRACE(absl::StrCat(c.rows, " x ", c.cols, " -> ", c.outputs, ", ", c.blocks,
                                " blocks, ", std::string(DTypeName(dtype))));
      const auto input = RandomFloats(1, c.rows * c.cols, 3);
      const auto matrix = Rounded(RandomFloats(2, c.outputs * c.cols), dtype);
      const auto run = [&](const std::vector<float>& x, const std::vector<float>& w, DType kept) {
        TestProgram p;
        const BufferId in = p.AddBuffer(c.cols);
        const BufferId out = p.AddBuffer(c.outputs);
        const WeightSpec spec{
            .rows = c.outputs, .cols = c.cols, .dtype = kept, .inner_blocks = c.blocks};
        p.Add(MatMulOp{in, p.AddWeight(spec, w), out});
        return Both(p, in, x, Rows(c.rows), out);
      };
      const Results sums = run(input, matrix, dtype);
      std::vector<float> errors = run(Squares(input), Squares(matrix), DType::kF32).expected;
      for (float& error : errors) {
        error = static_cast<float>(ErrorOfProducts(error, c.cols + c.blocks));
      }
      EXPECT_TRUE(Close(sums.actual, sums.expected, errors, 1));
    }
  }
}

// Quantised files are such: each of q, k and v may be of another type.
TEST_P(OperationsTest, PartsOfAWeightMayBeOfUnlikeDTypes) {
  constexpr int64_t kCols = 48, kRows = 3;
  const std::vector<WeightSpec::Part> parts = {
      {70, DType::kBF16}, {3, DType::kF32}, {64, DType::kF16}, {1, DType::kBF16}};
  const std::vector<float> x = RandomFloats(3, kRows * kCols);
  // The parts are multiplied joined, and each by itself.
  TestProgram joined;
  const BufferId in = joined.AddBuffer(kCols), out = joined.AddBuffer(138);
  const WeightSpec spec{.rows = 138, .cols = kCols, .inner_blocks = 2, .parts = parts};
  const std::vector<float> values = RandomFloats(4, 138 * kCols);
  joined.Add(MatMulOp{in, joined.AddWeight(spec, values), out});
  joined.Bind(*backend_);
  joined.Set(in, x);
  SKEIN_ASSERT_OK(joined.Run(Rows(kRows)));
  const std::vector<float> got = joined.Get(out, kRows);
  int64_t first = 0;
  for (const WeightSpec::Part& part : parts) {
    TestProgram alone;
    const BufferId own_in = alone.AddBuffer(kCols), own_out = alone.AddBuffer(part.rows);
    const auto begin = values.begin() + first * kCols;
    alone.Add(MatMulOp{
        own_in,
        alone.AddWeight({.rows = part.rows, .cols = kCols, .dtype = part.dtype, .inner_blocks = 2},
                        {begin, begin + part.rows * kCols}),
        own_out});
    alone.Bind(*backend_);
    alone.Set(own_in, x);
    SKEIN_ASSERT_OK(alone.Run(Rows(kRows)));
    const std::vector<float> want = alone.Get(own_out, kRows);
    for (int64_t r = 0; r < kRows; ++r) {
      for (int64_t c = 0; c < part.rows; ++c) {
        ASSERT_EQ(got[r * 138 + first + c], want[r * part.rows + c]) << first << " + " << c;
      }
    }
    first += part.rows;
  }
  // Rows are looked up, too.
  TestProgram table;
  const BufferId row = table.AddBuffer(kCols);
  table.Add(EmbedOp{table.AddWeight(spec, values), 0, 138, row});
  table.Bind(*backend_);
  SKEIN_ASSERT_OK(table.Run(BatchOf({{{0}, 0, {69, 70, 72, 73, 137}}})));
  const std::vector<float> rows = table.Get(row, 5);
  const std::pair<int64_t, DType> looked_up[] = {{69, DType::kBF16},
                                                 {70, DType::kF32},
                                                 {72, DType::kF32},
                                                 {73, DType::kF16},
                                                 {137, DType::kBF16}};
  for (int64_t r = 0; r < 5; ++r) {
    const auto& [id, dtype] = looked_up[r];
    const auto begin = values.begin() + id * kCols;
    EXPECT_EQ((std::vector<float>{rows.begin() + r * kCols, rows.begin() + (r + 1) * kCols}),
              Rounded({begin, begin + kCols}, dtype));
  }
}

TEST_P(OperationsTest, RowsThatAreNotThereAreRefused) {
  Program program;
  program.weights = {{"a", {.rows = 5, .cols = 4, .dtype = DType::kF32}},
                     {"b", {.rows = 5, .cols = 4, .parts = {{2, DType::kF32}, {3, DType::kF16}}}}};
  SKEIN_ASSERT_OK_AND_ASSIGN(const auto weights, backend_->AllocateWeights(program));
  const std::vector<std::byte> bytes(200);
  struct Case {
    WeightRows rows;
    int64_t bytes;
    const char* message;
  };
  for (const Case& c :
       {Case{{.weight = 2, .count = 1}, 16, "no weight 2 of 2"},
        {{.weight = 0, .first = 4, .count = 2}, 32, "weight a: rows [4, +2) of 5"},
        {{.weight = 0, .first = -1, .count = 1}, 16, "rows [-1"},
        {{.weight = 0, .count = 1, .component = 1}, 16, "no component 1"},
        {{.weight = 0, .count = 2}, 31, "31 bytes for 2 rows of 4 F32"},
        {{.weight = 1, .first = 1, .count = 2}, 24, "rows [1, +2) are of unlike"},
        {{.weight = 1, .first = 2, .count = 1}, 16, "16 bytes for 1 rows of 4 F16"}}) {
    EXPECT_THAT(LoadRows(*weights, c.rows, absl::MakeSpan(bytes).first(c.bytes)),
                StatusIs(absl::StatusCode::kInvalidArgument, testing::HasSubstr(c.message)));
  }
  program.weights[1].spec.rows = 6;
  EXPECT_THAT(backend_->AllocateWeights(program).status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       testing::HasSubstr("weight b: parts of 5 rows of 6")));
}

TEST_P(OperationsTest, RowsPackedInPiecesAndOutOfOrder) {
  constexpr int64_t kRows = 150;
  constexpr int64_t kCols = 37;
  for (DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    // Small integers are exact in every dtype; the bytes start unaligned.
    std::vector<float> values(kRows * kCols);
    std::iota(values.begin(), values.end(), -2000.0f);
    for (float& value : values) value = std::fmod(value, 113.0f);
    std::vector<std::byte> bytes(1 + DTypeBytes(dtype, kRows * kCols));
    for (size_t i = 0; i < values.size(); ++i) {
      const uint16_t half = dtype == DType::kF16 ? FloatToF16(values[i]) : FloatToBf16(values[i]);
      const bool wide = dtype == DType::kF32;
      std::memcpy(&bytes[1 + DTypeBytes(dtype, static_cast<int64_t>(i))],
                  wide ? static_cast<const void*>(&values[i]) : &half, wide ? 4 : 2);
    }
    const WeightSpec spec{.rows = kRows, .cols = kCols, .dtype = dtype};
    TestProgram p;
    const BufferId out = p.AddBuffer(kCols);
    p.limits.rows = kRows;
    p.program.weights.push_back({"table", spec});
    p.Add(EmbedOp{0, 0, kRows, out});
    SKEIN_ASSERT_OK_AND_ASSIGN(p.weights, backend_->AllocateWeights(p.program));
    for (auto [first, count] : {std::pair{100, 50}, {0, 1}, {63, 37}, {1, 62}, {63, 0}}) {
      SKEIN_ASSERT_OK(LoadRows(*p.weights, {.first = first, .count = count},
                               absl::MakeSpan(&bytes[1 + DTypeBytes(dtype, first * kCols)],
                                              DTypeBytes(dtype, count * kCols))));
    }
    SKEIN_ASSERT_OK(p.weights->FinishLoading());
    SKEIN_ASSERT_OK_AND_ASSIGN(
        p.executable, backend_->Compile(p.program, p.limits, {.weights = p.weights.get()}));
    SKEIN_ASSERT_OK(p.executable->WarmUp());
    Chunk all{{0}, 0, std::vector<int32_t>(kRows)};
    std::iota(all.token_ids.begin(), all.token_ids.end(), 0);
    Batch batch = BatchOf({all});
    batch.sequences[0].outputs = 0;
    SKEIN_ASSERT_OK(p.Run(batch));
    EXPECT_EQ(p.Get(out, kRows), values);
  }
}

TEST_P(OperationsTest, RmsNorm) {
  for (int64_t rows : {0, 1, 5, 40}) {
    for (int64_t cols : {1, 3, 16, 33, 100, 2048}) {
      SCOPED_TRACE(absl::StrCat(rows, " x ", cols));
      TestProgram p;
      const BufferId in = p.AddBuffer(cols);
      const BufferId out = p.AddBuffer(cols);
      p.Add(RmsNormOp{in, p.AddVector(RandomFloats(3, cols)), 1e-6f, out});
      const Results r = Both(p, in, RandomFloats(4, rows * cols, 5), Rows(rows), out);
      // The relative error is half of that of a sum of squares, then come a square root and three
      // products.
      EXPECT_TRUE(Close(r.actual, r.expected, Abs(r.expected), ErrorOfSum(cols) / 2 + 6));
    }
  }
}

TEST_P(OperationsTest, AddRmsNorm) {
  for (int64_t rows : {1, 7, 64}) {
    for (int64_t cols : {1, 17, 1030}) {
      SCOPED_TRACE(absl::StrCat(rows, " x ", cols));
      TestProgram p;
      const BufferId residual = p.AddBuffer(cols);
      const BufferId delta = p.AddBuffer(cols);
      const BufferId sum = p.AddBuffer(cols);
      const WeightId gain = p.AddVector(RandomFloats(5, cols));
      p.Add(AddOp{delta, residual, delta});
      p.Add(AddRmsNormOp{residual, delta, gain, 1e-5f, delta});
      p.Add(RmsNormOp{residual, gain, 1e-5f, sum});
      const auto in = RandomFloats(6, rows * cols);
      const Results norms = Both(p, residual, in, Rows(rows), delta);
      EXPECT_TRUE(
          Close(norms.actual, norms.expected, Abs(norms.expected), ErrorOfSum(cols) / 2 + 6));
      EXPECT_TRUE(
          SameBits(p.Get(residual, rows), Both(p, residual, in, Rows(rows), residual).expected));
      EXPECT_TRUE(SameBits(p.Get(sum, rows), p.Get(delta, rows)));
    }
  }
}

TEST_P(OperationsTest, AddBias) {
  for (int64_t rows : {0, 1, 7, 64}) {
    for (int64_t cols : {1, 17, 1030}) {
      SCOPED_TRACE(absl::StrCat(rows, " x ", cols));
      TestProgram p;
      const BufferId x = p.AddBuffer(cols);
      p.Add(AddBiasOp{x, p.AddVector(RandomFloats(8, cols))});
      const Results r = Both(p, x, RandomFloats(9, rows * cols), Rows(rows), x);
      EXPECT_TRUE(SameBits(r.actual, r.expected));
    }
  }
}

TEST_P(OperationsTest, QkNorm) {
  struct Case {
    int32_t heads, kv_heads, head_dim;
  };
  for (int64_t rows : {0, 1, 5, 40}) {
    for (const Case& c : {Case{1, 1, 1}, {3, 1, 10}, {4, 2, 64}, {6, 3, 97}, {8, 8, 128}}) {
      SCOPED_TRACE(absl::StrCat(rows, " rows, ", c.heads, "/", c.kv_heads, " of ", c.head_dim));
      const int64_t cols = int64_t{c.heads + 2 * c.kv_heads} * c.head_dim;
      TestProgram p;
      const BufferId qkv = p.AddBuffer(cols);
      p.Add(QkNormOp{qkv, c.heads, c.kv_heads, c.head_dim, p.AddVector(RandomFloats(3, c.head_dim)),
                     p.AddVector(RandomFloats(4, c.head_dim)), 1e-6f});
      const Results r = Both(p, qkv, RandomFloats(5, rows * cols, 5), Rows(rows), qkv);
      EXPECT_TRUE(Close(r.actual, r.expected, Abs(r.expected), ErrorOfSum(c.head_dim) / 2 + 6));
    }
  }
}

// GELU's gates go up to 5: where they are small the exponent of e has up to 40 of its own size,
// whose rounding the power makes as many.
TEST_P(OperationsTest, GatedUnits) {
  const struct {
    GateActivation activation;
    float largest;
    double roundings;
  } kCases[] = {{GateActivation::kSilu, 30, 6}, {GateActivation::kGeluTanh, 5, 50}};
  for (const auto& [activation, largest, roundings] : kCases) {
    for (int64_t rows : {1, 3, 64}) {
      for (int64_t cols : {1, 15, 16, 70, 512}) {
        SCOPED_TRACE(absl::StrCat(largest, ": ", rows, " x ", cols));
        TestProgram p;
        const BufferId in = p.AddBuffer(2 * cols);
        const BufferId out = p.AddBuffer(cols);
        p.Add(GluOp{in, out, activation});
        const Results r = Both(p, in, RandomFloats(7, rows * 2 * cols, largest), Rows(rows), out);
        EXPECT_TRUE(Close(r.actual, r.expected, Abs(r.expected), roundings));
      }
    }
  }
}

TEST_P(OperationsTest, ScaleAndSoftCap) {
  for (int64_t rows : {1, 3, 64}) {
    for (int64_t cols : {1, 15, 16, 70, 512}) {
      SCOPED_TRACE(absl::StrCat(rows, " x ", cols));
      TestProgram p;
      const BufferId x = p.AddBuffer(cols);
      p.Add(ScaleOp{x, 0.37f});
      p.Add(SoftCapOp{x, 8.0f});
      const Results r = Both(p, x, RandomFloats(7, rows * cols, 60), Rows(rows), x);
      EXPECT_TRUE(Close(r.actual, r.expected, std::vector<float>(r.expected.size(), 8.0f), 6));
    }
  }
}

TEST_P(OperationsTest, SoftCapAtTheEdges) {
  const float inf = std::numeric_limits<float>::infinity();
  const std::vector<float> in = {0, -0.0f, 1e-30f, 1000, -1000, 1e30f, -1e30f, inf, -inf};
  TestProgram p;
  const BufferId x = p.AddBuffer(static_cast<int64_t>(in.size()));
  p.Add(SoftCapOp{x, 8.0f});
  const Results r = Both(p, x, in, Rows(1), x);
  EXPECT_TRUE(Close(r.actual, r.expected, std::vector<float>(in.size(), 8.0f), 6));
}

TEST_P(OperationsTest, SwiGluAtTheEdges) {
  const float inf = std::numeric_limits<float>::infinity();
  const std::vector<float> gates = {-0.0f, -85,   -88, -103.5f, -110, -1e30f, 85,
                                    90,    1e30f, inf, 1e-40f,  -1,   0.125f, std::nanf("")};
  const auto n = static_cast<int64_t>(gates.size());
  std::vector<float> in = gates;
  in.resize(2 * n, 1.0f);
  TestProgram p;
  const BufferId gate_up = p.AddBuffer(2 * n);
  const BufferId out = p.AddBuffer(n);
  p.Add(GluOp{gate_up, out});
  const Results r = Both(p, gate_up, in, Rows(1), out);
  std::vector<float> magnitude = Abs(r.expected);
  for (float& m : magnitude) {
    if (std::isnan(m) || std::isinf(m)) m = 1;
    m = std::max(m, 1e-36f);  // e^88 and more overflow before the quotient is that small
  }
  EXPECT_TRUE(Close(r.actual, r.expected, magnitude, 6));
}

TEST_P(OperationsTest, NothingToDo) {
  TestProgram p;
  const BufferId x = p.AddBuffer(8);
  const BufferId y = p.AddBuffer(8, BufferSpec::Rows::kOutputs);
  const BufferId logits = p.AddBuffer(70, BufferSpec::Rows::kOutputs);
  p.Add(GatherRowsOp{x, y});
  p.Add(RmsNormOp{y, p.AddVector(std::vector<float>(8, 1.0f)), 1e-5f, y});
  p.Add(MatMulOp{y, p.AddWeight({.rows = 70, .cols = 8}, RandomFloats(1, 560)), logits});
  p.Add(AllReduceOp{logits});
  Batch batch = Rows(3);
  batch.sequences[0].outputs = 0;
  class Unused final : public Collectives {
    absl::Status AllReduce(View, Stream) override { return absl::InternalError("called"); }
    absl::Status AllGather(ConstView, View, Stream) override {
      return absl::InternalError("called");
    }
  } unused;
  p.collectives = &unused;
  p.Bind(*backend_);
  SKEIN_EXPECT_OK(p.Run(batch));
  SKEIN_EXPECT_OK(p.Run(Batch{}));
}

INSTANTIATE_TEST_SUITE_P(Backends, OperationsTest, testing::ValuesIn(CpuBackends()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace skein::kernels
