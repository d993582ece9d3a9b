// Draws on the device, against a search through the row and the sampler.
#include "kernels/cuda/device_draws.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "base/dtype.h"
#include "base/test_util.h"
#include "gtest/gtest.h"
#include "kernels/cuda/device_testing.h"
#include "kernels/sampling/sampling.h"

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
  std::vector<DeviceDraw> Run(const std::vector<int32_t>& rows) {
    std::vector<SetPair> pairs;
    for (int32_t row : rows) pairs.push_back({row, row + 1});
    const DeviceArray<SetPair> device_rows(pairs);
    const DeviceBytes device_logits = Encoded(DType::kF32, logits);
    const DeviceArray<uint64_t> best(std::vector<uint64_t>(rows.size(), 0));
    const DeviceArray<uint32_t> arrived(std::vector<uint32_t>(rows.size(), 0));
    const auto slots = static_cast<int64_t>(logits.size()) / stride + 1;
    const DeviceArray<int32_t> newest_tokens(std::vector<int32_t>(slots, -5));
    std::vector<DeviceDraw> drawn(rows.size());
    OwnStream stream;
    for (int launch = 0; launch < 2; ++launch) {
      DeviceBytes out(static_cast<int64_t>(rows.size() * sizeof(DeviceDraw)));
      Require(Enqueue(GreedyDraws{.draws = static_cast<int32_t>(rows.size()),
                                  .rows = device_rows.get(),
                                  .of = {.tokens = tokens,
                                         .logits = static_cast<const float*>(device_logits.data()),
                                         .logits_stride = stride,
                                         .first_id = 1000,
                                         .newest_tokens = newest_tokens.get(),
                                         .drawn = static_cast<DeviceDraw*>(out.data())},
                                  .best = best.get(),
                                  .arrived = arrived.get()},
                      stream));
      Require(stream.Finish());
      out.Download(drawn.data(), out.bytes());
    }
    newest.resize(slots);
    newest_tokens.Download(newest.data(), newest_tokens.bytes());
    return drawn;
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
    const std::vector<DeviceDraw> drawn = problem.Run(rows);
    for (size_t i = 0; i < rows.size(); ++i) {
      const float* const row = problem.Row(rows[i]);
      const float* const first = std::max_element(row, row + tokens);
      EXPECT_EQ(drawn[i].largest, *first);
      EXPECT_EQ(drawn[i].id, 1000 + (first - row));
      EXPECT_EQ(problem.newest[rows[i] + 1], drawn[i].id);
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
  const std::vector<DeviceDraw> drawn = problem.Run({0, 1, 2, 3, 4});
  EXPECT_TRUE(std::isnan(drawn[0].largest));
  EXPECT_EQ(drawn[0].id, -1);
  EXPECT_EQ(problem.newest[1], 0);
  EXPECT_TRUE(std::isnan(drawn[1].largest));
  EXPECT_EQ(drawn[2].largest, kInfinity);
  EXPECT_EQ(drawn[2].id, 1000 + 19999);
  EXPECT_EQ(drawn[3].largest, -kInfinity);
  EXPECT_EQ(drawn[3].id, 1000);
  EXPECT_EQ(drawn[4].largest, 0);
  EXPECT_EQ(drawn[4].id, 1000);
}

TEST(DeviceDrawsTest, RefuseWhatDoesNotFit) {
  SKEIN_NEED_GPU();
  const float* const logits = nullptr;
  const auto refused = [](const DrawRows& rows, const char* why) {
    for (const absl::Status& status :
         {Enqueue(GreedyDraws{.of = rows}, Stream()), Enqueue(RandomDraws{.of = rows}, Stream())}) {
      EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument, testing::HasSubstr(why)));
    }
  };
  refused({.tokens = 8, .logits = logits, .logits_stride = 9}, "multiples of 4");
  refused({.tokens = 8, .logits = logits + 1, .logits_stride = 8}, "16-byte");
  EXPECT_THAT(Enqueue(RandomDraws{.of = {.tokens = kMaxRandomTokens + 1,
                                         .logits = logits,
                                         .logits_stride = kMaxRandomTokens + 4}},
                      Stream()),
              StatusIs(absl::StatusCode::kInvalidArgument, testing::HasSubstr("tokens")));
}

// What the sampler draws from the same rows.
std::vector<DeviceDraw> DrawAll(Problem& problem, const std::vector<RandomDraw>& draws) {
  const DeviceArray<RandomDraw> device_draws(draws);
  const DeviceBytes device_logits = Encoded(DType::kF32, problem.logits);
  const auto slots = static_cast<int64_t>(problem.logits.size()) / problem.stride + 1;
  const DeviceArray<int32_t> newest_tokens(std::vector<int32_t>(slots, -5));
  DeviceBytes out(static_cast<int64_t>(draws.size() * sizeof(DeviceDraw)));
  OwnStream stream;
  Require(Enqueue(RandomDraws{.draws = static_cast<int32_t>(draws.size()),
                              .rows = device_draws.get(),
                              .of = {.tokens = problem.tokens,
                                     .logits = static_cast<const float*>(device_logits.data()),
                                     .logits_stride = problem.stride,
                                     .first_id = 0,
                                     .newest_tokens = newest_tokens.get(),
                                     .drawn = static_cast<DeviceDraw*>(out.data())}},
                  stream));
  Require(stream.Finish());
  std::vector<DeviceDraw> drawn(draws.size());
  out.Download(drawn.data(), out.bytes());
  problem.newest.resize(slots);
  newest_tokens.Download(problem.newest.data(), newest_tokens.bytes());
  return drawn;
}

TEST(RandomDrawsTest, AreTheSamplers) {
  SKEIN_NEED_GPU();
  for (const int64_t tokens : {1, 2, 9, 500, 8192, 50257, 128256}) {
    SCOPED_TRACE(tokens);
    constexpr int64_t kRows = 24;
    Problem problem(tokens, kRows);
    // Rows of all shapes: flat, steep, with many ties, with tokens that cannot be.
    for (int64_t r = 0; r < kRows; ++r) {
      const float scale = r % 4 == 0 ? 0.01f : (r % 4 == 1 ? 0.1f : 1.0f);
      for (int64_t t = 0; t < tokens; ++t) {
        float& logit = problem.Row(r)[t];
        logit *= scale;
        if (r % 4 == 3) logit = std::round(logit / 2);
        if (r % 5 == 4 && t % 3 == 0) logit = -kInfinity;
      }
      problem.Row(r)[tokens / 2] = std::max(problem.Row(r)[tokens / 2], 0.0f);
    }
    std::vector<RandomDraw> draws;
    std::vector<serving::SamplingParams> params;
    for (int32_t r = 0; r < kRows; ++r) {
      serving::SamplingParams of = {.temperature = 0.2f + 0.15f * static_cast<float>(r % 9),
                                    .seed = static_cast<uint64_t>(r)};
      if (r % 2 == 1) of.top_p = 0.05f + 0.04f * static_cast<float>(r);
      if (r % 3 == 1) of.top_k = r % 6 == 1 ? 1 + r : 5000;
      if (r % 7 == 3) of.min_p = 0.02f;
      params.push_back(of);
      draws.push_back({.row = r,
                       .slot = r,
                       .uniform = UniformDraw(of.seed, 0, 0),
                       .temperature = of.temperature,
                       .top_k = of.top_k,
                       .top_p = of.top_p,
                       .min_p = of.min_p});
    }
    const std::vector<DeviceDraw> drawn = DrawAll(problem, draws);
    for (int32_t r = 0; r < kRows; ++r) {
      SCOPED_TRACE(r);
      const absl::Span<const float> row(problem.Row(r), tokens);
      SKEIN_ASSERT_OK_AND_ASSIGN(const serving::SampledToken want,
                                 Sample(row, params[r], {}, {}, 0, std::nullopt));
      EXPECT_EQ(drawn[r].id, want.id);
      EXPECT_EQ(drawn[r].largest, *std::max_element(row.begin(), row.end()));
      EXPECT_EQ(problem.newest[r], want.id);
    }
  }
}

// Over all of [0, 1) each token comes as often as it weighs.
TEST(RandomDrawsTest, EveryUniformHasItsToken) {
  SKEIN_NEED_GPU();
  Problem problem(4, 1);
  const float logits[] = {std::log(0.1f), std::log(0.4f), std::log(0.2f), std::log(0.3f)};
  std::copy_n(logits, 4, problem.Row(0));
  std::vector<RandomDraw> draws;
  for (const float uniform : {0.0f, 0.39f, 0.41f, 0.69f, 0.71f, 0.89f, 0.91f, 0.99999994f}) {
    draws.push_back({.uniform = uniform});
  }
  std::vector<int32_t> ids;
  for (const DeviceDraw& draw : DrawAll(problem, draws)) ids.push_back(draw.id);
  EXPECT_EQ(ids, (std::vector<int32_t>{1, 1, 3, 3, 2, 2, 0, 0}));
}

TEST(RandomDrawsTest, TellOfWhatCannotBeDrawnFrom) {
  SKEIN_NEED_GPU();
  Problem problem(20000, 4);
  problem.Row(0)[19999] = kNan;
  problem.Row(1)[3] = kInfinity;
  std::fill_n(problem.Row(2), 20000, -kInfinity);
  std::fill_n(problem.Row(3), 20000, -kInfinity);
  problem.Row(3)[7] = -3;
  const std::vector<DeviceDraw> drawn =
      DrawAll(problem, {{.row = 0}, {.row = 1, .slot = 1}, {.row = 2, .slot = 2}, {.row = 3}});
  EXPECT_TRUE(std::isnan(drawn[0].largest));
  EXPECT_EQ(drawn[1].largest, kInfinity);
  EXPECT_EQ(drawn[2].largest, -kInfinity);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(drawn[i].id, -1);
  EXPECT_EQ(problem.newest[1], 0);
  EXPECT_EQ(drawn[3].id, 7);
}

}  // namespace
}  // namespace skein::kernels::cuda
