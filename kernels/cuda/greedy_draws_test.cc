// The most likely tokens of rows, against a search through them.
#include "kernels/cuda/greedy_draws.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "base/dtype.h"
#include "base/test_util.h"
#include "gtest/gtest.h"
#include "kernels/cuda/device_testing.h"

namespace skein::kernels::cuda {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// Rows of logits [rows, stride], of which draws take some.
struct Problem {
  Problem(int64_t tokens, int64_t rows)
      : tokens(tokens), stride((tokens + 3) / 4 * 4 + 8), logits(rows * stride, kInfinity) {
    const std::vector<float> values = RandomValues(7, rows * tokens, DType::kF32, 20);
    for (int64_t r = 0; r < rows; ++r) {
      std::copy_n(values.begin() + r * tokens, tokens, Row(r));
    }
  }
  float* Row(int64_t r) { return logits.data() + r * stride; }

  // What draws from these rows, each with the slot of its row plus 1, give; twice, so that what one
  // launch leaves behind shows in the next.
  std::vector<Greatest> Run(const std::vector<int32_t>& rows) {
    std::vector<SetPair> pairs;
    for (int32_t row : rows) pairs.push_back({row, row + 1});
    const DeviceArray<SetPair> device_rows(pairs);
    const DeviceBytes device_logits = Encoded(DType::kF32, logits);
    const DeviceArray<uint64_t> best(std::vector<uint64_t>(rows.size(), 0));
    const DeviceArray<uint32_t> arrived(std::vector<uint32_t>(rows.size(), 0));
    const auto slots = static_cast<int64_t>(logits.size()) / stride + 1;
    const DeviceArray<int32_t> newest_tokens(std::vector<int32_t>(slots, -5));
    std::vector<Greatest> greatest(rows.size());
    OwnStream stream;
    for (int launch = 0; launch < 2; ++launch) {
      DeviceBytes out(static_cast<int64_t>(rows.size() * sizeof(Greatest)));
      Require(Enqueue(GreedyDraws{.draws = static_cast<int32_t>(rows.size()),
                                  .rows = device_rows.get(),
                                  .tokens = tokens,
                                  .logits = static_cast<const float*>(device_logits.data()),
                                  .logits_stride = stride,
                                  .first_id = 1000,
                                  .best = best.get(),
                                  .arrived = arrived.get(),
                                  .newest_tokens = newest_tokens.get(),
                                  .greatest = static_cast<Greatest*>(out.data())},
                      stream));
      Require(stream.Finish());
      out.Download(greatest.data(), out.bytes());
    }
    newest.resize(slots);
    newest_tokens.Download(newest.data(), newest_tokens.bytes());
    return greatest;
  }

  const int64_t tokens, stride;
  std::vector<float> logits;
  std::vector<int32_t> newest;  // by slot, after Run
};

TEST(GreedyDrawsTest, AgreesWithASearch) {
  SKEIN_NEED_GPU();
  for (const int64_t tokens : {1, 3, 500, 8191, 8192, 8193, 128256}) {
    SCOPED_TRACE(tokens);
    Problem problem(tokens, 7);
    // Equal ones, in one block and in several: the first counts.
    for (const int64_t t : {tokens / 3, tokens / 2, tokens - 1}) problem.Row(5)[t] = 100;
    const std::vector<int32_t> rows = {5, 0, 6, 2};
    const std::vector<Greatest> greatest = problem.Run(rows);
    for (size_t i = 0; i < rows.size(); ++i) {
      const float* const row = problem.Row(rows[i]);
      const float* const first = std::max_element(row, row + tokens);
      EXPECT_EQ(greatest[i].logit, *first);
      EXPECT_EQ(greatest[i].id, 1000 + (first - row));
      EXPECT_EQ(problem.newest[rows[i] + 1], greatest[i].id);
    }
    EXPECT_EQ(problem.newest[2], -5);  // of a row that nobody draws from
  }
}

TEST(GreedyDrawsTest, TellsOfNaN) {
  SKEIN_NEED_GPU();
  Problem problem(20000, 5);
  problem.Row(0)[12345] = kNan;
  problem.Row(1)[7] = -kNan;
  problem.Row(1)[9] = kInfinity;
  problem.Row(2)[19999] = kInfinity;
  std::fill_n(problem.Row(3), 20000, -kInfinity);
  std::fill_n(problem.Row(4), 20000, -0.0f);
  problem.Row(4)[3] = 0.0f;  // no greater than -0
  const std::vector<Greatest> greatest = problem.Run({0, 1, 2, 3, 4});
  EXPECT_TRUE(std::isnan(greatest[0].logit));
  EXPECT_EQ(greatest[0].id, -1);
  EXPECT_EQ(problem.newest[1], 0);
  EXPECT_TRUE(std::isnan(greatest[1].logit));
  EXPECT_EQ(greatest[2].logit, kInfinity);
  EXPECT_EQ(greatest[2].id, 1000 + 19999);
  EXPECT_EQ(greatest[3].logit, -kInfinity);
  EXPECT_EQ(greatest[3].id, 1000);
  EXPECT_EQ(greatest[4].logit, 0);
  EXPECT_EQ(greatest[4].id, 1000);
}

TEST(GreedyDrawsTest, RefusesWhatDoesNotFit) {
  SKEIN_NEED_GPU();
  const float* const logits = nullptr;
  EXPECT_THAT(Enqueue(GreedyDraws{.tokens = 8, .logits = logits, .logits_stride = 9}, Stream()),
              StatusIs(absl::StatusCode::kInvalidArgument, testing::HasSubstr("multiples of 4")));
  EXPECT_THAT(Enqueue(GreedyDraws{.tokens = 8, .logits = logits + 1, .logits_stride = 8}, Stream()),
              StatusIs(absl::StatusCode::kInvalidArgument, testing::HasSubstr("16-byte")));
}

}  // namespace
}  // namespace skein::kernels::cuda
