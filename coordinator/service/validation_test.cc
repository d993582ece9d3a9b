#include "coordinator/service/validation.h"

#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "base/test_util.h"
#include "coordinator/service/fake_tokenizer.h"
#include "coordinator/service/sampling_params.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace skein::coordinator {
namespace {

using serving::TokenBias;

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

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

TEST(ValidationTest, WhatIsAskedForIsTakenAndResolved) {
  const ServedModel model = MakeFakeModel({"end.\n"});
  GenerateRequest request = Prompt("abc");
  request.n = 3;
  request.priority = -7;
  request.deadline = absl::UnixEpoch();
  request.prompt_logprobs = 0;
  request.sampling.values["min_tokens"] = 29;
  request.sampling.logit_bias = {{256, -100.0f}, {5, 0.5f}, {5, 100.0f}};
  request.sampling.values["dry_multiplier"] = 0.8f;
  SKEIN_ASSERT_OK_AND_ASSIGN(const ValidRequest valid, Validate(request, model, 1));
  const serving::Request& got = valid.request;
  ASSERT_EQ(got.answers.size(), 3u);
  for (int32_t i = 0; i < 3; ++i) EXPECT_EQ(got.answers[i].index, i);
  EXPECT_EQ(got.priority, -7);
  EXPECT_EQ(got.deadline, absl::UnixEpoch());
  EXPECT_EQ(got.prompt_logprobs, 0);
  EXPECT_EQ(got.sampling.min_tokens, 29);
  EXPECT_THAT(got.sampling.stop_ids, ElementsAre(FakeTokenizer::kEos));
  EXPECT_THAT(got.sampling.logit_bias,
              ElementsAre(TokenBias{256, -100}, TokenBias{5, 0.5f}, TokenBias{5, 100}));
  EXPECT_THAT(got.sampling.dry_breakers,
              UnorderedElementsAre(ElementsAre('\n'), ElementsAre(':'), ElementsAre('"'),
                                   ElementsAre('*'), ElementsAre(FakeTokenizer::kFirstWord)));
  request.sampling.dry_breakers = {"x"};
  SKEIN_ASSERT_OK_AND_ASSIGN(const ValidRequest own, Validate(request, model, 1));
  EXPECT_THAT(own.request.sampling.dry_breakers, ElementsAre(ElementsAre('x')));
  request.sampling.dry_breakers.emplace();
  SKEIN_ASSERT_OK_AND_ASSIGN(const ValidRequest none, Validate(request, model, 1));
  EXPECT_THAT(none.request.sampling.dry_breakers, IsEmpty());
}

TEST(ValidationTest, UnsetIsOneAnswerOfNoPriorityAndWithoutExtras) {
  SKEIN_ASSERT_OK_AND_ASSIGN(const ValidRequest valid, Validate(Prompt("x"), MakeFakeModel(), 1));
  const serving::Request& got = valid.request;
  ASSERT_EQ(got.answers.size(), 1u);
  EXPECT_EQ(got.answers[0].index, 0);
  EXPECT_EQ(got.priority, 0);
  EXPECT_EQ(got.deadline, absl::InfiniteFuture());
  EXPECT_EQ(got.prompt_logprobs, -1);
  EXPECT_EQ(got.sampling.min_tokens, 0);
  EXPECT_EQ(got.sampling.typical_p, 1.0f);
  EXPECT_EQ(got.sampling.mirostat_tau, 0.0f);
  EXPECT_EQ(got.sampling.dry_multiplier, 0.0f);
  EXPECT_THAT(got.sampling.dry_breakers, IsEmpty());
}

TEST(ValidationTest, AnIgnoredEosNeitherEndsAnAnswerNorIsKeptFromIt) {
  GenerateRequest request = Prompt("x");
  request.sampling.ignore_eos = true;
  request.sampling.values["min_tokens"] = 4;
  SKEIN_ASSERT_OK_AND_ASSIGN(const ValidRequest valid, Validate(request, MakeFakeModel(), 1));
  EXPECT_THAT(valid.request.eos_token_ids, IsEmpty());
  EXPECT_THAT(valid.request.sampling.stop_ids, IsEmpty());
}

TEST(ValidationTest, TheClientsStopIdsEndAnAnswerBesidesTheModelsEosOrInItsPlace) {
  GenerateRequest request = Prompt("x");
  request.stop_ids = {256, 0, 7};
  for (const bool ignore_eos : {false, true}) {
    request.sampling.ignore_eos = ignore_eos;
    SKEIN_ASSERT_OK_AND_ASSIGN(const ValidRequest valid, Validate(request, MakeFakeModel(), 1));
    std::vector<int32_t> want = {256, 0, 7};
    if (!ignore_eos) want.insert(want.begin(), FakeTokenizer::kEos);
    EXPECT_EQ(valid.request.eos_token_ids, want);
    EXPECT_EQ(valid.request.sampling.stop_ids, want);
  }
}

TEST(ValidationTest, AnEmbeddingIsOneTokenThatDrawsNothing) {
  const ServedModel model = MakeFakeModel();
  GenerateRequest request = Prompt("abc");
  request.embedding = {.pooling = serving::Pooling::kLast, .normalized = false};
  SKEIN_ASSERT_OK_AND_ASSIGN(const ValidRequest valid, Validate(request, model, 1));
  EXPECT_EQ(valid.request.pooling, serving::Pooling::kLast);
  EXPECT_FALSE(valid.normalized);
  EXPECT_EQ(valid.request.max_tokens, 1);
  EXPECT_EQ(valid.request.sampling.temperature, 0);
  EXPECT_THAT(valid.request.eos_token_ids, IsEmpty());
  EXPECT_THAT(valid.request.prompt, ElementsAre('a', 'b', 'c'));

  const auto refused = [&](const std::string& field, const auto& change) {
    GenerateRequest changed = request;
    change(changed);
    EXPECT_THAT(Validate(changed, model, 1).status(),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(field + ": says how")));
  };
  refused("sampling", [](auto& r) { r.sampling.values["top_k"] = 3; });
  refused("sampling.logit_bias", [](auto& r) { r.sampling.logit_bias = {{.id = 1, .bias = 2}}; });
  refused("max_tokens", [](auto& r) { r.max_tokens = 1; });
  refused("stop", [](auto& r) { r.stops = {"x"}; });
  refused("stop_ids", [](auto& r) { r.stop_ids = {1}; });
  refused("prompt_logprobs", [](auto& r) { r.prompt_logprobs = 0; });
  refused("n", [](auto& r) { r.n = 2; });
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
  const auto sampling = [](const char* name, auto value) {
    return [=](GenerateRequest& r) { r.sampling.values[name] = value; };
  };
  using R = GenerateRequest;
  constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
  const std::vector<BadCase> cases = {
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
      {"NaN", sampling("temperature", kNaN), kInvalid, {"sampling.temperature: nan", "[0, 100]"}},
      {"cold", sampling("temperature", -0.1f), kInvalid, {"temperature: -0.1"}},
      {"hot", sampling("temperature", kInfinity), kInvalid, {"temperature: inf"}},
      {"top_k", sampling("top_k", -1), kInvalid, {"sampling.top_k: -1", "[0, 2147483647]"}},
      {"top_p 0", sampling("top_p", 0.0f), kInvalid, {"sampling.top_p: 0", "(0, 1]"}},
      {"top_p 2", sampling("top_p", 2.0f), kInvalid, {"sampling.top_p: 2", "(0, 1]"}},
      {"top_p NaN", sampling("top_p", kNaN), kInvalid, {"sampling.top_p: nan"}},
      {"min_p", sampling("min_p", 1.5f), kInvalid, {"sampling.min_p: 1.5", "[0, 1]"}},
      {"repetition",
       sampling("repetition_penalty", 0.0f),
       kInvalid,
       {"sampling.repetition_penalty: 0", "[0.01, 100]"}},
      {"tiny repetition",  // logits divided by it would be infinite
       sampling("repetition_penalty", 1e-38f),
       kInvalid,
       {"sampling.repetition_penalty: 1e-38", "[0.01, 100]"}},
      {"presence",
       sampling("presence_penalty", 101.0f),
       kInvalid,
       {"sampling.presence_penalty: 101", "[-100, 100]"}},
      {"frequency",
       sampling("frequency_penalty", -101.0f),
       kInvalid,
       {"sampling.frequency_penalty: -101", "[-100, 100]"}},
      {"logprobs", sampling("logprobs", 21), kInvalid, {"sampling.logprobs: 21", "[0, 20]"}},
      {"logprobs -1", sampling("logprobs", -1), kInvalid, {"sampling.logprobs: -1"}},
      {"n 0", [](R& r) { r.n = 0; }, kInvalid, {"n: 0 is not in [1, 16]"}},
      {"n", [](R& r) { r.n = 17; }, kInvalid, {"n: 17 is not in [1, 16]"}},
      {"low", [](R& r) { r.priority = -101; }, kInvalid, {"priority: -101", "[-100, 100]"}},
      {"high", [](R& r) { r.priority = 101; }, kInvalid, {"priority: 101"}},
      {"prompt logprobs",
       [](R& r) { r.prompt_logprobs = 21; },
       kInvalid,
       {"prompt_logprobs: 21 is not in [0, 20]"}},
      {"prompt logprobs -1",
       [](R& r) { r.prompt_logprobs = -1; },
       kInvalid,
       {"prompt_logprobs: -1"}},
      {"typical_p", sampling("typical_p", 0.0f), kInvalid, {"sampling.typical_p: 0", "(0, 1]"}},
      {"tau", sampling("mirostat_tau", 101.0f), kInvalid, {"mirostat_tau: 101", "[0, 100]"}},
      {"tau NaN", sampling("mirostat_tau", kNaN), kInvalid, {"sampling.mirostat_tau: nan"}},
      {"eta", sampling("mirostat_eta", 1.5f), kInvalid, {"sampling.mirostat_eta: 1.5", "[0, 1]"}},
      {"bias",
       [](R& r) { r.sampling.logit_bias = {{1, 1.0f}, {2, kNaN}}; },
       kInvalid,
       {"sampling.logit_bias[1].bias: nan is not in [-100, 100]"}},
      {"bias id",
       [](R& r) { r.sampling.logit_bias = {{257, 1.0f}}; },
       kInvalid,
       {"sampling.logit_bias[0].id: 257 is not in [0, 256]"}},
      {"biases",
       [](R& r) { r.sampling.logit_bias.assign(1025, {1, 1.0f}); },
       kInvalid,
       {"sampling.logit_bias: 1025 tokens", "at most 1024"}},
      {"min_tokens",
       [](R& r) { r.sampling.values["min_tokens"] = 32; },
       kInvalid,
       {"sampling.min_tokens: 32 is not in [0, 31]"}},
      {"min over max",
       [](R& r) {
         r.max_tokens = 4;
         r.sampling.values["min_tokens"] = 5;
       },
       kInvalid,
       {"sampling.min_tokens: 5 is not in [0, 4]", "max_tokens is 4"}},
      {"multiplier",
       sampling("dry_multiplier", -1.0f),
       kInvalid,
       {"sampling.dry_multiplier: -1", "[0, 100]"}},
      {"base", sampling("dry_base", 0.9f), kInvalid, {"sampling.dry_base: 0.9", "[1, 100]"}},
      {"allowed",
       sampling("dry_allowed_length", 0),
       kInvalid,
       {"sampling.dry_allowed_length: 0", "[1, 2147483647]"}},
      {"last_n", sampling("dry_last_n", -2), kInvalid, {"dry_last_n: -2", "[-1, 2147483647]"}},
      {"breaker",  // though it is not used
       [](R& r) { r.sampling.dry_breakers = {"x", ""}; },
       kInvalid,
       {"sampling.dry_breakers[1]: 0 bytes", "[1, 32]"}},
      {"stops", [](R& r) { r.stops.assign(17, "x"); }, kInvalid, {"stop: 17", "at most 16"}},
      {"empty stop", [](R& r) { r.stops = {"x", ""}; }, kInvalid, {"stop[1]: 0", "[1, 1024]"}},
      {"long stop",
       [](R& r) { r.stops = {std::string(1025, 'x')}; },
       kInvalid,
       {"stop[0]: 1025", "[1, 1024]"}},
      {"stop id",
       [](R& r) { r.stop_ids = {256, 257}; },
       kInvalid,
       {"stop_ids[1]: 257 is not in [0, 256]"}},
      {"huge stop id",  // though the end of the text is ignored
       [](R& r) {
         r.sampling.ignore_eos = true;
         r.stop_ids = {0xFFFFFFFF};
       },
       kInvalid,
       {"stop_ids[0]: 4294967295 is not in [0, 256]"}},
      {"stop ids", [](R& r) { r.stop_ids.assign(257, 1); }, kInvalid, {"stop_ids: 257 ids", "256"}},
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
  defaults.min_p = 0.125;
  defaults.typical_p = 0.75;
  defaults.repetition_penalty = 1.5;
  SKEIN_ASSERT_OK_AND_ASSIGN(serving::SamplingParams params, ResolveSampling({}, defaults));
  EXPECT_EQ(params.temperature, 0.5f);
  EXPECT_EQ(params.top_k, 40);
  EXPECT_EQ(params.top_p, 1.0f);
  EXPECT_EQ(params.min_p, 0.125f);
  EXPECT_EQ(params.typical_p, 0.75f);
  EXPECT_EQ(params.repetition_penalty, 1.5f);

  SKEIN_ASSERT_OK_AND_ASSIGN(
      params,
      ResolveSampling({.values = {{"temperature", 2.0f}, {"top_k", 0}, {"typical_p", 1.0f}}},
                      defaults));
  EXPECT_EQ(params.temperature, 2.0f);
  EXPECT_EQ(params.top_k, 0);
  EXPECT_EQ(params.typical_p, 1.0f);

  defaults.do_sample = false;
  SKEIN_ASSERT_OK_AND_ASSIGN(params, ResolveSampling({}, defaults));
  EXPECT_EQ(params.temperature, 0.0f);
  SKEIN_ASSERT_OK_AND_ASSIGN(params,
                             ResolveSampling({.values = {{"temperature", 0.7f}}}, defaults));
  EXPECT_EQ(params.temperature, 0.7f);
}

TEST(SamplingParamsTest, EveryFieldIsTaken) {
  const SamplingRequest request{.values = {{"presence_penalty", -1.0f},
                                           {"frequency_penalty", 2.0f},
                                           {"seed", uint64_t{3}},
                                           {"typical_p", 0.25f},
                                           {"mirostat_tau", 5.0f},
                                           {"mirostat_eta", 0.5f},
                                           {"dry_multiplier", 0.75f},
                                           {"dry_base", 1.5f},
                                           {"dry_allowed_length", 4},
                                           {"dry_last_n", 64}}};
  SKEIN_ASSERT_OK_AND_ASSIGN(const serving::SamplingParams params, ResolveSampling(request, {}));
  EXPECT_EQ(params.presence_penalty, -1.0f);
  EXPECT_EQ(params.frequency_penalty, 2.0f);
  EXPECT_EQ(params.seed, 3u);
  EXPECT_EQ(params.typical_p, 0.25f);
  EXPECT_EQ(params.mirostat_tau, 5.0f);
  EXPECT_EQ(params.mirostat_eta, 0.5f);
  EXPECT_EQ(params.dry_multiplier, 0.75f);
  EXPECT_EQ(params.dry_base, 1.5f);
  EXPECT_EQ(params.dry_allowed_length, 4);
  EXPECT_EQ(params.dry_last_n, 64);
}

TEST(SamplingParamsTest, AParameterOfNoSuchNameOrTypeIsNotPassedOver) {
  EXPECT_THAT(ResolveSampling({.values = {{"warmth", 1.0f}}}, {}),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("no known name")));
  EXPECT_THAT(ResolveSampling({.values = {{"temperature", 1}}}, {}),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("no known name")));
}

TEST(ServedModelTest, DefaultsAndContextAreCheckedAtTheStart) {
  ServedModel model = MakeFakeModel();
  EXPECT_EQ(model.name, "fake");
  EXPECT_EQ(model.context_length, 32);
  EXPECT_EQ(model.longest_token_bytes, 5);
  EXPECT_EQ(model.default_dry_breakers.size(), 4u);
  SKEIN_EXPECT_OK(CompleteServedModel(model, 16));
  EXPECT_EQ(model.context_length, 16);
  EXPECT_THAT(CompleteServedModel(model, 33),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("33 is not in [2, 32]")));
  model.defaults.eos_token_ids = {256, 13};
  SKEIN_EXPECT_OK(CompleteServedModel(model, 0));
  EXPECT_THAT(model.eos_token_ids, ElementsAre(13, FakeTokenizer::kEos));
  model.defaults.top_p = 3;
  EXPECT_THAT(CompleteServedModel(model, 0),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("generation_config.json"), HasSubstr("top_p: 3"))));
}

TEST(ServedModelTest, TokensBeyondTheVocabularyAreRefusedByNameAndNumber) {
  const struct {
    std::function<void(ServedModel&)> change;
    const char* says;
  } cases[] = {
      {[](ServedModel& m) { m.config.bos_token_id = 258; }, "/config.json: bos_token_id is 258"},
      {[](ServedModel& m) { m.config.eos_token_ids = {1, 258}; },
       "/config.json: eos_token_id is 258"},
      {[](ServedModel& m) { m.defaults.bos_token_ids = {258}; },
       "/generation_config.json: bos_token_id is 258"},
      {[](ServedModel& m) { m.defaults.eos_token_ids = {1, 999999}; },
       "/generation_config.json: eos_token_id is 999999"},
      {[](ServedModel& m) { m.config.vocab_size = 257; },
       ": the id of its tokenizer's token \"word\\n\" is 257"},
  };
  for (const auto& [change, says] : cases) {
    ServedModel model = MakeFakeModel({"word\n"});
    model.config.bos_token_id = 257;
    SKEIN_EXPECT_OK(CompleteServedModel(model, 0));
    model.config.bos_token_id.reset();
    change(model);
    EXPECT_THAT(CompleteServedModel(model, 0),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(HasSubstr(says), HasSubstr("the model has embeddings of 25"))));
  }
}

}  // namespace
}  // namespace skein::coordinator
