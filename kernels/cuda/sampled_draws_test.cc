// Draws with parameters, against the sampler.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "base/dtype.h"
#include "base/test_util.h"
#include "gtest/gtest.h"
#include "kernels/cuda/device_draws.h"
#include "kernels/cuda/device_draws_testing.h"
#include "kernels/cuda/device_testing.h"
#include "kernels/sampling/sampling.h"
#include "kernels/sampling/shards.h"

namespace skein::kernels::cuda {
namespace {

// Rows of all shapes: flat, steep, with many ties, with tokens that cannot be.
void Shape(Problem& problem, int64_t rows) {
  for (int64_t r = 0; r < rows; ++r) {
    const float scale = r % 4 == 0 ? 0.01f : (r % 4 == 1 ? 0.1f : 1.0f);
    for (int64_t t = 0; t < problem.tokens; ++t) {
      float& logit = problem.Row(r)[t];
      logit *= scale;
      if (r % 4 == 3) logit = std::round(logit / 2);
      if (r % 5 == 4 && t % 3 == 0) logit = -kInfinity;
    }
    float& middle = problem.Row(r)[problem.tokens / 2];
    middle = std::max(middle, 0.0f);
  }
}

// Each parameter alone, and with others.
std::vector<serving::SamplingParams> Variants() {
  std::vector<serving::SamplingParams> variants = {
      {.temperature = 0},
      {.temperature = 1.3f},
      {.top_k = 1},
      {.temperature = 0.8f, .top_k = 40},
      {.top_k = 5000, .top_p = 0.9f},
      {.top_p = 0.3f},
      {.temperature = 2, .min_p = 0.05f},
      {.top_k = 700, .top_p = 0.8f, .min_p = 0.01f},
      {.typical_p = 0.5f},
      {.temperature = 0.7f, .top_k = 60, .top_p = 0.7f, .min_p = 0.1f, .typical_p = 0.9f},
      {.mirostat_tau = 3},
      {.temperature = 0.6f, .top_k = 3, .mirostat_tau = 0.5f, .mirostat_eta = 0.9f},
      {.repetition_penalty = 1.5f},
      {.presence_penalty = 3},
      {.frequency_penalty = -0.7f},
      {.repetition_penalty = 0.8f,
       .presence_penalty = 0.5f,
       .frequency_penalty = 1.1f,
       .temperature = 0},
      {.logit_bias = {{0, 9.5f}}},
      {.temperature = 0, .logit_bias = {{0, 30}, {0, 0.1f}, {0, 0.1f}}},
      {.temperature = 0, .min_tokens = 300, .stop_ids = {0}},
      {.logprobs = 0},
      {.temperature = 0, .logprobs = 20},
      {.dry_multiplier = 0.8f, .dry_allowed_length = 1},
      {.temperature = 0.5f,
       .dry_multiplier = 3,
       .dry_base = 1.2f,
       .dry_last_n = 100,
       .dry_breakers = {{3}, {4, 5}}},
  };
  // With all that comes before the temperature, and all that is told.
  const size_t alone = variants.size();
  for (size_t v = 0; v < alone; ++v) {
    serving::SamplingParams both = variants[v];
    both.repetition_penalty = 1.2f;
    both.presence_penalty = 0.3f;
    both.frequency_penalty = 0.2f;
    both.logprobs = 7;
    both.logit_bias = {{0, 2.5f}, {0, -1}};
    both.min_tokens = v % 2 == 0 ? 300 : 3;
    both.stop_ids = {0};
    variants.push_back(both);
  }
  return variants;
}

std::vector<Drawing> Drawings(int64_t tokens, uint32_t seed) {
  std::vector<Drawing> drawings;
  std::mt19937 random(seed);
  const auto any = [&] { return static_cast<int32_t>(random() % static_cast<uint32_t>(tokens)); };
  for (serving::SamplingParams& params : Variants()) {
    Drawing& drawing = drawings.emplace_back(Drawing{.params = std::move(params)});
    drawing.params.seed = random();
    // Tokens of lists: the same ones often, and of all parts of the row; the lists ascend.
    for (size_t b = 1; b < drawing.params.logit_bias.size(); ++b) {
      drawing.params.logit_bias[b].id = static_cast<int32_t>(tokens / 2);
    }
    if (!drawing.params.stop_ids.empty()) drawing.params.stop_ids = {any(), any()};
    for (int i = 0; i < 150; ++i) drawing.prompt.push_back(i % 3 == 0 ? any() : any() % 20);
    for (int i = 0; i < 80; ++i) drawing.output.push_back(i % 3 == 0 ? any() : any() % 20);
    if (random() % 2 == 0) drawing.mu = 2.5f;
  }
  return drawings;
}

// Draws from rows of all shapes, which begin with the `seed`th; every second seed has masks.
void ExpectTheSamplers(int64_t tokens, const std::vector<Drawing>& drawings, uint32_t seed) {
  const auto rows = static_cast<int64_t>(drawings.size());
  Problem problem(tokens, rows + seed);
  Shape(problem, rows + seed);
  problem.logits.erase(problem.logits.begin(), problem.logits.begin() + seed * problem.stride);
  // Some tokens may be drawn, never less than one.
  std::vector<uint32_t> masks;
  std::mt19937 random(seed);
  const int64_t words = MaskWords(tokens);
  if (seed % 2 == 1) {
    masks.resize(rows * words);
    for (uint32_t& word : masks) word = random() & random();
    for (int64_t r = 0; r < rows; ++r) {
      masks[r * words + tokens / 2 / 32] |= uint32_t{1} << (tokens / 2 % 32);
    }
  }
  Slots slots(drawings, tokens);
  const std::vector<DeviceDraw> drawn = slots.Draw(problem, drawings, masks);
  for (int64_t r = 0; r < rows; ++r) {
    SCOPED_TRACE(r);
    const Drawing& of = drawings[r];
    const auto mask = absl::MakeConstSpan(masks);
    ExpectSame(of, of.Question(tokens, masks.empty() ? mask : mask.subspan(r * words, words)),
               drawn[r], {problem.Row(r), static_cast<size_t>(tokens)});
    const int32_t newest = std::max(drawn[r].id, 0);
    EXPECT_EQ(At<int32_t>(slots.newest, r), newest);
    const int64_t end = r * slots.stride + 230;
    EXPECT_EQ(At<int32_t>(slots.histories, end), slots.DrawOf(of, 0).remembers() ? newest : -7);
    EXPECT_EQ(At<int32_t>(slots.histories, end + 1), -7);
    if (of.params.mirostat_tau > 0) {
      EXPECT_EQ(At<float>(slots.mus, r), drawn[r].mu);
    }
  }
}

TEST(SampledDrawsTest, AreTheSamplers) {
  SKEIN_NEED_HOPPER();
  for (const int64_t tokens : {1, 2, 9, 500, 8192, 50257, 128256}) {
    SCOPED_TRACE(tokens);
    for (uint32_t seed = 0; seed < 4; ++seed) {
      ExpectTheSamplers(tokens, Drawings(tokens, seed), seed);
    }
  }
}

// What a sanitizer can look at in a minute; the ties of some rows are more than are listed.
TEST(FewDrawsTest, AreTheSamplers) {
  SKEIN_NEED_HOPPER();
  constexpr int64_t kTokens = 5000;
  for (uint32_t seed = 0; seed < 2; ++seed) {
    const std::vector<Drawing> all = Drawings(kTokens, seed);
    std::vector<Drawing> few;
    for (size_t d = 3; d < all.size(); d += 6) few.push_back(all[d]);
    ExpectTheSamplers(kTokens, few, seed);
  }
}

// Each sum has one order: a row gives the same bits whatever is drawn beside it, and wherever it
// lies.
TEST(SampledDrawsTest, NeighboursLeaveBitsAlone) {
  SKEIN_NEED_HOPPER();
  constexpr int64_t kTokens = 20000;
  std::vector<Drawing> drawings = Drawings(kTokens, 7);
  for (Drawing& drawing : drawings) drawing.params.logprobs = 0;
  const auto rows = static_cast<int64_t>(drawings.size());
  Problem problem(kTokens, rows);
  Shape(problem, rows);
  const std::vector<DeviceDraw> together = Slots(drawings, kTokens).Draw(problem, drawings, {});
  for (int64_t r = 0; r < rows; r += 3) {
    SCOPED_TRACE(r);
    Problem one(kTokens, 1);
    std::copy_n(problem.Row(r), kTokens, one.Row(0));
    const std::vector<Drawing> alone = {drawings[r]};
    const DeviceDraw drawn = Slots(alone, kTokens).Draw(one, alone, {}).at(0);
    EXPECT_EQ(drawn.id, together[r].id);
    EXPECT_EQ(drawn.told.sum, together[r].told.sum);
    if (drawings[r].params.mirostat_tau > 0) {
      EXPECT_EQ(drawn.mu, together[r].mu);
    }
  }
}

// A prompt's tokens: nothing is drawn, nothing changes.
TEST(SampledDrawsTest, TellOfTokensThatAreNamed) {
  SKEIN_NEED_HOPPER();
  for (const int64_t tokens : {7, 128256}) {
    SCOPED_TRACE(tokens);
    Problem problem(tokens, 6);
    Shape(problem, 6);
    problem.Row(5)[tokens / 3] = kNan;
    const std::vector<Drawing> drawings(6, {.params = {.presence_penalty = 1}});
    Slots slots(drawings, tokens);
    std::vector<SampledDraw> draws;
    for (int32_t r = 0; r < 6; ++r) {
      draws.push_back({.row = r, .slot = r, .logprobs = 4 * r, .token = 0, .leaves = false});
      draws.back().token = static_cast<int32_t>(r < 3 ? r : tokens - r + 2);
    }
    const std::vector<DeviceDraw> told = slots.Draw(problem, draws, {});
    for (int32_t r = 0; r < 6; ++r) {
      SCOPED_TRACE(r);
      ExpectSame({.params = {.logprobs = 4 * r}},
                 {.vocabulary = tokens, .token = draws[r].token, .logprobs = 4 * r}, told[r],
                 {problem.Row(r), static_cast<size_t>(tokens)});
      EXPECT_EQ(At<int32_t>(slots.newest, r), -7);
      EXPECT_EQ(At<int32_t>(slots.histories, r * slots.stride), -7);
    }
  }
}

TEST(SampledDrawsTest, LeaveNothingWhereTheyAreToLeaveNothing) {
  SKEIN_NEED_HOPPER();
  Problem problem(500, 1);
  const std::vector<Drawing> drawings = {
      {.params = {.presence_penalty = 1, .mirostat_tau = 3}, .prompt = {1, 2}, .mu = 5}};
  Slots slots(drawings, 500);
  std::vector<SampledDraw> draws = {slots.DrawOf(drawings[0], 0)};
  draws[0].leaves = false;
  const DeviceDraw drawn = slots.Draw(problem, draws, {}).at(0);
  ExpectSame(drawings[0], drawings[0].Question(500, {}), drawn, {problem.Row(0), 500});
  EXPECT_EQ(At<int32_t>(slots.newest, 0), -7);
  EXPECT_EQ(At<int32_t>(slots.histories, 2), -7);
  EXPECT_EQ(At<float>(slots.mus, 0), 5);
}

// What a draw leaves with its slot is what the next one needs.
TEST(SampledDrawsTest, FollowEachOther) {
  SKEIN_NEED_HOPPER();
  Problem problem(500, 1);
  for (int64_t t = 0; t < 500; ++t) problem.Row(0)[t] /= 100;
  std::vector<Drawing> drawings = {{.params = {.repetition_penalty = 1.2f,
                                               .frequency_penalty = 2,
                                               .temperature = 0.3f,
                                               .seed = 5,
                                               .mirostat_tau = 4,
                                               .dry_multiplier = 0.5f,
                                               .dry_allowed_length = 1}}};
  Slots slots(drawings, 500);
  for (int step = 0; step < 50; ++step) {
    SCOPED_TRACE(step);
    const DeviceDraw drawn = slots.Draw(problem, drawings, {}).at(0);
    ExpectSame(drawings[0], drawings[0].Question(500, {}), drawn, {problem.Row(0), 500});
    drawings[0].output.push_back(drawn.id);
    drawings[0].mu = drawn.mu;
  }
}

// Over all of [0, 1) each token comes as often as it weighs.
TEST(SampledDrawsTest, EveryUniformHasItsToken) {
  SKEIN_NEED_HOPPER();
  Problem problem(4, 1);
  const float logits[] = {std::log(0.1f), std::log(0.4f), std::log(0.2f), std::log(0.3f)};
  std::copy_n(logits, 4, problem.Row(0));
  std::vector<SampledDraw> draws;
  for (const float uniform : {0.0f, 0.39f, 0.41f, 0.69f, 0.71f, 0.89f, 0.91f, 0.99999994f}) {
    draws.push_back({.uniform = uniform});
  }
  const DeviceArray<SampledDraw> device_draws(draws);
  const DeviceBytes device_logits = Encoded(DType::kF32, problem.logits);
  DeviceBytes out(static_cast<int64_t>(draws.size() * sizeof(DeviceDraw)));
  OwnStream stream;
  Require(Enqueue(SampledDraws{.draws = static_cast<int32_t>(draws.size()),
                               .rows = device_draws.get(),
                               .of = {.tokens = 4,
                                      .logits = static_cast<const float*>(device_logits.data()),
                                      .logits_stride = problem.stride,
                                      .drawn = static_cast<DeviceDraw*>(out.data())}},
                  stream));
  Require(stream.Finish());
  std::vector<DeviceDraw> drawn(draws.size());
  out.Download(drawn.data(), out.bytes());
  std::vector<int32_t> ids;
  for (const DeviceDraw& draw : drawn) ids.push_back(draw.id);
  EXPECT_EQ(ids, (std::vector<int32_t>{1, 1, 3, 3, 2, 2, 0, 0}));
}

TEST(SampledDrawsTest, TellOfWhatCannotBeDrawnFrom) {
  SKEIN_NEED_HOPPER();
  for (const float temperature : {0.0f, 1.0f}) {
    Problem problem(20000, 5);
    problem.Row(0)[19999] = kNan;
    problem.Row(1)[3] = kInfinity;
    std::fill_n(problem.Row(2), 20000, -kInfinity);
    std::fill_n(problem.Row(3), 20000, -kInfinity);
    problem.Row(3)[7] = -3;
    problem.Row(4)[19998] = kNan;  // is left out, and told of
    std::vector<Drawing> drawings(5, {.params = {.temperature = temperature}});
    drawings[4].params.min_tokens = 1;
    drawings[4].params.stop_ids = {19998};
    drawings[4].params.logprobs = 1;
    Slots slots(drawings, 20000);
    const std::vector<DeviceDraw> drawn = slots.Draw(problem, drawings, {});
    for (int64_t r = 0; r < 5; ++r) {
      SCOPED_TRACE(r);
      ExpectSame(drawings[r], drawings[r].Question(20000, {}), drawn[r], {problem.Row(r), 20000});
    }
    EXPECT_TRUE(std::isnan(drawn[0].largest));
    EXPECT_EQ(drawn[1].largest, kInfinity);
    EXPECT_EQ(drawn[2].largest, -kInfinity);
    for (int i = 0; i < 3; ++i) EXPECT_EQ(drawn[i].id, -1);
    EXPECT_EQ(At<int32_t>(slots.newest, 1), 0);
    EXPECT_EQ(drawn[3].id, 7);
    EXPECT_GE(drawn[4].id, 0);
    EXPECT_TRUE(std::isnan(drawn[4].told.largest));
  }
}

}  // namespace
}  // namespace skein::kernels::cuda
