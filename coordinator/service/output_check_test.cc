#include "coordinator/service/output_check.h"

#include <limits>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/test_util.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace skein::coordinator {
namespace {

using ::testing::HasSubstr;
using Finish = serving::Finish;

constexpr int32_t kVocabulary = 100;
constexpr int32_t kEos = 99;
constexpr int64_t kHidden = 3;
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

// 5 tokens at most, ended by kEos, of which 2 came.
absl::Status Check(serving::AnswerOutput output, serving::Request request = {},
                   AnswerState answer = {.tokens = 2, .last_token = 7}) {
  request.max_tokens = 5;
  request.eos_token_ids = {kEos};
  return CheckOutput(output, request, answer, kVocabulary, kHidden);
}

decltype(serving::AnswerOutput::tokens) Tokens(const std::vector<int32_t>& ids) {
  decltype(serving::AnswerOutput::tokens) tokens;
  for (const int32_t id : ids) tokens.push_back({.id = id});
  return tokens;
}

TEST(OutputCheckTest, WhatAReplicaSaysOfASoundAnswerIsInOrder) {
  SKEIN_EXPECT_OK(Check({}));
  SKEIN_EXPECT_OK(Check({.tokens = Tokens({0, 98})}));
  SKEIN_EXPECT_OK(Check({.tokens = Tokens({0}), .cached_tokens = 2}, {.prompt = {1, 2}}));
  SKEIN_EXPECT_OK(Check({.tokens = Tokens({1, 2, 3}), .finish = Finish::kMaxTokens}));
  SKEIN_EXPECT_OK(Check({.tokens = Tokens({1, kEos}), .finish = Finish::kEos}));
  SKEIN_EXPECT_OK(Check({.tokens = Tokens({1, 2, kEos}), .finish = Finish::kMaxTokens}));
  SKEIN_EXPECT_OK(Check({.finish = Finish::kFailed, .error = "no finite logit"}));
  // The end may come after its token.
  SKEIN_EXPECT_OK(Check({.finish = Finish::kEos}, {}, {.tokens = 3, .last_token = kEos}));
  SKEIN_EXPECT_OK(Check({.finish = Finish::kMaxTokens}, {}, {.tokens = 5, .last_token = 1}));
  // Log probabilities count where they were asked for.
  SKEIN_EXPECT_OK(Check({.tokens = {{.id = 1, .logprob = kNan, .mu = kNan}}}));
  serving::Request asked{.prompt_logprobs = 1};
  asked.sampling.logprobs = 1;
  asked.sampling.mirostat_tau = 5;
  const serving::SampledToken token{
      .id = 1, .logprob = 1e-7f, .top_logprobs = {{2, -kInf}}, .mu = 9};
  SKEIN_EXPECT_OK(Check({.tokens = {token}, .prompt_logprobs = {token}}, asked));
}

TEST(OutputCheckTest, AnEmbeddingComesWhereItIsDue) {
  const auto check = [](std::vector<float> embedding, Finish finish, serving::Pooling pooling) {
    return Check({.tokens = Tokens({1, 2, 3}), .embedding = std::move(embedding), .finish = finish},
                 {.pooling = pooling});
  };
  using serving::Pooling;
  SKEIN_EXPECT_OK(check({1, 2, -3}, Finish::kMaxTokens, Pooling::kMean));
  SKEIN_EXPECT_OK(check({}, Finish::kFailed, Pooling::kMean));
  for (const auto& [embedding, finish, pooling, wrong] :
       {std::tuple{std::vector<float>{}, Finish::kMaxTokens, Pooling::kLast, "of 0 numbers"},
        {{1, 2}, Finish::kMaxTokens, Pooling::kLast, "of 2 numbers, where 3 are due"},
        {{1, 2, 3}, Finish::kMaxTokens, Pooling::kNone, "of 3 numbers, where 0 are due"},
        {{1, 2, 3}, Finish::kNotFinished, Pooling::kMean, "of 3 numbers, where 0 are due"},
        {{1, kNan, 3}, Finish::kMaxTokens, Pooling::kMean, "not finite"}}) {
    EXPECT_THAT(check(embedding, finish, pooling),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(wrong)));
  }
}

TEST(OutputCheckTest, WhatNoReplicaMaySayIsNamed) {
  serving::Request asked{.prompt_logprobs = 1};
  asked.sampling.logprobs = 1;
  serving::Request mirostat;
  mirostat.sampling.mirostat_tau = 5;
  struct Case {
    serving::AnswerOutput output;
    serving::Request request;
    std::string says;
  };
  const Case cases[] = {
      {{.tokens = Tokens({100})}, {}, "token 100 of a vocabulary of 100"},
      {{.tokens = Tokens({1, -1})}, {}, "token 4294967295 of a vocabulary"},
      {{.tokens = {{.id = 1, .logprob = kNan}}}, asked, "a log probability of nan"},
      {{.tokens = {{.id = 1, .logprob = kInf}}}, asked, "a log probability of inf"},
      {{.tokens = {{.id = 1, .logprob = 0.5f}}}, asked, "a log probability of 0.5"},
      {{.tokens = {{.id = 1, .top_logprobs = {{1, kNan}}}}}, asked, "a log probability of nan"},
      {{.tokens = {{.id = 1, .top_logprobs = {{100, -1}}}}}, asked, "token 100"},
      {{.prompt_logprobs = {{.id = 100}}}, asked, "token 100"},
      {{.prompt_logprobs = {{.id = 1, .logprob = kNan}}}, asked, "a log probability of nan"},
      {{.prompt_logprobs = {{.id = 1}}}, {}, "log probabilities of a prompt, not asked for"},
      {{.tokens = {{.id = 1, .mu = kInf}}}, mirostat, "a mirostat state of inf"},
      {{.tokens = Tokens({1, 2, 3, 4})}, {}, "more than the 5 tokens of the answer"},
      {{.tokens = Tokens({kEos, 1})}, {}, "a token after the answer's last one"},
      {{.tokens = Tokens({1}), .finish = Finish::kEos}, {}, "whose last token is none"},
      {{.finish = Finish::kEos}, {}, "whose last token is none"},
      {{.tokens = Tokens({1}), .finish = Finish::kMaxTokens}, {}, "after 3 of 5"},
      {{.cached_tokens = -1}, {.prompt = {1, 2}}, "-1 cached tokens"},
      {{.cached_tokens = 3}, {.prompt = {1, 2}}, "3 cached tokens of a prompt of 2"},
      {{.finish = Finish::kCancelled}, {}, "a cancellation that nobody asked for"},
      {{.finish = static_cast<Finish>(17)}, {}, "an end of no kind"},
  };
  for (const Case& c : cases) {
    EXPECT_THAT(Check(c.output, c.request),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(c.says)));
  }
  EXPECT_THAT(Check({.tokens = Tokens({1})}, {}, {.tokens = 2, .last_token = kEos}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("a token after the answer")));
}

}  // namespace
}  // namespace skein::coordinator
