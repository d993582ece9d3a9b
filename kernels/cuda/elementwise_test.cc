// RmsNorm, QkNorm, AddBias, SwiGlu and GatherRows against loops in double.
#include <cmath>
#include <cstdint>
#include <vector>

#include "base/dtype.h"
#include "base/test_util.h"
#include "gtest/gtest.h"
#include "kernels/cuda/add_bias.h"
#include "kernels/cuda/comparison.h"
#include "kernels/cuda/device_testing.h"
#include "kernels/cuda/gather_rows.h"
#include "kernels/cuda/qk_norm.h"
#include "kernels/cuda/rms_norm.h"
#include "kernels/cuda/swiglu.h"

namespace skein::kernels::cuda {
namespace {

constexpr DType kDTypes[] = {DType::kBF16, DType::kF16};

struct Shape {
  int64_t rows;
  int64_t cols;
  int64_t pad;  // elements between rows
};

// x[r * stride + c] of rows with gaps.
std::vector<float> Spread(const std::vector<float>& dense, const Shape& shape) {
  const int64_t stride = shape.cols + shape.pad;
  std::vector<float> spread(static_cast<size_t>(shape.rows * stride), 0.5f);
  for (int64_t r = 0; r < shape.rows; ++r) {
    for (int64_t c = 0; c < shape.cols; ++c) spread[r * stride + c] = dense[r * shape.cols + c];
  }
  return spread;
}
std::vector<float> Dense(const std::vector<float>& spread, const Shape& shape) {
  std::vector<float> dense;
  for (int64_t r = 0; r < shape.rows; ++r) {
    for (int64_t c = 0; c < shape.cols; ++c) {
      dense.push_back(spread[r * (shape.cols + shape.pad) + c]);
    }
  }
  return dense;
}

void TestRmsNorm(DType dtype, DType residual_dtype, DType delta_dtype, const Shape& shape,
                 bool add) {
  SCOPED_TRACE(testing::Message() << DTypeName(dtype) << " " << DTypeName(residual_dtype) << " "
                                  << DTypeName(delta_dtype) << " " << shape.rows << " x "
                                  << shape.cols << " add " << add);
  const int64_t count = shape.rows * shape.cols;
  const std::vector<float> before = RandomValues(1, count, residual_dtype, 3);
  const std::vector<float> delta = RandomValues(2, count, delta_dtype, 2);
  const std::vector<float> gain = RandomValues(3, shape.cols, DType::kF32);
  constexpr float kEps = 1e-5f;

  std::vector<float> sum = before;
  if (add) {
    for (int64_t i = 0; i < count; ++i) sum[i] += delta[i];
    sum = Rounded(residual_dtype, sum);
  }
  Expected expected;
  for (int64_t r = 0; r < shape.rows; ++r) {
    double squares = 0;
    for (int64_t c = 0; c < shape.cols; ++c) squares += std::pow(sum[r * shape.cols + c], 2);
    const double root = std::sqrt(squares / static_cast<double>(shape.cols) + kEps);
    for (int64_t c = 0; c < shape.cols; ++c) {
      const double value = sum[r * shape.cols + c] / root * gain[c];
      // 32 squares in a thread and 10 levels of the block, then a few roundings more.
      expected.Add(value,
                   std::abs(value) * (UnitRoundoff(dtype) + 64 * 0x1p-24) + LeastError(dtype));
    }
  }

  OwnStream stream;
  const DeviceBytes residual = Encoded(residual_dtype, Spread(before, shape));
  const DeviceBytes added = Encoded(delta_dtype, Spread(delta, shape));
  const DeviceArray<float> gains(gain);
  const int64_t stride = shape.cols + shape.pad;
  const DeviceBytes out(DTypeBytes(dtype, shape.rows * stride));
  SKEIN_ASSERT_OK(Enqueue(RmsNorm{.dtype = dtype,
                                  .residual_dtype = residual_dtype,
                                  .delta_dtype = delta_dtype,
                                  .rows = shape.rows,
                                  .cols = shape.cols,
                                  .residual = residual.data(),
                                  .delta = add ? added.data() : nullptr,
                                  .gain = gains.get(),
                                  .eps = kEps,
                                  .out = out.data(),
                                  .residual_stride = stride,
                                  .delta_stride = stride,
                                  .out_stride = stride},
                          stream));
  SKEIN_ASSERT_OK(stream.Finish());
  EXPECT_TRUE(SameBits(Decoded(residual_dtype, residual), Spread(sum, shape)));
  const std::vector<float> written = Decoded(dtype, out);
  EXPECT_TRUE(Agrees(Dense(written, shape), expected));
  for (int64_t r = 0; shape.pad > 0 && r < shape.rows; ++r) {
    EXPECT_TRUE(std::isnan(written[r * stride + shape.cols])) << "a gap was written";
  }
}

TEST(RmsNormTest, AgreesWithTheDefinition) {
  SKEIN_NEED_GPU();
  const Shape shapes[] = {{1, 8, 0},    {3, 248, 8},  {2, 256, 0},  {5, 1000, 16}, {64, 2048, 0},
                          {1, 4096, 0}, {7, 8192, 8}, {2, 8200, 0}, {1, 16392, 0}, {2, 32768, 0}};
  for (DType dtype : kDTypes) {
    for (DType residual : {dtype, DType::kF32}) {
      for (const Shape& shape : shapes) {
        TestRmsNorm(dtype, residual, dtype, shape, true);
        TestRmsNorm(dtype, residual, DType::kF32, shape, true);
        TestRmsNorm(dtype, residual, dtype, shape, false);
      }
    }
  }
}

TEST(RmsNormTest, WorksInPlaceAndOnlyAdds) {
  SKEIN_NEED_GPU();
  OwnStream stream;
  const std::vector<float> x = RandomValues(1, 4 * 512, DType::kBF16);
  const std::vector<float> d = RandomValues(2, 4 * 512, DType::kBF16);
  const DeviceArray<float> gain(std::vector<float>(512, 1.0f));
  const auto run = [&](const DeviceBytes& residual, const DeviceBytes& delta, void* out) {
    return Enqueue(RmsNorm{.rows = 4,
                           .cols = 512,
                           .residual = residual.data(),
                           .delta = delta.data(),
                           .gain = gain.get(),
                           .eps = 1e-6f,
                           .out = out,
                           .residual_stride = 512,
                           .delta_stride = 512,
                           .out_stride = 512},
                   stream);
  };
  const DeviceBytes sums[] = {Encoded(DType::kBF16, x), Encoded(DType::kBF16, x),
                              Encoded(DType::kBF16, x)};
  const DeviceBytes delta = Encoded(DType::kBF16, d);
  const DeviceBytes in_place = Encoded(DType::kBF16, d);
  const DeviceBytes out(2 * 4 * 512);
  SKEIN_ASSERT_OK(run(sums[0], delta, out.data()));
  SKEIN_ASSERT_OK(run(sums[1], in_place, in_place.data()));
  SKEIN_ASSERT_OK(run(sums[2], delta, nullptr));
  SKEIN_ASSERT_OK(stream.Finish());
  EXPECT_TRUE(SameBits(Decoded(DType::kBF16, in_place), Decoded(DType::kBF16, out)));
  EXPECT_TRUE(SameBits(Decoded(DType::kBF16, sums[2]), Decoded(DType::kBF16, sums[0])));
}

TEST(QkNormTest, AgreesWithTheDefinition) {
  SKEIN_NEED_GPU();
  struct Case {
    int64_t rows;
    int32_t heads, kv_heads, head_dim;
  };
  constexpr float kEps = 1e-5f;
  for (const DType dtype : kDTypes) {
    for (const Case& c : {Case{1, 1, 1, 64}, {3, 7, 1, 96}, {70, 32, 8, 128}, {2, 5, 5, 8}}) {
      SCOPED_TRACE(testing::Message() << c.rows << " rows, " << c.heads << "/" << c.kv_heads
                                      << " heads of " << c.head_dim);
      const int32_t normed = c.heads + c.kv_heads;
      const Shape shape = {c.rows, int64_t{normed + c.kv_heads} * c.head_dim, 8};
      const std::vector<float> before = RandomValues(1, shape.rows * shape.cols, dtype, 3);
      const std::vector<float> gains[] = {RandomValues(2, c.head_dim, DType::kF32),
                                          RandomValues(3, c.head_dim, DType::kF32)};
      Expected expected;
      for (int64_t i = 0; i < shape.rows * shape.cols; ++i) {
        const int64_t head = i % shape.cols / c.head_dim;
        double value = before[i];
        if (head < normed) {
          double squares = 0;
          const int64_t begin = i - i % c.head_dim;
          for (int64_t d = 0; d < c.head_dim; ++d) squares += std::pow(before[begin + d], 2);
          value *= gains[head < c.heads ? 0 : 1][i % c.head_dim] /
                   std::sqrt(squares / c.head_dim + kEps);
        }
        // 4 squares in a thread and 5 levels of the warp, then a few roundings more.
        expected.Add(value,
                     std::abs(value) * (UnitRoundoff(dtype) + 16 * 0x1p-24) + LeastError(dtype));
      }
      OwnStream stream;
      const DeviceBytes qkv = Encoded(dtype, Spread(before, shape));
      const DeviceArray<float> q_gain(gains[0]), k_gain(gains[1]);
      SKEIN_ASSERT_OK(Enqueue(QkNorm{.dtype = dtype,
                                     .rows = shape.rows,
                                     .heads = c.heads,
                                     .kv_heads = c.kv_heads,
                                     .head_dim = c.head_dim,
                                     .qkv = qkv.data(),
                                     .qkv_stride = shape.cols + shape.pad,
                                     .q_gain = q_gain.get(),
                                     .k_gain = k_gain.get(),
                                     .eps = kEps},
                              stream));
      SKEIN_ASSERT_OK(stream.Finish());
      EXPECT_TRUE(Agrees(Dense(Decoded(dtype, qkv), shape), expected));
    }
  }
}

TEST(AddBiasTest, AgreesWithTheDefinition) {
  SKEIN_NEED_GPU();
  for (const DType dtype : {DType::kBF16, DType::kF16, DType::kF32}) {
    for (const GateUpLayout layout : {GateUpLayout::kHalves, GateUpLayout::kInterleaved}) {
      for (const Shape& shape : {Shape{1, 16, 0}, Shape{3, 1008, 8}, Shape{17, 4096, 0},
                                 Shape{1, 28672, 0}, Shape{70000, 16, 0}}) {
        SCOPED_TRACE(testing::Message() << DTypeName(dtype) << " " << shape.rows << " x "
                                        << shape.cols << ", layout " << static_cast<int>(layout));
        const std::vector<float> before = RandomValues(1, shape.rows * shape.cols, dtype, 3);
        const std::vector<float> bias = RandomValues(2, shape.cols, DType::kF32);
        std::vector<float> sums = before;
        for (size_t i = 0; i < sums.size(); ++i) {
          const int64_t c = static_cast<int64_t>(i) % shape.cols;
          const int64_t of = layout == GateUpLayout::kHalves
                                 ? c
                                 : c / 16 * 8 + c % 8 + (c % 16 < 8 ? 0 : shape.cols / 2);
          sums[i] += bias[of];
        }
        OwnStream stream;
        const DeviceBytes x = Encoded(dtype, Spread(before, shape));
        const DeviceArray<float> biases(bias);
        SKEIN_ASSERT_OK(Enqueue(AddBias{.dtype = dtype,
                                        .rows = shape.rows,
                                        .cols = shape.cols,
                                        .x = x.data(),
                                        .bias = biases.get(),
                                        .stride = shape.cols + shape.pad,
                                        .layout = layout},
                                stream));
        SKEIN_ASSERT_OK(stream.Finish());
        EXPECT_TRUE(SameBits(Decoded(dtype, x), Spread(Rounded(dtype, sums), shape)));
      }
    }
  }
}

void TestSwiGlu(DType dtype, GateUpLayout layout, const Shape& shape) {
  SCOPED_TRACE(testing::Message() << DTypeName(dtype) << " " << shape.rows << " x " << shape.cols);
  const std::vector<float> gate = RandomValues(1, shape.rows * shape.cols, dtype, 12);
  const std::vector<float> up = RandomValues(2, shape.rows * shape.cols, dtype, 2);
  const int64_t in_stride = 2 * shape.cols + shape.pad;
  std::vector<float> gate_up(static_cast<size_t>(shape.rows * in_stride), 0.0f);
  Expected expected;
  for (int64_t r = 0; r < shape.rows; ++r) {
    for (int64_t c = 0; c < shape.cols; ++c) {
      const int64_t i = r * shape.cols + c;
      const bool halves = layout == GateUpLayout::kHalves;
      const int64_t at = halves ? c : c / 8 * 16 + c % 8;
      gate_up[r * in_stride + at] = gate[i];
      gate_up[r * in_stride + at + (halves ? shape.cols : 8)] = up[i];
      const double value = gate[i] / (1.0 + std::exp(-double{gate[i]})) * up[i];
      // exp's argument and result, a sum, a quotient, a product.
      expected.Add(value, std::abs(value) * (UnitRoundoff(dtype) + 0x1p-19) + LeastError(dtype));
    }
  }
  OwnStream stream;
  const DeviceBytes in = Encoded(dtype, gate_up);
  const DeviceBytes out(DTypeBytes(dtype, shape.rows * (shape.cols + shape.pad)));
  SKEIN_ASSERT_OK(Enqueue(SwiGlu{.dtype = dtype,
                                 .layout = layout,
                                 .rows = shape.rows,
                                 .cols = shape.cols,
                                 .gate_up = in.data(),
                                 .out = out.data(),
                                 .gate_up_stride = in_stride,
                                 .out_stride = shape.cols + shape.pad},
                          stream));
  SKEIN_ASSERT_OK(stream.Finish());
  EXPECT_TRUE(Agrees(Dense(Decoded(dtype, out), shape), expected));
}

TEST(SwiGluTest, AgreesWithTheDefinition) {
  SKEIN_NEED_GPU();
  for (DType dtype : kDTypes) {
    for (GateUpLayout layout : {GateUpLayout::kHalves, GateUpLayout::kInterleaved}) {
      for (const Shape& shape : {Shape{1, 8, 0}, Shape{3, 1000, 8}, Shape{17, 2048, 0},
                                 Shape{1, 14336, 0}, Shape{70000, 8, 0}}) {
        TestSwiGlu(dtype, layout, shape);
      }
    }
  }
}

TEST(SwiGluTest, ExtremesStayFinite) {
  SKEIN_NEED_GPU();
  OwnStream stream;
  std::vector<float> gate_up = {-1e30f, 1e30f, -100, 100, 0, -0.0f, 88, -88};
  gate_up.resize(16, 1.0f);
  const DeviceBytes in = Encoded(DType::kBF16, gate_up);
  const DeviceBytes out(16);
  SKEIN_ASSERT_OK(Enqueue(SwiGlu{.rows = 1,
                                 .cols = 8,
                                 .gate_up = in.data(),
                                 .out = out.data(),
                                 .gate_up_stride = 16,
                                 .out_stride = 8},
                          stream));
  SKEIN_ASSERT_OK(stream.Finish());
  const std::vector<float> values = Decoded(DType::kBF16, out);
  const std::vector<float> limits = Rounded(DType::kBF16, {0, 1e30f, 0, 100, 0, 0, 88, 0});
  for (size_t i = 0; i < limits.size(); ++i) EXPECT_NEAR(values[i], limits[i], 1e-30) << i;
}

TEST(GatherRowsTest, CopiesRowsAndZeros) {
  SKEIN_NEED_GPU();
  struct Types {
    DType in, out;
  };
  for (const Types types : {Types{DType::kBF16, DType::kBF16}, Types{DType::kBF16, DType::kF32},
                            Types{DType::kF16, DType::kF16}, Types{DType::kF16, DType::kF32},
                            Types{DType::kF32, DType::kF32}}) {
    for (const int64_t cols : {8, 264, 4096}) {
      OwnStream stream;
      constexpr int64_t kCount = 50;
      constexpr int64_t kFirst = 100;
      const std::vector<float> table = RandomValues(1, kCount * cols, types.in);
      const std::vector<int32_t> ids = {100, 149, 99, 150, 0, 123, 123, -1, 100000};
      std::vector<float> expected;
      for (int64_t id : ids) {
        const bool inside = id >= kFirst && id < kFirst + kCount;
        for (int64_t c = 0; c < cols; ++c) {
          expected.push_back(inside ? table[(id - kFirst) * cols + c] : 0.0f);
        }
      }
      const DeviceBytes in = Encoded(types.in, table);
      const DeviceArray<int32_t> numbers(ids);
      const auto rows = static_cast<int64_t>(ids.size());
      const DeviceBytes out(DTypeBytes(types.out, rows * cols));
      SKEIN_ASSERT_OK(Enqueue(GatherRows{.in_dtype = types.in,
                                         .out_dtype = types.out,
                                         .rows = rows,
                                         .cols = cols,
                                         .ids = numbers.get(),
                                         .first_id = kFirst,
                                         .count = kCount,
                                         .in = in.data(),
                                         .out = out.data(),
                                         .in_stride = cols,
                                         .out_stride = cols},
                              stream));
      SKEIN_ASSERT_OK(stream.Finish());
      EXPECT_TRUE(SameBits(Decoded(types.out, out), expected));
    }
  }
}

TEST(ElementwiseTest, RefusesWhatDoesNotFit) {
  EXPECT_THAT(Enqueue(RmsNorm{.rows = 1, .cols = 12}, {}),
              StatusIs(absl::StatusCode::kInvalidArgument, testing::HasSubstr("12 columns")));
  EXPECT_THAT(Enqueue(RmsNorm{.dtype = DType::kF32, .rows = 1, .cols = 16}, {}),
              StatusIs(absl::StatusCode::kUnimplemented, testing::HasSubstr("F32")));
  EXPECT_THAT(Enqueue(AddBias{.rows = 1, .cols = 12}, {}),
              StatusIs(absl::StatusCode::kInvalidArgument, testing::HasSubstr("12 columns")));
  EXPECT_THAT(Enqueue(AddBias{.rows = 1, .cols = 24, .layout = GateUpLayout::kInterleaved}, {}),
              StatusIs(absl::StatusCode::kInvalidArgument, testing::HasSubstr("a multiple of 16")));
  EXPECT_THAT(Enqueue(QkNorm{.rows = 1, .heads = 1, .head_dim = 256}, {}),
              StatusIs(absl::StatusCode::kUnimplemented, testing::HasSubstr("heads of 256")));
  EXPECT_THAT(Enqueue(QkNorm{.rows = 1, .heads = 1, .head_dim = 64, .qkv_stride = 60}, {}),
              StatusIs(absl::StatusCode::kInvalidArgument, testing::HasSubstr("strides")));
  EXPECT_THAT(Enqueue(QkNorm{.rows = 1, .head_dim = 64}, {}),
              StatusIs(absl::StatusCode::kInvalidArgument, testing::HasSubstr("0 heads")));
  EXPECT_THAT(Enqueue(SwiGlu{.rows = 1, .cols = 9}, {}),
              StatusIs(absl::StatusCode::kInvalidArgument, testing::HasSubstr("9 columns")));
  EXPECT_THAT(Enqueue(GatherRows{.rows = 1, .cols = 1}, {}),
              StatusIs(absl::StatusCode::kInvalidArgument, testing::HasSubstr("1 columns")));
}

}  // namespace
}  // namespace skein::kernels::cuda
