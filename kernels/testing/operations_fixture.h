// Runs Programs of an operation or two on a back end and on the reference, and says how far sums
// may be apart.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "base/test_util.h"
#include "gtest/gtest.h"
#include "kernels/reference/reference_backend.h"
#include "kernels/testing/harness.h"

namespace skein::kernels {

class OperationsTest : public testing::TestWithParam<BackendCase> {
 protected:
  // Runs p on the reference and on the back end with `in` in buffer `id`, and gives buffer `out`.
  struct Results {
    std::vector<float> actual;
    std::vector<float> expected;
  };
  Results Both(TestProgram& p, BufferId id, const std::vector<float>& in, const Batch& batch,
               BufferId out) {
    Results results;
    for (auto [backend, result] : {std::pair{reference_.get(), &results.expected},
                                   std::pair{backend_.get(), &results.actual}}) {
      p.Bind(*backend);
      p.Set(id, in);
      SKEIN_EXPECT_OK(p.Run(batch));
      *result = p.Get(out, batch.rows());
    }
    return results;
  }

  const std::unique_ptr<Backend> backend_ = GetParam().make();
  const std::unique_ptr<Backend> reference_ = MakeReferenceBackend();
};

inline Batch Rows(int64_t rows) {
  return rows == 0 ? Batch{} : BatchOf({{{0}, 0, std::vector<int32_t>(rows, 0)}});
}

inline std::vector<float> Abs(std::vector<float> values) {
  for (float& value : values) value = std::abs(value);
  return values;
}

inline std::vector<float> Squares(std::vector<float> values) {
  for (float& value : values) value *= value;
  return values;
}

// A sum of n terms in float, in whatever order, rounds n partial sums by at most 2^-24 of each. The
// errors' signs are as random as the terms', so that the whole error stays within some standard
// deviations of a sum of random numbers (Higham and Mary, A new approach to probabilistic rounding
// error analysis, 2019), of which six are exceeded once in 10^9 times.
inline constexpr double kSigmas = 6;

// Returns the error of a sum of products with random signs: partial sums have a mean square of at
// most that of all of them.
inline double ErrorOfProducts(double squares, int64_t n) {
  return kSigmas * std::sqrt(static_cast<double>(n) * squares);
}
// Returns the error of a sum of terms of one sign, in parts of the sum; no more than if all errors
// had one sign, too.
inline double ErrorOfSum(int64_t n) {
  return std::min(static_cast<double>(n), kSigmas * std::sqrt(static_cast<double>(n)));
}

}  // namespace skein::kernels
