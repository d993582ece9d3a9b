// DRY on the device, against penalties that are known and the host's own. A draw with one token
// alone left tells that token's logit.
#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include "base/test_util.h"
#include "gtest/gtest.h"
#include "kernels/cuda/device_draws.h"
#include "kernels/cuda/device_draws_testing.h"
#include "kernels/cuda/device_testing.h"
#include "kernels/sampling/dry.h"
#include "kernels/sampling/shards.h"

namespace skein::kernels::cuda {
namespace {

// Returns the logits of these tokens in the problem's rows, one each, after DRY.
std::vector<float> LogitsOf(const std::vector<int32_t>& tokens, const Problem& problem,
                            Drawing drawing) {
  drawing.params.temperature = 0;
  const int64_t words = MaskWords(problem.tokens);
  std::vector<uint32_t> masks(tokens.size() * words);
  for (size_t r = 0; r < tokens.size(); ++r) {
    masks[r * words + tokens[r] / 32] |= uint32_t{1} << (tokens[r] % 32);
  }
  const std::vector<Drawing> drawings(tokens.size(), drawing);
  const auto history = static_cast<int64_t>(drawing.prompt.size() + drawing.output.size());
  Slots slots(drawings, problem.tokens, history + 2);
  std::vector<float> logits;
  for (const DeviceDraw& drawn : slots.Draw(problem, drawings, masks)) {
    EXPECT_EQ(drawn.id, tokens[logits.size()]);
    logits.push_back(drawn.largest);
  }
  return logits;
}

void ExpectTheHosts(const std::vector<int32_t>& tokens, Problem& problem, const Drawing& drawing) {
  const std::vector<float> got = LogitsOf(tokens, problem, drawing);
  int64_t changed = 0;
  for (size_t r = 0; r < tokens.size(); ++r) {
    const int32_t token = tokens[r];
    float want = problem.Row(static_cast<int64_t>(r))[token];
    const float before = want;
    DryMemory memory;
    PenaliseRepeats(drawing.params, drawing.prompt, drawing.output, token, absl::MakeSpan(&want, 1),
                    memory);
    EXPECT_EQ(got[r], want) << "token " << token;
    changed += want != before ? 1 : 0;
  }
  EXPECT_GT(changed, 0);
}

struct Case {
  const char* name;
  std::vector<int32_t> history;
  serving::SamplingParams params;
  std::vector<float> penalties;  // of tokens 0, 1, ...
};

TEST(RepeatedDrawsTest, Table) {
  SKEIN_NEED_HOPPER();
  const float m = 0.5f;
  const Case cases[] = {
      {"nothing yet", {}, {.dry_multiplier = m}, {0, 0, 0, 0}},
      {"two tokens", {1, 2, 3, 1, 2}, {.dry_multiplier = m}, {0, 0, 0, 0.5f}},
      {"three, base 2", {0, 1, 2, 3, 0, 1, 2}, {.dry_multiplier = m, .dry_base = 2}, {0, 0, 0, 1}},
      {"the longer one counts",
       {1, 2, 3, 0, 1, 2, 3, 2, 0, 1, 2},
       {.dry_multiplier = m, .dry_base = 2},
       {0, 0, 0, 1}},
      {"base 1", {0, 1, 2, 3, 0, 1, 2}, {.dry_multiplier = m, .dry_base = 1}, {0, 0, 0, 0.5f}},
      {"shorter than allowed",
       {1, 2, 3, 1, 2},
       {.dry_multiplier = m, .dry_allowed_length = 3},
       {0, 0, 0, 0}},
      {"one is allowed",
       {1, 2, 3, 1, 2},
       {.dry_multiplier = m, .dry_base = 4, .dry_allowed_length = 1},
       {0, 0, 0, 2}},
      {"the window starts too late",
       {1, 2, 3, 1, 2},
       {.dry_multiplier = m, .dry_last_n = 4},
       {0, 0, 0, 0}},
      {"the window starts in time",
       {3, 1, 2, 3, 1, 2},
       {.dry_multiplier = m, .dry_base = 2, .dry_last_n = 5},
       {0, 0, 0, 0.5f}},
      {"no window", {1, 2, 3, 1, 2}, {.dry_multiplier = m, .dry_last_n = 0}, {0, 0, 0, 0}},
      {"a breaker at the end",
       {1, 2, 3, 1, 2},
       {.dry_multiplier = m, .dry_breakers = {{2}}},
       {0, 0, 0, 0}},
      {"a breaker inside of the repeat",
       {0, 1, 2, 3, 0, 1, 2},
       {.dry_multiplier = m, .dry_base = 2, .dry_breakers = {{0}}},
       {0, 0, 0, 0.5f}},
      {"a breaker of two",
       {0, 1, 2, 3, 0, 1, 2},
       {.dry_multiplier = m, .dry_breakers = {{0, 1}}},
       {0, 0, 0, 0}},
      {"a breaker of two, elsewhere",
       {0, 1, 2, 3, 0, 1, 2},
       {.dry_multiplier = m, .dry_base = 2, .dry_breakers = {{1, 0}, {2, 1}, {}}},
       {0, 0, 0, 1}},
      {"of breakers of three that end alike, the second",
       {0, 1, 2, 3, 0, 1, 2},
       {.dry_multiplier = m, .dry_breakers = {{1, 1, 2}, {0, 1, 2}, {2, 0, 1}}},
       {0, 0, 0, 0}},
      {"a breaker longer than the history",
       {1, 1, 1},
       {.dry_multiplier = m, .dry_breakers = {{1, 1, 1, 1}}},
       {0, 0.5f, 0, 0}},
      {"the follower is a breaker",
       {1, 2, 3, 1, 2},
       {.dry_multiplier = m, .dry_breakers = {{3}}},
       {0, 0, 0, 0}},
      {"a run", std::vector<int32_t>(7, 1), {.dry_multiplier = m, .dry_base = 2}, {0, 8, 0, 0}},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    Problem problem(4, 4);
    for (int64_t r = 0; r < 4; ++r) std::fill_n(problem.Row(r), 4, 10.0f);
    const std::vector<float> logits =
        LogitsOf({0, 1, 2, 3}, problem, {.params = c.params, .prompt = c.history});
    for (size_t id = 0; id < 4; ++id) EXPECT_EQ(10.0f - logits[id], c.penalties[id]) << id;
  }
}

// Of few tokens, so that much repeats; the whole vocabulary is looked at.
TEST(RepeatedDrawsTest, SmallVocabulariesAsTheHost) {
  SKEIN_NEED_HOPPER();
  std::mt19937 random(3);
  for (const int64_t tokens : {2, 3, 10, 50}) {
    SCOPED_TRACE(tokens);
    Problem problem(tokens, tokens);
    std::vector<int32_t> all(tokens);
    for (size_t t = 0; t < all.size(); ++t) all[t] = static_cast<int32_t>(t);
    for (const int size : {40, 700}) {
      Drawing drawing;
      for (int i = 0; i < size; ++i) {
        (i < 30 ? drawing.prompt : drawing.output)
            .push_back(static_cast<int32_t>(random() % static_cast<uint32_t>(tokens)));
      }
      // It ends as it began.
      drawing.output.insert(drawing.output.end(), drawing.prompt.begin(), drawing.prompt.end() - 2);
      const auto breaker = static_cast<int32_t>(tokens - 1);
      for (const serving::SamplingParams& params : std::vector<serving::SamplingParams>{
               {.dry_multiplier = 0.8f},
               {.dry_multiplier = 1.3f, .dry_base = 1.013f, .dry_allowed_length = 1},
               {.dry_multiplier = 0.8f, .dry_base = 40, .dry_last_n = size + 23},
               {.dry_multiplier = 0.8f, .dry_breakers = {{breaker, 0, 1, 0, 1, 1, 0}}}}) {
        drawing.params = params;
        ExpectTheHosts(all, problem, drawing);
      }
    }
  }
}

// Each block has its tokens in several pieces; the history is read in many.
TEST(RepeatedDrawsTest, LargeVocabulariesAsTheHost) {
  SKEIN_NEED_HOPPER();
  constexpr int64_t kTokens = 128256;
  std::mt19937 random(4);
  const auto any = [&] { return static_cast<int32_t>(random() % kTokens); };
  // 30 times something new, then a passage of 60 tokens, as far as it goes.
  std::vector<int32_t> passage, looked_at = {0, static_cast<int32_t>(kTokens - 1)};
  for (int i = 0; i < 60; ++i) passage.push_back(any());
  Drawing drawing;
  for (int times = 0; times < 30; ++times) {
    for (int i = 0; i < 40; ++i) drawing.output.push_back(any());
    const auto length = times == 29 ? 50 : 50 - times;
    const auto begin = passage.begin() + 50 - length;
    drawing.output.insert(drawing.output.end(), begin, passage.begin() + 50);
    drawing.output.push_back(any());
    looked_at.push_back(drawing.output.back());
  }
  drawing.output.pop_back();  // the passage is the end
  Problem problem(kTokens, static_cast<int64_t>(looked_at.size()));
  for (const serving::SamplingParams& params : std::vector<serving::SamplingParams>{
           {.dry_multiplier = 0.8f, .dry_base = 1.3f},
           {.dry_multiplier = 0.8f, .dry_base = 1.3f, .dry_breakers = {{passage[20]}}},
           {.dry_multiplier = 0.8f,
            .dry_base = 1.3f,
            .dry_breakers = {{passage[10], passage[11], passage[12]}, {any(), passage[40]}}}}) {
    drawing.params = params;
    for (int i = 0; i < 3000; ++i) {
      if (!drawing.params.dry_breakers.empty()) drawing.params.dry_breakers.push_back({any()});
    }
    ExpectTheHosts(looked_at, problem, drawing);
  }
}

}  // namespace
}  // namespace skein::kernels::cuda
