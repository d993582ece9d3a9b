// Holds a kernel's output against numbers and the error that each may have.
#pragma once

#include <cmath>
#include <cstddef>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/testing/compare.h"

namespace skein::kernels::cuda {

struct Expected {
  std::vector<float> values;
  std::vector<float> errors;  // as `magnitude` of one rounding for Close

  void Add(double value, double error) {
    values.push_back(static_cast<float>(value));
    errors.push_back(static_cast<float>(error * 0x1p24));
  }
};

inline testing::AssertionResult Agrees(const std::vector<float>& actual, const Expected& expected) {
  return Close(actual, expected.values, expected.errors, 1.0);
}

}  // namespace skein::kernels::cuda
