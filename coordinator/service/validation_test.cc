#include "coordinator/service/validation.h"

#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "base/test_util.h"
#include "coordinator/service/fake_tokenizer.h"
#include "coordinator/service/sampling_params.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace skein::coordinator {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

GenerateRequest Prompt(std::string text) {
  GenerateRequest request;
  request.input = std::move(text);
  return request;
}

TEST(ValidationTest, AGoodRequestIsTokenizedAndFilledIn) {
  const ServedModel model = MakeFakeModel();
  SKEIN_ASSERT_OK_AND_ASSIGN(const ValidRequest valid, Validate(Prompt("abc"), model, 77));
  EXPECT_THAT(valid.request.prompt, ElementsAre('a', 'b', 'c'));
  EXPECT_EQ(valid.request.max_tokens, 29u);
  EXPECT_EQ(valid.request.sampling.seed, 77u);
  EXPECT_EQ(valid.request.sampling.temperature, 1.0f);
  EXPECT_EQ(valid.request.sampling.logprobs, -1);
  EXPECT_THAT(valid.request.eos_token_ids, ElementsAre(FakeTokenizer::kEos));
}

TEST(ValidationTest, TokenIdsAndSpecialTokensAreTakenAsAsked) {
  const ServedModel model = MakeFakeModel();
  GenerateRequest request;
  request.input = std::vector<uint32_t>{5, 256};
  SKEIN_ASSERT_OK_AND_ASSIGN(const ValidRequest ids, Validate(request, model, 1));
  EXPECT_THAT(ids.request.prompt, ElementsAre(5, 256));

  request = Prompt("<eos>");
  SKEIN_ASSERT_OK_AND_ASSIGN(const ValidRequest plain, Validate(request, model, 1));
  EXPECT_EQ(plain.request.prompt.size(), 5u);
  request.parse_special = true;
  SKEIN_ASSERT_OK_AND_ASSIGN(const ValidRequest special, Validate(request, model, 1));
  EXPECT_THAT(special.request.prompt, ElementsAre(256));
}

TEST(ValidationTest, TheLastTokenOfTheContextCanBeAskedFor) {
  const ServedModel model = MakeFakeModel();
  GenerateRequest request = Prompt(std::string(31, 'x'));
  request.max_tokens = 1;
  SKEIN_EXPECT_OK(Validate(request, model, 1));
}

struct BadCase {
  const char* name;
  std::function<void(GenerateRequest&)> change;
  absl::StatusCode code;
  std::vector<std::string> says;
};

TEST(ValidationTest, WhatIsWrongIsNamedWithItsRange) {
  const ServedModel model = MakeFakeModel();
  const auto sampling = [](auto SamplingRequest::* field, auto value) {
    return [=](GenerateRequest& r) { r.sampling.*field = value; };
  };
  using S = SamplingRequest;
  using R = GenerateRequest;
  constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
  const std::vector<BadCase> cases = {
      {"model", [](R& r) { r.model = "gpt"; }, absl::StatusCode::kNotFound, {"'gpt'", "'fake'"}},
      {"no input", [](R& r) { r.input = std::monostate(); }, kInvalid, {"prompt_tokens"}},
      {"empty prompt", [](R& r) { r.input = ""; }, kInvalid, {"prompt: empty"}},
      {"no ids", [](R& r) { r.input = std::vector<uint32_t>{}; }, kInvalid, {"prompt_tokens"}},
      {"invalid UTF-8", [](R& r) { r.input = "ab\xFF"; }, kInvalid, {"prompt: ", "byte 2"}},
      {"id",
       [](R& r) { r.input = std::vector<uint32_t>{1, 257}; },
       kInvalid,
       {"prompt_tokens.ids[1]: 257", "[0, 256]"}},
      {"huge id",
       [](R& r) { r.input = std::vector<uint32_t>{0xFFFFFFFF}; },
       kInvalid,
       {"ids[0]: 4294967295"}},
      {"10 MiB",
       [](R& r) { r.input = std::string(10 << 20, 'x'); },
       kInvalid,
       {"prompt: 10485760 bytes", "holds 32 tokens"}},
      {"long prompt",
       [](R& r) { r.input = std::string(32, 'x'); },
       kInvalid,
       {"prompt: 32 tokens", "holds 32 tokens"}},
      {"long ids",
       [](R& r) { r.input = std::vector<uint32_t>(40, 1); },
       kInvalid,
       {"prompt_tokens: 40 tokens", "holds 32 tokens"}},
      {"max_tokens",
       [](R& r) { r.max_tokens = 32; },
       kInvalid,
       {"max_tokens: 32 is not in [1, 31]", "holds 32", "takes 1"}},
      {"max_tokens 0", [](R& r) { r.max_tokens = 0; }, kInvalid, {"max_tokens: 0", "[1, 31]"}},
      {"NaN", sampling(&S::temperature, kNaN), kInvalid, {"sampling.temperature: nan", "[0, 100]"}},
      {"cold", sampling(&S::temperature, -0.1f), kInvalid, {"temperature: -0.1"}},
      {"hot", sampling(&S::temperature, kInfinity), kInvalid, {"temperature: inf"}},
      {"top_k", sampling(&S::top_k, -1), kInvalid, {"sampling.top_k: -1", "[0, 2147483647]"}},
      {"top_p 0", sampling(&S::top_p, 0.0f), kInvalid, {"sampling.top_p: 0", "(0, 1]"}},
      {"top_p 2", sampling(&S::top_p, 2.0f), kInvalid, {"sampling.top_p: 2", "(0, 1]"}},
      {"top_p NaN", sampling(&S::top_p, kNaN), kInvalid, {"sampling.top_p: nan"}},
      {"min_p", sampling(&S::min_p, 1.5f), kInvalid, {"sampling.min_p: 1.5", "[0, 1]"}},
      {"repetition",
       sampling(&S::repetition_penalty, 0.0f),
       kInvalid,
       {"sampling.repetition_penalty: 0", "(0, 100]"}},
      {"presence",
       sampling(&S::presence_penalty, 101.0f),
       kInvalid,
       {"sampling.presence_penalty: 101", "[-100, 100]"}},
      {"frequency",
       sampling(&S::frequency_penalty, -101.0f),
       kInvalid,
       {"sampling.frequency_penalty: -101", "[-100, 100]"}},
      {"logprobs", sampling(&S::logprobs, 21), kInvalid, {"sampling.logprobs: 21", "[0, 20]"}},
      {"logprobs -1", sampling(&S::logprobs, -1), kInvalid, {"sampling.logprobs: -1"}},
      {"stops", [](R& r) { r.stops.assign(17, "x"); }, kInvalid, {"stop: 17", "at most 16"}},
      {"empty stop", [](R& r) { r.stops = {"x", ""}; }, kInvalid, {"stop[1]: 0", "[1, 1024]"}},
      {"long stop",
       [](R& r) { r.stops = {std::string(1025, 'x')}; },
       kInvalid,
       {"stop[0]: 1025", "[1, 1024]"}},
  };
  for (const BadCase& c : cases) {
    SCOPED_TRACE(c.name);
    GenerateRequest request = Prompt("x");
    c.change(request);
    const absl::Status status = Validate(request, model, 1).status();
    EXPECT_EQ(status.code(), c.code) << status;
    for (const std::string& text : c.says) {
      EXPECT_THAT(std::string(status.message()), HasSubstr(text));
    }
  }
}

TEST(SamplingParamsTest, RequestOverModelOverApi) {
  model::GenerationDefaults defaults;
  defaults.temperature = 0.5;
  defaults.top_k = 40;
  SKEIN_ASSERT_OK_AND_ASSIGN(SamplingParams params, ResolveSampling({}, defaults));
  EXPECT_EQ(params.temperature, 0.5f);
  EXPECT_EQ(params.top_k, 40);
  EXPECT_EQ(params.top_p, 1.0f);

  SKEIN_ASSERT_OK_AND_ASSIGN(params, ResolveSampling({.temperature = 2, .top_k = 0}, defaults));
  EXPECT_EQ(params.temperature, 2.0f);
  EXPECT_EQ(params.top_k, 0);

  defaults.do_sample = false;
  SKEIN_ASSERT_OK_AND_ASSIGN(params, ResolveSampling({}, defaults));
  EXPECT_EQ(params.temperature, 0.0f);
  SKEIN_ASSERT_OK_AND_ASSIGN(params, ResolveSampling({.temperature = 0.7f}, defaults));
  EXPECT_EQ(params.temperature, 0.7f);
}

TEST(ServedModelTest, DefaultsAndContextAreCheckedAtTheStart) {
  ServedModel model = MakeFakeModel();
  EXPECT_EQ(model.name, "fake");
  EXPECT_EQ(model.context_length, 32);
  EXPECT_EQ(model.longest_token_bytes, 5);
  SKEIN_EXPECT_OK(CompleteServedModel(model, 16));
  EXPECT_EQ(model.context_length, 16);
  EXPECT_THAT(CompleteServedModel(model, 33),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("33 is not in [2, 32]")));
  model.defaults.top_p = 3;
  EXPECT_THAT(CompleteServedModel(model, 0),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("generation_config.json"), HasSubstr("top_p: 3"))));
}

}  // namespace
}  // namespace skein::coordinator
