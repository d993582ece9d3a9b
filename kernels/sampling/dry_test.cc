#include "kernels/sampling/dry.h"

#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace skein::kernels {
namespace {

using ::testing::ElementsAre;
using ::testing::Le;

// Counts how often tokens are compared.
struct Counted {
  int32_t id;
  int64_t* comparisons;
};
bool operator==(const Counted& a, const Counted& b) {
  ++*a.comparisons;
  return a.id == b.id;
}

// Compares every place with the end, token by token.
std::vector<int32_t> Naive(const std::vector<int32_t>& tokens) {
  std::vector<int32_t> lengths(tokens.size(), 0);
  for (size_t i = 0; i < tokens.size(); ++i) {
    while (static_cast<size_t>(lengths[i]) < i &&
           tokens[i - 1 - lengths[i]] == tokens[tokens.size() - 1 - lengths[i]]) {
      ++lengths[i];
    }
  }
  return lengths;
}

TEST(RepeatsBeforeTest, SmallOnes) {
  const auto repeats = [](const std::vector<int32_t>& tokens) {
    std::vector<int32_t> lengths;
    RepeatsBefore<int32_t>(tokens, lengths);
    return lengths;
  };
  EXPECT_THAT(repeats({}), ElementsAre());
  EXPECT_THAT(repeats({7}), ElementsAre(0));
  EXPECT_THAT(repeats({7, 7, 7}), ElementsAre(0, 1, 2));
  EXPECT_THAT(repeats({1, 2, 9, 1, 2}), ElementsAre(0, 0, 2, 0, 0));
}

TEST(RepeatsBeforeTest, AgreesWithComparingEverythingInLinearTime) {
  std::mt19937 random(5);
  std::vector<std::vector<int32_t>> histories;
  for (int size : {2, 3, 10, 100, 500}) {
    histories.emplace_back(size, 4);              // one run is the worst for a naive loop
    histories.emplace_back(size, 4).front() = 5;  // a run after another token
    histories.emplace_back(size, 4).back() = 5;   // which ends differently
    for (int period : {2, 3, 7}) {
      std::vector<int32_t>& periodic = histories.emplace_back(size);
      for (int i = 0; i < size; ++i) periodic[i] = i % period;
      histories.push_back(periodic);
      histories.back()[size / 2] = 50;
    }
    for (uint32_t alphabet : {1u, 2u, 3u, 10u}) {
      for (int round = 0; round < 20; ++round) {
        std::vector<int32_t>& noise = histories.emplace_back(size);
        for (int32_t& token : noise) token = static_cast<int32_t>(random() % alphabet);
      }
    }
    // Fibonacci's word is the most repetitive one without a period.
    std::vector<int32_t> word = {0};
    for (std::vector<int32_t> next = {0, 1}; word.size() < static_cast<size_t>(size);) {
      const std::vector<int32_t> last = word;
      word = next;
      next.insert(next.end(), last.begin(), last.end());
    }
    histories.push_back(word);
  }
  for (const std::vector<int32_t>& history : histories) {
    std::vector<int32_t> lengths;
    RepeatsBefore<int32_t>(history, lengths);
    EXPECT_EQ(lengths, Naive(history));
    int64_t comparisons = 0;
    std::vector<Counted> counted;
    for (int32_t token : history) counted.push_back({token, &comparisons});
    RepeatsBefore<Counted>(counted, lengths);
    EXPECT_EQ(lengths, Naive(history));
    EXPECT_THAT(comparisons, Le(2 * static_cast<int64_t>(history.size())));
  }
}

TEST(RepeatsBeforeTest, ALongHistoryCostsNoMoreAToken) {
  for (int64_t size : {10'000, 200'000}) {
    int64_t comparisons = 0;
    const std::vector<Counted> run(size, Counted{1, &comparisons});
    std::vector<int32_t> lengths;
    RepeatsBefore<Counted>(run, lengths);
    EXPECT_EQ(lengths.back(), size - 1);
    EXPECT_THAT(comparisons, Le(2 * size));
  }
}

struct Case {
  const char* name;
  std::vector<int32_t> prompt;
  std::vector<int32_t> output;
  serving::SamplingParams params;
  std::vector<float> penalties;  // of ids 0, 1, ...
};

TEST(PenaliseRepeatsTest, Table) {
  const float m = 0.5f;
  const Case cases[] = {
      {"nothing yet", {}, {}, {.dry_multiplier = m}, {0, 0, 0, 0}},
      {"length 2", {1, 2, 3, 1, 2}, {}, {.dry_multiplier = m}, {0, 0, 0, 0.5f}},
      {"over prompt and output", {1, 2, 3}, {1, 2}, {.dry_multiplier = m}, {0, 0, 0, 0.5f}},
      {"length 3, base 2",
       {0, 1, 2, 3, 0, 1, 2},
       {},
       {.dry_multiplier = m, .dry_base = 2},
       {0, 0, 0, 1}},
      {"shorter than allowed",
       {1, 2, 3, 1, 2},
       {},
       {.dry_multiplier = m, .dry_allowed_length = 3},
       {0, 0, 0, 0}},
      {"the window starts too late",
       {1, 2, 3, 1, 2},
       {},
       {.dry_multiplier = m, .dry_last_n = 4},
       {0, 0, 0, 0}},
      {"a breaker at the end",
       {1, 2, 3, 1, 2},
       {},
       {.dry_multiplier = m, .dry_breakers = {{2}}},
       {0, 0, 0, 0}},
      {"a breaker inside of the repeat",
       {0, 1, 2, 3, 0, 1, 2},
       {},
       {.dry_multiplier = m, .dry_base = 2, .dry_breakers = {{0}}},
       {0, 0, 0, 0.5f}},
      {"a breaker of two",
       {0, 1, 2, 3, 0, 1, 2},
       {},
       {.dry_multiplier = m, .dry_breakers = {{0, 1}}},
       {}},
      {"a breaker of two, elsewhere",
       {0, 1, 2, 3, 0, 1, 2},
       {},
       {.dry_multiplier = m, .dry_base = 2, .dry_breakers = {{1, 0}, {2, 1}, {}}},
       {0, 0, 0, 1}},
      {"a breaker longer than the history",
       {1, 1, 1},
       {},
       {.dry_multiplier = m, .dry_breakers = {{1, 1, 1, 1}}},
       {0, 0.5f}},
      {"the follower is a breaker",
       {1, 2, 3, 1, 2},
       {},
       {.dry_multiplier = m, .dry_breakers = {{3}}},
       {0, 0, 0, 0}},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    std::vector<float> logits(4, 10.0f);
    DryMemory memory;  // as it was left by another history
    std::vector<float> others(4, 0);
    PenaliseRepeats({.dry_multiplier = 1, .dry_breakers = {{1}, {2, 3}}}, {{3, 1, 2, 3, 3}}, {}, 0,
                    absl::MakeSpan(others), memory);
    PenaliseRepeats(c.params, c.prompt, c.output, 0, absl::MakeSpan(logits), memory);
    // A part of the vocabulary gets the same penalties.
    std::vector<float> part(2, 10.0f);
    PenaliseRepeats(c.params, c.prompt, c.output, 2, absl::MakeSpan(part), memory);
    EXPECT_EQ(part, std::vector<float>(logits.begin() + 2, logits.end()));
    for (size_t id = 0; id < logits.size(); ++id) {
      EXPECT_EQ(10.0f - logits[id], id < c.penalties.size() ? c.penalties[id] : 0.0f) << id;
    }
  }
}

TEST(PenaliseRepeatsTest, RepeatsBeyondTheLongestThatCountsCostTheSame) {
  for (const float base : {1.0f, 1.01f, 1.75f, 40.0f}) {
    for (const float multiplier : {1e-30f, 0.8f, 100.0f}) {
      const serving::SamplingParams params = {
          .dry_multiplier = multiplier, .dry_base = base, .dry_allowed_length = 3};
      const int32_t most = LongestRepeatThatCounts(params);
      ASSERT_GE(most, 3);
      ASSERT_LT(most, 40'000);
      const auto penalty = [&](int32_t length) {
        // A run of a token has the longest repeat, of one token less.
        std::vector<float> logits(2, 0);
        DryMemory memory;
        PenaliseRepeats(params, std::vector<int32_t>(length + 1, 1), {}, 0, absl::MakeSpan(logits),
                        memory);
        return logits[1];
      };
      for (const int32_t length : {most + 1, most + 2, 3 * most}) {
        EXPECT_EQ(penalty(length), penalty(most)) << base << ", " << multiplier;
      }
      if (base > 1.0f) {
        EXPECT_LT(penalty(most), penalty(3));
      }
    }
  }
}

TEST(PenaliseRepeatsTest, StaysFinite) {
  std::vector<float> logits = {1.0f, 2.0f};
  const std::vector<int32_t> prompt(100'000, 1);
  DryMemory memory;
  PenaliseRepeats({.dry_multiplier = 100.0f, .dry_base = 100.0f}, prompt, {}, 0,
                  absl::MakeSpan(logits), memory);
  EXPECT_EQ(logits[0], 1.0f);
  EXPECT_TRUE(std::isfinite(logits[1]));
  EXPECT_LT(logits[1], -1e29f);
}

}  // namespace
}  // namespace skein::kernels
