// Tests what executables of all back ends on the host sum up for BatchSequence::pooled.
#include <cmath>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/test_util.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/testing/harness.h"

namespace skein::kernels {
namespace {

using ::testing::DoubleNear;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pointwise;
using ::testing::SizeIs;

constexpr int64_t kCols = 48;
constexpr float kEps = 0.01f;

class PooledTest : public testing::TestWithParam<BackendCase> {
 protected:
  const std::unique_ptr<Backend> backend_ = GetParam().make();
};

TEST_P(PooledTest, LastRowsOfSequencesAreNormedAndSummed) {
  const std::vector<float> gain = RandomFloats(3, kCols, 2);
  TestProgram p;
  const BufferId in = p.AddBuffer(kCols), other = p.AddBuffer(kCols), all = p.AddBuffer(kCols);
  p.Add(AddOp{in, other, all});
  p.program.pooled = {all, p.AddVector(gain), kEps};
  p.Bind(*backend_);
  const std::vector<float> a = RandomFloats(1, 45 * kCols), b = RandomFloats(2, 45 * kCols);
  p.Set(in, a);
  p.Set(other, b);
  Batch batch;
  batch.sequences = {{.slot = 3, .rows = 2},
                     {.slot = 1, .rows = 40, .pooled = 40},
                     {.slot = 0, .rows = 3, .pooled = 1}};
  batch.token_ids.resize(45);
  SKEIN_ASSERT_OK(p.Run(batch));

  const auto sum_of = [&](int64_t begin, int64_t end) {
    std::vector<double> sum(kCols);
    for (int64_t r = begin; r < end; ++r) {
      double squares = 0;
      for (int64_t c = 0; c < kCols; ++c)
        squares += std::pow(a[r * kCols + c] + b[r * kCols + c], 2);
      for (int64_t c = 0; c < kCols; ++c) {
        sum[c] +=
            (a[r * kCols + c] + b[r * kCols + c]) / std::sqrt(squares / kCols + kEps) * gain[c];
      }
    }
    return sum;
  };
  const std::vector<PooledRows>& pooled = p.executable->result(0).pooled;
  ASSERT_THAT(pooled, SizeIs(2));
  EXPECT_EQ(pooled[0].slot, 1);
  EXPECT_EQ(pooled[0].rows, 40);
  EXPECT_THAT(pooled[0].sum, Pointwise(DoubleNear(1e-5), sum_of(2, 42)));
  EXPECT_EQ(pooled[1].slot, 0);
  EXPECT_EQ(pooled[1].rows, 1);
  EXPECT_THAT(pooled[1].sum, Pointwise(DoubleNear(1e-6), sum_of(44, 45)));

  for (BatchSequence& sequence : batch.sequences) sequence.pooled = 0;
  SKEIN_ASSERT_OK(p.Run(batch));
  EXPECT_THAT(p.executable->result(0).pooled, IsEmpty());
  batch.sequences[0].pooled = 3;
  EXPECT_THAT(p.Run(batch),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("slot 3 pools 3 of 2 rows")));
}

INSTANTIATE_TEST_SUITE_P(Backends, PooledTest, testing::ValuesIn(AllBackends()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace skein::kernels
