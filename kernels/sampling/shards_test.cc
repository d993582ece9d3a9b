#include "kernels/sampling/shards.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <new>
#include <random>
#include <string>
#include <vector>

#include "base/test_util.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace {
std::atomic<int64_t> allocations = 0;
}  // namespace

void* operator new(size_t size) {
  ++allocations;
  if (void* const memory = std::malloc(size)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace skein::kernels {
namespace {

using ::testing::HasSubstr;

constexpr float kInf = std::numeric_limits<float>::infinity();

std::vector<float> Noise(int64_t size, uint32_t seed) {
  std::minstd_rand random(seed + 1);
  std::vector<float> logits(size);
  // Coarse steps make many ties.
  for (float& logit : logits) logit = static_cast<float>(random() % 97) / 8 - 5;
  return logits;
}

// Answers as `shards` shards together do.
absl::StatusOr<serving::SampledToken> AnswerOf(int32_t shards, const RowQuestion& question,
                                               const std::vector<float>& logits) {
  const int64_t block = VocabularyPart::Whole(question.vocabulary).block;
  const int32_t blocks = kVocabularyBlocks / shards;
  std::vector<std::vector<SummaryCell>> summaries;
  std::vector<const SummaryCell*> pointers;
  for (int32_t shard = 0; shard < shards; ++shard) {
    const VocabularyPart part = {shard * blocks * block, block, blocks};
    const int64_t begin = std::min<int64_t>(part.first, question.vocabulary);
    auto& summary = summaries.emplace_back(SummaryCells(question, blocks));
    Summarise(question, part, absl::MakeConstSpan(logits).subspan(begin, blocks * block),
              summary.data());
  }
  for (const auto& summary : summaries) pointers.push_back(summary.data());
  return Decide(question, blocks, pointers);
}

void ExpectSame(const serving::SampledToken& got, const serving::SampledToken& want) {
  EXPECT_EQ(got.id, want.id);
  EXPECT_EQ(got.logprob, want.logprob);
  EXPECT_EQ(got.mu, want.mu);
  ASSERT_EQ(got.top_logprobs.size(), want.top_logprobs.size());
  for (size_t i = 0; i < got.top_logprobs.size(); ++i) {
    EXPECT_EQ(got.top_logprobs[i].id, want.top_logprobs[i].id);
    EXPECT_EQ(got.top_logprobs[i].logprob, want.top_logprobs[i].logprob);
  }
}

const std::vector<serving::SamplingParams>& Variants() {
  static const auto& variants = *new std::vector<serving::SamplingParams>{
      {.temperature = 0},
      {.temperature = 0, .logprobs = 3},
      {.top_k = 1},
      {.top_k = 40, .top_p = 0.9f, .seed = 3, .logprobs = 5},
      {.temperature = 2, .top_k = 300, .min_p = 0.1f, .logprobs = 0},
      {.temperature = 0.7f, .top_k = 25, .typical_p = 0.8f},
      {.repetition_penalty = 1.4f,
       .presence_penalty = 0.5f,
       .frequency_penalty = 0.3f,
       .top_k = 10},
      {.temperature = 0, .logit_bias = {{3, 50}, {299, 49}}, .min_tokens = 9, .stop_ids = {3}},
      {.top_k = 20, .dry_multiplier = 3, .dry_allowed_length = 1},
  };
  return variants;
}

TEST(ShardsTest, ChooseWhatAWholeRowDoes) {
  const std::vector<int32_t> prompt = {1, 2, 3, 250, 1, 2}, output = {3, 250, 1};
  for (const int64_t vocabulary : {300, 9, 5, 1}) {
    for (size_t v = 0; v < Variants().size(); ++v) {
      SCOPED_TRACE(testing::Message() << vocabulary << " tokens, variant " << v);
      serving::SamplingParams params = Variants()[v];
      const bool history = vocabulary == 300;
      if (!history) params.logit_bias = {}, params.stop_ids = {};
      for (uint32_t seed = 0; seed < 20; ++seed) {
        const std::vector<float> logits = Noise(vocabulary, seed);
        RowQuestion question = {.vocabulary = vocabulary,
                                .sampling = &params,
                                .position = 3 + seed,
                                .logprobs = params.logprobs};
        if (history) question.prompt = prompt, question.output = output;
        ASSERT_FALSE(NeedsAllLogits(question));
        SKEIN_ASSERT_OK_AND_ASSIGN(const serving::SampledToken want, Answer(question, logits));
        for (const int32_t shards : {1, 2, 4, 8}) {
          SCOPED_TRACE(shards);
          SKEIN_ASSERT_OK_AND_ASSIGN(const serving::SampledToken got,
                                     AnswerOf(shards, question, logits));
          ExpectSame(got, want);
        }
      }
    }
  }
}

// The draw takes no token that a mask leaves out; all else is as without a mask.
TEST(ShardsTest, AMaskIsAsIfLogitsWereInfinitelySmall) {
  std::vector<serving::SamplingParams> variants = Variants();
  for (const serving::SamplingParams& params : std::vector<serving::SamplingParams>{
           {}, {.top_p = 0.9f, .logprobs = 2}, {.mirostat_tau = 3}}) {
    variants.push_back(params);
  }
  const std::vector<int32_t> prompt = {1, 2, 3, 250, 1, 2}, output = {3, 250, 1};
  for (serving::SamplingParams params : variants) {
    params.logit_bias = {};
    for (uint32_t seed = 0; seed < 30; ++seed) {
      const std::vector<float> logits = Noise(300, seed);
      // The masks leave a single token to almost all, ends of words and parts included.
      std::vector<uint32_t> mask(MaskWords(300));
      std::vector<float> left(300, -kInf);
      std::minstd_rand random(seed + 1);
      for (int32_t token : {0, 31, 32, 37, 38, 151, 299}) {
        if (random() % 7 < seed % 7 || token == 151) mask[token / 32] |= 1u << token % 32;
      }
      for (size_t token = 0; token < 300; ++token) {
        if (seed % 5 == 4 && random() % 3 != 0) mask[token / 32] |= 1u << token % 32;
        if (mask[token / 32] >> token % 32 & 1) left[token] = logits[token];
      }
      RowQuestion question = {.vocabulary = 300,
                              .sampling = &params,
                              .prompt = prompt,
                              .output = output,
                              .position = 3 + seed,
                              .logprobs = params.logprobs};
      RowQuestion silent = question;
      silent.logprobs = -1;
      const serving::SampledToken want = *Answer(silent, left);
      question.mask = mask;
      SKEIN_ASSERT_OK_AND_ASSIGN(const serving::SampledToken got, Answer(question, logits));
      EXPECT_EQ(got.id, want.id);
      EXPECT_EQ(got.mu, want.mu);
      if (params.logprobs >= 0) {
        const RowQuestion of_token = {.vocabulary = 300, .token = got.id, .logprobs = 0};
        EXPECT_EQ(got.logprob, Answer(of_token, logits)->logprob);
      }
      if (NeedsAllLogits(question)) continue;
      for (const int32_t shards : {1, 2, 4, 8}) {
        ExpectSame(*AnswerOf(shards, question, logits), got);
      }
    }
  }
  const std::vector<uint32_t> none(MaskWords(300));
  const serving::SamplingParams greedy = {.temperature = 0};
  for (const int32_t shards : {1, 8}) {
    EXPECT_THAT(
        AnswerOf(shards, {.vocabulary = 300, .sampling = &greedy, .mask = none}, Noise(300, 1))
            .status(),
        StatusIs(absl::StatusCode::kInternal, HasSubstr("none is finite")));
  }
}

TEST(ShardsTest, TellAPromptsToken) {
  const std::vector<float> logits = Noise(300, 7);
  double sum = 0;
  for (float logit : logits) sum += std::exp(double{logit});
  for (const int32_t token : {0, 37, 38, 299}) {
    for (const int32_t count : {0, 1, 4, 1000}) {
      const RowQuestion question = {.vocabulary = 300, .token = token, .logprobs = count};
      const serving::SampledToken want = *Answer(question, logits);
      EXPECT_NEAR(want.logprob, logits[token] - std::log(sum), 1e-6);
      EXPECT_EQ(want.top_logprobs.size(), static_cast<size_t>(std::min(count, 300)));
      for (const int32_t shards : {2, 4, 8}) ExpectSame(*AnswerOf(shards, question, logits), want);
    }
  }
}

// What a device tells of a row is as if the row were here.
TEST(ShardsTest, TakeADevicesDraw) {
  std::vector<float> logits = Noise(300, 4);
  const serving::SamplingParams params = {.seed = 8, .logprobs = 3, .mirostat_tau = 2};
  RowQuestion question = {.vocabulary = 300, .sampling = &params, .mu = 3.5f, .logprobs = 3};
  SKEIN_ASSERT_OK_AND_ASSIGN(const serving::SampledToken want, Answer(question, logits));
  DeviceDraw draw = {.largest = 7.125f, .id = want.id, .mu = want.mu};
  double sum = 0;
  for (const float logit : logits) sum += std::exp(double{logit} - 7.0);
  draw.told = {.sum = sum, .largest = 7, .logit = logits[want.id]};
  // In another order.
  for (int i = 0; i < 3; ++i) {
    const int32_t id = want.top_logprobs[(i + 1) % 3].id;
    draw.told.top[i] = {logits[id], id};
  }
  SKEIN_ASSERT_OK_AND_ASSIGN(const serving::SampledToken got, Take(question, draw));
  ExpectSame(got, want);
  // Of a token that it was asked about it tells the same; nothing was drawn.
  draw.largest = draw.mu = std::nanf("");
  draw.id = -1;
  SKEIN_ASSERT_OK_AND_ASSIGN(serving::SampledToken told,
                             Take({.vocabulary = 300, .token = want.id, .logprobs = 3}, draw));
  told.mu = want.mu;
  ExpectSame(told, want);
  draw.largest = 7.125f;
  serving::SamplingParams greedy = params;
  greedy.temperature = 0;
  question.sampling = &greedy;
  EXPECT_EQ(Take(question, draw)->mu, 3.5f);
  question.sampling = &params;
  draw.told.largest = std::nanf("");
  EXPECT_THAT(Take(question, draw).status(),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("one is NaN")));
  question.mu = kInf;
  EXPECT_THAT(Take(question, draw).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("mirostat's mu")));
  draw.largest = -kInf;
  EXPECT_THAT(Take(question, draw).status(),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("none is finite")));
}

TEST(ShardsTest, EveryShardHearsOfWhatHasNoAnswer) {
  const serving::SamplingParams greedy = {.temperature = 0}, some = {.top_k = 5, .logprobs = 2};
  for (const auto& [value, message] :
       {std::pair{std::nanf(""), "300 logits: one is NaN"}, {kInf, "one is infinite"}}) {
    for (const int32_t where : {0, 150, 299}) {
      std::vector<float> logits = Noise(300, 1);
      logits[where] = value;
      for (const serving::SamplingParams* params : {&greedy, &some}) {
        const RowQuestion question = {.vocabulary = 300, .sampling = params};
        for (const int32_t shards : {1, 4}) {
          EXPECT_THAT(AnswerOf(shards, question, logits).status(),
                      StatusIs(absl::StatusCode::kInternal, HasSubstr(message)));
        }
      }
      EXPECT_THAT(AnswerOf(8, {.vocabulary = 300, .logprobs = 2}, logits).status(),
                  StatusIs(absl::StatusCode::kInternal, HasSubstr(message)));
    }
  }
  // A shard with nothing to offer leaves the choice to the others.
  std::vector<float> logits(300, -kInf);
  EXPECT_THAT(AnswerOf(4, {.vocabulary = 300, .sampling = &some}, logits).status(),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("none is finite")));
  logits[200] = 1;
  for (const serving::SamplingParams* params : {&greedy, &some}) {
    const RowQuestion question = {.vocabulary = 300, .sampling = params, .logprobs = 1};
    EXPECT_EQ(AnswerOf(4, question, logits)->id, 200);
    EXPECT_EQ(AnswerOf(4, question, logits)->logprob, 0);
  }
}

TEST(ShardsTest, WhatHasNoBoundNeedsAllLogits) {
  const auto needs = [](const serving::SamplingParams& params) {
    return NeedsAllLogits({.vocabulary = 9, .sampling = &params});
  };
  EXPECT_TRUE(needs({}));
  EXPECT_TRUE(needs({.top_p = 0.5f}));
  EXPECT_TRUE(needs({.top_k = kMaxMerged + 1}));
  EXPECT_TRUE(needs({.top_k = 5, .mirostat_tau = 3}));
  EXPECT_FALSE(needs({.top_k = kMaxMerged}));
  EXPECT_FALSE(needs({.temperature = 0, .mirostat_tau = 3}));
  EXPECT_FALSE(NeedsAllLogits({.vocabulary = 9, .logprobs = 3}));
}

// A thread keeps the memory in which its draws work.
TEST(ShardsTest, DrawsAllocateNothing) {
  std::vector<serving::SamplingParams> variants = Variants();
  for (const serving::SamplingParams& params : std::vector<serving::SamplingParams>{
           {},
           {.top_p = 0.9f},
           {.min_p = 0.01f, .typical_p = 0.8f},
           {.mirostat_tau = 3},
           {.repetition_penalty = 1.2f, .dry_multiplier = 1, .dry_breakers = {{4}, {5, 6}}}}) {
    variants.push_back(params);
  }
  const std::vector<int32_t> prompt(5000, 17), output = {3, 250, 1};
  const std::vector<float> logits = Noise(20000, 3);
  int64_t during = 0;
  for (const bool counts : {false, true}) {
    for (const serving::SamplingParams& params : variants) {
      const RowQuestion question = {
          .vocabulary = 20000, .sampling = &params, .prompt = prompt, .output = output};
      const int64_t before = allocations;
      const bool ok = Answer(question, logits).ok();
      if (counts) during += allocations - before;
      EXPECT_TRUE(ok);
    }
  }
  EXPECT_EQ(during, 0);
}

}  // namespace
}  // namespace skein::kernels
