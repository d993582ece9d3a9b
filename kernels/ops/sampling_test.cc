#include "kernels/ops/sampling.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include "base/test_util.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace skein::kernels {
namespace {

using ::nlohmann::json;
using ::testing::HasSubstr;

constexpr float kInf = std::numeric_limits<float>::infinity();

// Made by an independent script; tests/golden/README.md has the format.
json Golden() {
  std::ifstream file("tests/golden/sampling.json");
  return json::parse(file);
}

TEST(PhiloxTest, KnownAnswers) {
  // Random123's kat_vectors.
  EXPECT_EQ(Philox({0, 0, 0, 0}, {0, 0}),
            (std::array<uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(Philox({~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}),
            (std::array<uint32_t, 4>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(Philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (std::array<uint32_t, 4>{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(UniformDrawTest, Golden) {
  const json rows = Golden()["uniform"];
  ASSERT_GT(rows.size(), 30u);
  for (const json& row : rows) {
    EXPECT_EQ(double{UniformDraw(row["seed"], row["position"])}, row["uniform"].get<double>())
        << row;
  }
}

std::vector<float> Logits(const json& values) {
  std::vector<float> logits;
  for (const json& v : values) logits.push_back(v.is_null() ? -kInf : v.get<float>());
  return logits;
}

SamplingParams Params(const json& p) {
  return {.repetition_penalty = p["repetition_penalty"],
          .presence_penalty = p["presence_penalty"],
          .frequency_penalty = p["frequency_penalty"],
          .temperature = p["temperature"],
          .top_k = p["top_k"],
          .top_p = p["top_p"],
          .min_p = p["min_p"],
          .seed = p["seed"],
          .logprobs = 3};
}

TEST(SampleTest, Golden) {
  const json cases = Golden()["cases"];
  ASSERT_GT(cases.size(), 100u);
  for (const json& c : cases) {
    SCOPED_TRACE(c["name"].get<std::string>());
    const std::vector<float> logits = Logits(c["logits"]);
    const SamplingParams params = Params(c["params"]);
    const std::vector<int32_t> prompt = c["prompt"];
    const std::vector<int32_t> output = c["output"];

    SKEIN_ASSERT_OK_AND_ASSIGN(auto survivors, Survivors(logits, params, prompt, output));
    std::erase_if(survivors, [](const TokenProbability& t) { return t.probability < 1e-9; });
    ASSERT_EQ(survivors.size(), c["survivors"].size());
    for (size_t i = 0; i < survivors.size(); ++i) {
      EXPECT_EQ(survivors[i].id, c["survivors"][i].get<int32_t>());
      EXPECT_NEAR(survivors[i].probability, c["probabilities"][i].get<double>(), 1e-5);
    }

    SKEIN_ASSERT_OK_AND_ASSIGN(const SampledToken token,
                               Sample(logits, params, prompt, output, c["position"]));
    EXPECT_EQ(token.id, c["chosen"].get<int32_t>());
    EXPECT_NEAR(token.logprob, c["logprob"].get<double>(), 1e-5);
    const json& top = c["top_logprobs"];
    ASSERT_GE(token.top_logprobs.size(), top.size());
    for (size_t i = 0; i < top.size(); ++i) {
      EXPECT_EQ(token.top_logprobs[i].id, top[i][0].get<int32_t>());
      EXPECT_NEAR(token.top_logprobs[i].logprob, top[i][1].get<double>(), 1e-5);
    }
  }
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
  }
}

// The shortcuts for large vocabularies against sorting everything.
TEST(SampleTest, LargeVocabularyAgreesWithSorting) {
  constexpr int32_t kVocabulary = 50000;
  std::vector<float> logits(kVocabulary);
  uint32_t state = 1;
  for (float& logit : logits) {
    state = state * 1664525 + 1013904223;
    // Coarse steps, so that ties are many.
    logit = std::round(static_cast<float>(static_cast<int32_t>(state)) * 0x1p-28f * 16) / 16;
  }
  const SamplingParams variants[] = {{},
                                     {.temperature = 50.0f},
                                     {.temperature = 0.2f, .top_k = 1000},
                                     {.top_k = 777, .top_p = 0.5f},
                                     {.temperature = 1.5f, .top_p = 0.99f},
                                     {.top_p = 0.8f, .min_p = 0.01f}};
  for (SamplingParams params : variants) {
    SKEIN_ASSERT_OK_AND_ASSIGN(const auto survivors, Survivors(logits, params, {}, {}));
    std::vector<int32_t> order(kVocabulary);
    for (int32_t i = 0; i < kVocabulary; ++i) order[i] = i;
    std::stable_sort(order.begin(), order.end(),
                     [&](int32_t a, int32_t b) { return logits[a] > logits[b]; });
    for (size_t i = 0; i < survivors.size(); ++i) ASSERT_EQ(survivors[i].id, order[i]) << i;

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

}  // namespace
}  // namespace skein::kernels
