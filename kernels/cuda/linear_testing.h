// What tests of products share: cases, their numbers, and sums in double with the errors that they
// may have.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/dtype.h"
#include "gtest/gtest.h"
#include "kernels/cuda/comparison.h"
#include "kernels/cuda/device_testing.h"

namespace skein::kernels::cuda {

struct Case {
  DType dtype = DType::kBF16;
  DType out_dtype = DType::kBF16;
  int64_t rows = 1;
  int64_t n = 0;
  int64_t k = 0;
  bool bias = false;
  bool residual = false;
  int64_t pad = 0;  // elements between rows of in, weight and out

  std::string Name() const {
    return std::string(DTypeName(dtype)) + " to " + std::string(DTypeName(out_dtype)) + " " +
           std::to_string(rows) + " x " + std::to_string(n) + " x " + std::to_string(k) +
           (bias ? " bias" : "") + (residual ? " residual" : "");
  }
};

// A case's numbers, on both sides.
struct Data {
  explicit Data(const Case& c)
      : in(RandomValues(1, c.rows * (c.k + c.pad), c.dtype)),
        weight(RandomValues(2, c.n * (c.k + c.pad), c.dtype)),
        bias(RandomValues(3, c.n, DType::kF32)),
        residual(RandomValues(4, c.rows * (c.n + c.pad), c.out_dtype)),
        device_in(Encoded(c.dtype, in)),
        device_weight(Encoded(c.dtype, weight)),
        device_bias(bias),
        device_residual(Encoded(c.out_dtype, residual)) {}

  std::vector<float> in, weight, bias, residual;
  DeviceBytes device_in, device_weight;
  DeviceArray<float> device_bias;
  DeviceBytes device_residual;
};

struct Sum {
  double value = 0;
  double magnitude = 0;
};
inline Sum Product(const Case& c, const Data& data, int64_t row, int64_t n) {
  Sum sum;
  for (int64_t i = 0; i < c.k; ++i) {
    const double term =
        double{data.in[row * (c.k + c.pad) + i]} * data.weight[n * (c.k + c.pad) + i];
    sum.value += term;
    sum.magnitude += std::abs(term);
  }
  return sum;
}
// Of a product's sum: a matrix instruction adds 16 products, aligned to the largest, with at least
// 22 bits kept; then the parts of warps and blocks are added.
inline double SumError(const Case& c, double magnitude) {
  return (static_cast<double>(c.k) / 16 + 16) * 0x1p-22 * magnitude;
}

inline Expected ExpectedOf(const Case& c, const Data& data) {
  Expected expected;
  for (int64_t r = 0; r < c.rows; ++r) {
    for (int64_t n = 0; n < c.n; ++n) {
      Sum sum = Product(c, data, r, n);
      const auto add = [&](double x) { sum.value += x, sum.magnitude += std::abs(x); };
      if (c.bias) add(data.bias[n]);
      if (c.residual) add(data.residual[r * (c.n + c.pad) + n]);
      expected.Add(sum.value, SumError(c, sum.magnitude) +
                                  UnitRoundoff(c.out_dtype) * std::abs(sum.value) +
                                  LeastError(c.out_dtype));
    }
  }
  return expected;
}

// Of weight rows that are 8 gates, their 8 ups, and so on.
inline Expected ExpectedSwiGlu(const Case& c, const Data& data) {
  Expected expected;
  for (int64_t r = 0; r < c.rows; ++r) {
    for (int64_t i = 0; i < c.n / 2; ++i) {
      const Sum gate = Product(c, data, r, i / 8 * 16 + i % 8);
      const Sum up = Product(c, data, r, i / 8 * 16 + i % 8 + 8);
      const double silu = gate.value / (1 + std::exp(-gate.value));
      // The slope of SiLU is at most 1.1.
      const double error = 1.1 * SumError(c, gate.magnitude) * std::abs(up.value) +
                           SumError(c, up.magnitude) * std::abs(silu) +
                           (UnitRoundoff(c.dtype) + 0x1p-19) * std::abs(silu * up.value);
      expected.Add(silu * up.value, error + LeastError(c.dtype));
    }
  }
  return expected;
}

// Rows without the gaps between them, which are as they were.
inline std::vector<float> RowsOf(const Case& c, const std::vector<float>& out) {
  std::vector<float> rows;
  for (int64_t r = 0; r < c.rows; ++r) {
    const float* row = out.data() + r * (c.n + c.pad);
    rows.insert(rows.end(), row, row + c.n);
    for (int64_t i = c.n; i < c.n + c.pad; ++i) {
      EXPECT_TRUE(std::isnan(row[i])) << "the gap behind row " << r << " was written";
    }
  }
  return rows;
}

}  // namespace skein::kernels::cuda
