#include "kernels/sampling/sampling.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/test_util.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/sampling/shards.h"
#include "kernels/sampling/survivors.h"

namespace skein::kernels {
namespace {

using ::testing::HasSubstr;

constexpr float kInf = std::numeric_limits<float>::infinity();

TEST(PhiloxTest, KnownAnswers) {
  // These are Random123's kat_vectors.
  EXPECT_EQ(Philox({0, 0, 0, 0}, {0, 0}),
            (std::array<uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(Philox({~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}),
            (std::array<uint32_t, 4>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(Philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (std::array<uint32_t, 4>{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(SampleTest, RefusesWhatHasNoAnswer) {
  const float nan = std::nanf("");
  for (const auto& logits : {std::vector<float>{1, nan}, std::vector<float>{-kInf, -kInf},
                             std::vector<float>{1, kInf}, std::vector<float>{}}) {
    for (float temperature : {0.0f, 1.0f}) {
      EXPECT_THAT(Sample(logits, {.temperature = temperature}, {}, {}, 0),
                  StatusIs(absl::StatusCode::kInternal, HasSubstr("cannot sample")));
    }
  }
  const std::vector<float> two = {1, 2};
  for (int32_t token : {-1, 2}) {
    EXPECT_THAT(Sample(two, {}, std::vector<int32_t>{token}, {}, 0),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("of the history")));
    EXPECT_THAT(Sample(two, {}, {}, std::vector<int32_t>{0, token}, 2),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("of the history")));
    const auto refusal = [&](const serving::SamplingParams& params, const char* where) {
      EXPECT_THAT(Sample(two, params, {}, {}, 0),
                  StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(where)));
    };
    refusal({.logit_bias = {{0, 1.0f}, {token, 1.0f}}}, "of logit_bias");
    refusal({.stop_ids = {token}}, "of stop_ids");
    refusal({.dry_breakers = {{1}, {0, token}}}, "of a dry breaker");
  }
  for (float mu : {nan, kInf}) {
    EXPECT_THAT(Sample(two, {.mirostat_tau = 5.0f}, {}, {}, 0, mu),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("mirostat's mu")));
  }
  EXPECT_THAT(Sample(two, {.min_tokens = 1, .stop_ids = {0, 1}}, {}, {}, 0),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("none is finite")));
  EXPECT_THAT(Answer({.vocabulary = 1, .token = 0, .logprobs = 1}, std::vector<float>{nan}),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("cannot sample")));
}

// Holds the shortcuts for large vocabularies against sorting everything, in two orders of logits:
// in descending order all that matter come first, in ascending order last.
class LargeVocabularyTest : public testing::TestWithParam<const char*> {};

TEST_P(LargeVocabularyTest, AgreesWithSorting) {
  constexpr int32_t kVocabulary = 50000;
  std::vector<float> logits(kVocabulary);
  uint32_t state = 1;
  for (float& logit : logits) {
    state = state * 1664525 + 1013904223;
    // Coarse steps make many ties.
    logit = std::round(static_cast<float>(static_cast<int32_t>(state)) * 0x1p-28f * 16) / 16;
  }
  const std::string order_of_logits = GetParam();
  if (order_of_logits != "random") std::sort(logits.begin(), logits.end());
  if (order_of_logits == "descending") std::reverse(logits.begin(), logits.end());
  const serving::SamplingParams variants[] = {{},
                                              {.top_k = 1},
                                              {.temperature = 3.0f, .top_k = 50},
                                              {.top_k = 50, .top_p = 0.5f},
                                              {.temperature = 3.0f, .top_k = kVocabulary - 1},
                                              {.temperature = 3.0f, .top_k = kVocabulary + 1},
                                              {.temperature = 50.0f},
                                              {.temperature = 0.2f, .top_k = 1000},
                                              {.top_k = 777, .top_p = 0.5f},
                                              {.temperature = 1.5f, .top_p = 0.99f},
                                              {.top_p = 0.8f, .min_p = 0.01f}};
  for (serving::SamplingParams params : variants) {
    SKEIN_ASSERT_OK_AND_ASSIGN(const auto survivors, Survivors(logits, params, {}, {}));
    std::vector<int32_t> order(kVocabulary);
    for (int32_t i = 0; i < kVocabulary; ++i) order[i] = i;
    std::stable_sort(order.begin(), order.end(),
                     [&](int32_t a, int32_t b) { return logits[a] > logits[b]; });
    for (size_t i = 0; i < survivors.size(); ++i) ASSERT_EQ(survivors[i].id, order[i]) << i;
    if (params.top_k > 0 && params.top_p == 1.0f) {
      EXPECT_EQ(survivors.size(), static_cast<size_t>(std::min(params.top_k, kVocabulary)));
    }

    for (uint64_t position = 0; position < 20; ++position) {
      params.seed = position * 977;
      SKEIN_ASSERT_OK_AND_ASSIGN(const auto token, Sample(logits, params, {}, {}, position));
      const double u = UniformDraw(params.seed, position);
      double sum = 0;
      size_t i = 0;
      while (i + 1 < survivors.size() && (sum += survivors[i].probability) <= u) ++i;
      EXPECT_EQ(token.id, survivors[i].id);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Orders, LargeVocabularyTest,
                         testing::Values("random", "ascending", "descending"),
                         [](const auto& info) { return std::string(info.param); });

TEST(SampleTest, LogprobsAreOfferedAsAskedFor) {
  const std::vector<float> logits = {1, 3, 2, 3};
  const auto sample = [&](int32_t logprobs) {
    return Sample(logits, {.temperature = 0, .logprobs = logprobs}, {}, {}, 0)->top_logprobs;
  };
  EXPECT_TRUE(sample(-1).empty());
  EXPECT_TRUE(sample(0).empty());
  const auto two = sample(2);
  ASSERT_EQ(two.size(), 2u);
  EXPECT_EQ(two[0].id, 1);
  EXPECT_EQ(two[1].id, 3);
  EXPECT_EQ(sample(100).size(), 4u);
}

std::vector<float> Noise(int32_t vocabulary, uint32_t state) {
  std::vector<float> logits(vocabulary);
  for (float& logit : logits) {
    state = state * 1664525 + 1013904223;
    logit = static_cast<float>(static_cast<int32_t>(state)) * 0x1p-30f;
  }
  return logits;
}

// Sets every extra so that it does nothing.
serving::SamplingParams Idle() {
  serving::SamplingParams params = {.logprobs = 2};
  params.logit_bias = {{3, 0.0f}};
  params.min_tokens = 2;  // the output below is longer
  params.stop_ids = {0, 1};
  params.mirostat_eta = 0.7f;
  params.dry_multiplier = 5.0f;
  params.dry_base = 3.0f;
  params.dry_allowed_length = 9;
  params.dry_breakers = {{2}, {3, 4}};
  return params;
}

TEST(SampleTest, IdleExtrasChangeNoBit) {
  const std::vector<int32_t> prompt = {1, 2, 3, 1, 2};
  std::vector<int32_t> output = {4, 4, 1};
  for (uint32_t i = 0; i < 50; ++i) {
    const std::vector<float> logits = Noise(1000, i);
    serving::SamplingParams plain = {.temperature = 0.8f, .top_p = 0.9f, .seed = i, .logprobs = 2};
    serving::SamplingParams idle = Idle();
    idle.temperature = plain.temperature;
    idle.top_p = plain.top_p;
    idle.seed = i;
    output.push_back(static_cast<int32_t>(i));
    SKEIN_ASSERT_OK_AND_ASSIGN(const auto a, Survivors(logits, plain, prompt, output));
    SKEIN_ASSERT_OK_AND_ASSIGN(const auto b, Survivors(logits, idle, prompt, output));
    ASSERT_EQ(a.size(), b.size());
    for (size_t k = 0; k < a.size(); ++k) {
      ASSERT_EQ(a[k].id, b[k].id);
      ASSERT_EQ(a[k].probability, b[k].probability);
    }
    SKEIN_ASSERT_OK_AND_ASSIGN(const auto x, Sample(logits, plain, prompt, output, output.size()));
    SKEIN_ASSERT_OK_AND_ASSIGN(const auto y, Sample(logits, idle, prompt, output, output.size()));
    EXPECT_EQ(x.id, y.id);
    EXPECT_EQ(x.logprob, y.logprob);
  }
}

// Half of an answer is drawn here, half of it elsewhere: only the tokens and the last mu go over.
TEST(SampleTest, MirostatGoesOnFromItsState) {
  const std::vector<int32_t> prompt = {5, 6};
  const serving::SamplingParams params = {.seed = 9, .answer = 2, .mirostat_tau = 4.0f};
  std::vector<serving::SampledToken> whole;
  std::vector<int32_t> output;
  const auto step = [&](std::optional<float> mu) {
    return Sample(Noise(5000, static_cast<uint32_t>(output.size())), params, prompt, output,
                  output.size(), mu);
  };
  for (int i = 0; i < 40; ++i) {
    SKEIN_ASSERT_OK_AND_ASSIGN(auto token,
                               step(whole.empty() ? std::optional<float>() : whole.back().mu));
    output.push_back(token.id);
    whole.push_back(std::move(token));
  }
  output.resize(20);
  float mu = whole[19].mu;
  for (size_t i = 20; i < whole.size(); ++i) {
    SKEIN_ASSERT_OK_AND_ASSIGN(const auto token, step(mu));
    EXPECT_EQ(token.id, whole[i].id);
    EXPECT_EQ(token.mu, whole[i].mu);
    output.push_back(token.id);
    mu = token.mu;
  }
  // Another state would be seen.
  output.resize(20);
  EXPECT_NE(step(whole[18].mu)->mu, whole[20].mu);
}

// The controller holds the average surprise.
TEST(SampleTest, MirostatReachesItsTarget) {
  const std::vector<float> logits = Noise(2000, 1);
  for (float tau : {3.0f, 6.0f}) {
    const serving::SamplingParams params = {.seed = 4, .mirostat_tau = tau};
    float mu = 2 * tau;
    double sum = 0;
    constexpr int kWarm = 200;
    constexpr int kCounted = 1000;
    for (int i = 0; i < kWarm + kCounted; ++i) {
      SKEIN_ASSERT_OK_AND_ASSIGN(const auto token, Sample(logits, params, {}, {}, i, mu));
      // mu moves by -0.1 times (surprise - tau).
      if (i >= kWarm) sum += tau - double{token.mu - mu} / 0.1;
      mu = token.mu;
    }
    EXPECT_NEAR(sum / kCounted, tau, 0.1);
  }
}

// Draws of one answer at many positions, and of many answers at one position, follow the
// probabilities: chi-squared of 7 degrees of freedom, whose 99.99th percentile is 29.9.
TEST(SampleTest, DrawsFollowTheProbabilities) {
  const std::vector<float> logits = {2.0f, 1.0f, 0.0f, -1.0f, -2.0f, 0.5f, -0.5f, 1.5f};
  constexpr int kDraws = 8000;
  for (const serving::SamplingParams& params :
       {serving::SamplingParams{.seed = 7},
        serving::SamplingParams{.temperature = 1.5f, .seed = 8, .answer = 3},
        serving::SamplingParams{.seed = 9, .logit_bias = {{4, 3.0f}}}}) {
    SKEIN_ASSERT_OK_AND_ASSIGN(const auto survivors, Survivors(logits, params, {}, {}));
    for (bool answers : {false, true}) {
      std::vector<int> counts(logits.size(), 0);
      for (int i = 0; i < kDraws; ++i) {
        serving::SamplingParams drawn = params;
        if (answers) drawn.answer = static_cast<uint32_t>(i);
        SKEIN_ASSERT_OK_AND_ASSIGN(const auto token,
                                   Sample(logits, drawn, {}, {}, answers ? 17 : i));
        ++counts[token.id];
      }
      double chi_squared = 0;
      for (const TokenProbability& s : survivors) {
        const double expected = kDraws * s.probability;
        chi_squared += (counts[s.id] - expected) * (counts[s.id] - expected) / expected;
      }
      EXPECT_LT(chi_squared, 29.9);
    }
  }
}

TEST(SampleTest, SamplesOfOneSeedDifferFromTheFirstToken) {
  const std::vector<float> logits = Noise(50000, 3);
  std::set<int32_t> ids;
  for (uint32_t sample = 0; sample < 64; ++sample) {
    ids.insert(Sample(logits, {.seed = 1, .answer = sample}, {}, {}, 0)->id);
  }
  EXPECT_GT(ids.size(), 60u);
}

// Holds radix selection over distances against sorting them.
TEST(SampleTest, TypicalAgreesWithSortingALargeVocabulary) {
  const std::vector<float> logits = Noise(50000, 5);
  for (float typical_p : {0.1f, 0.5f, 0.95f}) {
    SKEIN_ASSERT_OK_AND_ASSIGN(const auto all, Survivors(logits, {}, {}, {}));
    SKEIN_ASSERT_OK_AND_ASSIGN(const auto kept,
                               Survivors(logits, {.typical_p = typical_p}, {}, {}));
    double entropy = 0;
    for (const auto& t : all) entropy -= t.probability * std::log(t.probability);
    std::vector<std::pair<double, double>> order;  // distance, probability
    for (const auto& t : all) {
      order.emplace_back(std::abs(-std::log(t.probability) - entropy), t.probability);
    }
    std::sort(order.begin(), order.end());
    size_t expected = 0;
    for (double sum = 0; sum < typical_p; ++expected) sum += order[expected].second;
    EXPECT_NEAR(static_cast<double>(kept.size()), static_cast<double>(expected), 2);
    double furthest = 0;
    for (const auto& t : kept) {
      const double p = std::exp(logits[t.id] - logits[all[0].id]) * all[0].probability;
      furthest = std::max(furthest, std::abs(-std::log(p) - entropy));
    }
    EXPECT_NEAR(furthest, order[expected - 1].first, 1e-4);
  }
}

}  // namespace
}  // namespace skein::kernels
