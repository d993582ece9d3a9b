// Tests requests over gRPC, against ranks that answer by a script.
#include <functional>
#include <future>
#include <limits>
#include <string>
#include <vector>

#include "coordinator/rpc/generate_fixture.h"
#include "coordinator/service/request.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace skein::coordinator {
namespace {

using ::testing::ElementsAre;
using ::testing::Ge;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

using serving::Finish;

TEST_F(GenerateTest, AnAnswerIsAcceptedThenTokensThenFinished) {
  TestCoordinator coordinator;
  const auto job = Serve(coordinator, "h\xC3\xA9!");
  v1::GenerateRequest request = PromptRequest("abc");
  request.mutable_sampling()->set_seed(0xFFFFFFFFFFFFFFFF);
  request.set_max_tokens(4);
  const Answer answer = coordinator.Ask(request);
  ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
  ASSERT_THAT(answer.events.size(), Ge(3u));
  const v1::Accepted& accepted = answer.events.front().accepted();
  EXPECT_EQ(accepted.model(), "fake");
  EXPECT_EQ(accepted.prompt_tokens(), 3u);
  EXPECT_EQ(accepted.seed(), 0xFFFFFFFFFFFFFFFF);
  EXPECT_EQ(accepted.max_tokens(), 4u);
  EXPECT_THAT(accepted.request_id(), HasSubstr("req-"));
  EXPECT_EQ(answer.text(), "hé!");
  const v1::Finished& finished = answer.last().finished();
  EXPECT_EQ(finished.reason(), v1::Finished::REASON_MAX_TOKENS);
  EXPECT_EQ(finished.usage().prompt_tokens(), 3u);
  EXPECT_EQ(finished.usage().completion_tokens(), 4u);
  EXPECT_GT(finished.usage().total_seconds(), 0);
}

TEST_F(GenerateTest, TheLeaderGetsTheRequestAsItWasValidated) {
  TestCoordinator coordinator;
  const auto job = Serve(coordinator);
  v1::GenerateRequest request;
  request.mutable_prompt_tokens()->add_ids(256);
  request.mutable_prompt_tokens()->add_ids(7);
  request.mutable_sampling()->set_temperature(0.5f);
  request.mutable_sampling()->set_top_k(3);
  request.mutable_sampling()->set_top_p(0.25f);
  request.mutable_sampling()->set_min_p(0.125f);
  request.mutable_sampling()->set_repetition_penalty(1.5f);
  request.mutable_sampling()->set_presence_penalty(-1);
  request.mutable_sampling()->set_frequency_penalty(2);
  request.mutable_sampling()->set_logprobs(1);
  request.mutable_sampling()->set_typical_p(0.75f);
  request.mutable_sampling()->set_mirostat_tau(5);
  request.mutable_sampling()->set_mirostat_eta(0.375f);
  request.mutable_sampling()->add_logit_bias()->set_id(9);
  request.mutable_sampling()->mutable_logit_bias(0)->set_bias(-2.5f);
  request.mutable_sampling()->set_min_tokens(4);
  request.mutable_sampling()->set_dry_multiplier(0.875f);
  request.mutable_sampling()->set_dry_base(1.25f);
  request.mutable_sampling()->set_dry_allowed_length(3);
  request.mutable_sampling()->set_dry_last_n(64);
  request.mutable_sampling()->mutable_dry_breakers()->add_breaker("ab");
  request.set_priority(-5);
  request.add_stop_ids(11);
  auto answer = std::async(std::launch::async, [&] { return coordinator.Ask(request); });
  const auto received = job->WaitForRequest();
  ASSERT_TRUE(received.has_value());
  EXPECT_THAT(received->prompt, ElementsAre(256, 7));
  EXPECT_EQ(received->max_tokens, 30u);
  EXPECT_THAT(received->eos_token_ids, ElementsAre(FakeTokenizer::kEos, 11));
  EXPECT_EQ(received->sampling.temperature, 0.5f);
  EXPECT_EQ(received->sampling.top_k, 3);
  EXPECT_EQ(received->sampling.top_p, 0.25f);
  EXPECT_EQ(received->sampling.min_p, 0.125f);
  EXPECT_EQ(received->sampling.repetition_penalty, 1.5f);
  EXPECT_EQ(received->sampling.presence_penalty, -1);
  EXPECT_EQ(received->sampling.frequency_penalty, 2);
  EXPECT_EQ(received->sampling.logprobs, 1);
  EXPECT_EQ(received->sampling.typical_p, 0.75f);
  EXPECT_EQ(received->sampling.mirostat_tau, 5);
  EXPECT_EQ(received->sampling.mirostat_eta, 0.375f);
  EXPECT_THAT(received->sampling.logit_bias, ElementsAre(serving::TokenBias{9, -2.5f}));
  EXPECT_EQ(received->sampling.min_tokens, 4);
  EXPECT_THAT(received->sampling.stop_ids, ElementsAre(FakeTokenizer::kEos, 11));
  EXPECT_EQ(received->sampling.dry_multiplier, 0.875f);
  EXPECT_EQ(received->sampling.dry_base, 1.25f);
  EXPECT_EQ(received->sampling.dry_allowed_length, 3);
  EXPECT_EQ(received->sampling.dry_last_n, 64);
  EXPECT_THAT(received->sampling.dry_breakers, ElementsAre(ElementsAre('a', 'b')));
  EXPECT_EQ(received->priority, -5);
  EXPECT_EQ(received->deadline, absl::InfiniteFuture());
  EXPECT_EQ(received->prompt_logprobs, -1);
  ASSERT_THAT(received->answers, SizeIs(1));

  serving::AnswerOutput output = TextOutput(received->id, "x", Finish::kNotFinished);
  output.tokens[0].logprob = -0.25f;
  output.tokens[0].top_logprobs = {{'y', -0.125f}, {FakeTokenizer::kEos, -1.5f}};
  output.tokens.push_back({.id = FakeTokenizer::kEos});
  output.finish = Finish::kEos;
  job->Send(output);
  const Answer got = answer.get();
  ASSERT_TRUE(got.status.ok());
  EXPECT_EQ(got.events.front().accepted().seed(), received->sampling.seed);
  const v1::Token& token = got.events[1].tokens().tokens(0);
  EXPECT_EQ(token.id(), 'x');
  EXPECT_EQ(token.logprob(), -0.25f);
  EXPECT_EQ(token.token(), "x");
  ASSERT_THAT(token.top_logprobs(), SizeIs(2));
  EXPECT_EQ(token.top_logprobs(0).token(), "y");
  EXPECT_EQ(token.top_logprobs(1).token(), "<eos>");
  EXPECT_EQ(got.text(), "x");
  EXPECT_EQ(got.last().finished().reason(), v1::Finished::REASON_EOS);
}

TEST_F(GenerateTest, UnsetAndEmptyBreakersDiffer) {
  TestCoordinator coordinator;
  const auto job = Serve(coordinator);
  v1::GenerateRequest request = PromptRequest("x");
  request.mutable_sampling()->set_dry_multiplier(1);
  request.mutable_sampling()->set_ignore_eos(true);
  request.set_max_tokens(1);
  for (const bool empty : {false, true}) {
    if (empty) request.mutable_sampling()->mutable_dry_breakers();
    auto answer = std::async(std::launch::async, [&] { return coordinator.Ask(request); });
    const auto received = job->WaitForRequest();
    ASSERT_TRUE(received.has_value());
    EXPECT_THAT(received->sampling.dry_breakers, SizeIs(empty ? 0 : 4));
    EXPECT_THAT(received->eos_token_ids, IsEmpty());
    EXPECT_THAT(received->sampling.stop_ids, IsEmpty());
    job->Send(TextOutput(received->id, "x", Finish::kMaxTokens));
    EXPECT_TRUE(answer.get().status.ok());
  }
}

TEST_F(GenerateTest, SeveralAnswersEndTheStreamWithTheLast) {
  Daemon::Options options = TestOptions();
  options.model.limits.constraints.max_num_seqs = 3;
  TestCoordinator coordinator(options);
  const auto job = Serve(coordinator);
  v1::GenerateRequest request = PromptRequest("abc");
  request.set_n(3);
  auto answer = std::async(std::launch::async, [&] { return coordinator.Ask(request); });
  const auto received = job->WaitForRequest();
  ASSERT_TRUE(received.has_value());
  ASSERT_THAT(received->answers, SizeIs(3));
  for (const int32_t answer : {2, 0, 1}) {
    serving::AnswerOutput output = TextOutput(received->id, std::string(answer + 1, 'x'));
    output.answer = answer;
    job->Send(output);
  }
  const Answer got = answer.get();
  ASSERT_TRUE(got.status.ok()) << got.status.error_message();
  EXPECT_EQ(got.events.front().accepted().n(), 3u);
  request.set_n(4);
  const Answer refused = coordinator.Ask(request);
  EXPECT_EQ(refused.status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_THAT(refused.status.error_message(), HasSubstr("it runs 3 sequences at once"));
  std::vector<std::string> texts(3);
  std::vector<int> ends(3);
  for (const v1::GenerateEvent& event : got.events) {
    if (event.has_tokens()) texts.at(event.tokens().answer()) += event.tokens().text();
    if (!event.has_finished()) continue;
    ++ends.at(event.finished().answer());
    // The end-of-sequence token counts.
    EXPECT_EQ(event.finished().usage().completion_tokens(), event.finished().answer() + 2);
  }
  EXPECT_THAT(texts, ElementsAre("x", "xx", "xxx"));
  EXPECT_THAT(ends, ElementsAre(1, 1, 1));
  EXPECT_TRUE(got.last().has_finished());
}

TEST_F(GenerateTest, PromptLogprobsComeBeforeTheAnswer) {
  TestCoordinator coordinator;
  const auto job = Serve(coordinator);
  v1::GenerateRequest request = PromptRequest("abc");
  request.set_prompt_logprobs(1);
  auto answer = std::async(std::launch::async, [&] { return coordinator.Ask(request); });
  const auto received = job->WaitForRequest();
  ASSERT_TRUE(received.has_value());
  EXPECT_EQ(received->prompt_logprobs, 1);
  // They come in pieces, as chunks of the prompt are computed.
  job->Send({.request_id = received->id,
             .prompt_logprobs = {{.id = 'b', .logprob = -0.5f, .top_logprobs = {{'z', -0.25f}}}}});
  job->Send({.request_id = received->id,
             .prompt_logprobs = {{.id = 'c', .logprob = -1.5f, .top_logprobs = {{'c', -1.5f}}}}});
  job->Send(TextOutput(received->id, "d"));
  const Answer got = answer.get();
  ASSERT_TRUE(got.status.ok()) << got.status.error_message();
  std::vector<v1::Token> tokens;
  std::string text;
  for (const v1::GenerateEvent& event : got.events) {
    for (const v1::Token& token : event.tokens().prompt_logprobs()) {
      EXPECT_EQ(text, "");
      tokens.push_back(token);
    }
    text += event.tokens().text();
  }
  EXPECT_EQ(text, "d");
  ASSERT_THAT(tokens, SizeIs(2));
  EXPECT_EQ(tokens[0].id(), 'b');
  EXPECT_EQ(tokens[0].logprob(), -0.5f);
  EXPECT_EQ(tokens[0].token(), "b");
  ASSERT_THAT(tokens[0].top_logprobs(), SizeIs(1));
  EXPECT_EQ(tokens[0].top_logprobs(0).token(), "z");
  EXPECT_EQ(tokens[0].top_logprobs(0).logprob(), -0.25f);
  EXPECT_EQ(tokens[1].id(), 'c');
}

TEST_F(GenerateTest, AStopStringEndsTheAnswerAndTheRequest) {
  TestCoordinator coordinator;
  const auto job = Serve(coordinator);
  v1::GenerateRequest request = PromptRequest("abc");
  request.add_stop("ROMEO:");
  auto answer = std::async(std::launch::async, [&] { return coordinator.Ask(request); });
  const auto received = job->WaitForRequest();
  ASSERT_TRUE(received.has_value());
  job->Send(TextOutput(received->id, "ah, ROM", Finish::kNotFinished));
  job->Send(TextOutput(received->id, "EO: hey", Finish::kNotFinished));
  EXPECT_TRUE(job->WaitForCancel(received->id));
  const Answer got = answer.get();
  ASSERT_TRUE(got.status.ok());
  EXPECT_EQ(got.text(), "ah, ");
  EXPECT_EQ(got.last().finished().reason(), v1::Finished::REASON_STOP);
  EXPECT_EQ(got.last().finished().stop(), "ROMEO:");
}

TEST_F(GenerateTest, WhatIsWrongIsAStatusWithoutEvents) {
  TestCoordinator coordinator;
  const auto job = Serve(coordinator, "x");
  struct Case {
    std::function<void(v1::GenerateRequest&)> change;
    grpc::StatusCode code;
    std::string says;
  };
  using R = v1::GenerateRequest;
  constexpr auto kInvalid = grpc::StatusCode::INVALID_ARGUMENT;
  const std::vector<Case> cases = {
      {[](R& r) { r.set_model("gpt"); }, grpc::StatusCode::NOT_FOUND, "'gpt'"},
      {[](R& r) { r.clear_input(); }, kInvalid, "input"},
      {[](R& r) { r.set_prompt(""); }, kInvalid, "prompt: empty"},
      {[](R& r) { r.mutable_prompt_tokens(); }, kInvalid, "prompt_tokens"},
      {[](R& r) { r.mutable_chat(); }, kInvalid, "chat: no message"},
      {[](R& r) { r.mutable_chat()->add_messages()->set_role("user"); },
       grpc::StatusCode::FAILED_PRECONDITION, "chat: the model has no chat template"},
      {[](R& r) { r.set_prompt("a\xFF"); }, kInvalid, "byte 1"},
      {[](R& r) { r.mutable_prompt_tokens()->add_ids(257); }, kInvalid, "ids[0]: 257"},
      {[](R& r) { r.set_prompt(std::string(10 << 20, 'x')); }, kInvalid, "10485760 bytes"},
      {[](R& r) { r.set_prompt(std::string(32, 'x')); }, kInvalid, "32 tokens"},
      {[](R& r) { r.set_max_tokens(32); }, kInvalid, "max_tokens: 32 is not in [1, 31]"},
      {[](R& r) { r.set_max_tokens(0); }, kInvalid, "max_tokens: 0"},
      {[](R& r) { r.mutable_sampling()->set_temperature(std::numeric_limits<float>::quiet_NaN()); },
       kInvalid, "sampling.temperature: nan is not in [0, 100]"},
      {[](R& r) { r.mutable_sampling()->set_top_p(0); }, kInvalid, "sampling.top_p: 0"},
      {[](R& r) { r.mutable_sampling()->set_logprobs(21); }, kInvalid, "sampling.logprobs: 21"},
      {[](R& r) { r.add_stop(""); }, kInvalid, "stop[0]"},
      {[](R& r) { r.add_stop_ids(257); }, kInvalid, "stop_ids[0]: 257 is not in [0, 256]"},
      {[](R& r) { r.set_n(0); }, kInvalid, "n: 0 is not in [1, 16]"},
      {[](R& r) { r.set_n(17); }, kInvalid, "n: 17"},
      {[](R& r) { r.set_priority(101); }, kInvalid, "priority: 101"},
      {[](R& r) { r.set_prompt_logprobs(21); }, kInvalid, "prompt_logprobs: 21"},
      {[](R& r) { r.mutable_sampling()->set_min_tokens(32); }, kInvalid, "min_tokens: 32"},
      {[](R& r) { r.mutable_sampling()->add_logit_bias()->set_id(257); }, kInvalid,
       "sampling.logit_bias[0].id: 257"},
      {[](R& r) { r.mutable_sampling()->mutable_dry_breakers()->add_breaker("a\xFF"); }, kInvalid,
       "sampling.dry_breakers[0]: invalid UTF-8"},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.says);
    v1::GenerateRequest request = PromptRequest("x");
    c.change(request);
    const Answer answer = coordinator.Ask(request);
    EXPECT_EQ(answer.status.error_code(), c.code) << answer.status.error_message();
    EXPECT_THAT(answer.status.error_message(), HasSubstr(c.says));
    EXPECT_THAT(answer.events, IsEmpty());
  }
}

TEST_F(GenerateTest, WithoutWorkersItIsUnavailable) {
  TestCoordinator coordinator;
  const Answer answer = coordinator.Ask(PromptRequest("x"));
  EXPECT_EQ(answer.status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_THAT(answer.status.error_message(), HasSubstr("no replica serves"));
  EXPECT_THAT(answer.events, IsEmpty());
}

TEST_F(GenerateTest, ModelsAreListed) {
  TestCoordinator coordinator;
  const auto list = [&] {
    grpc::ClientContext context;
    v1::ListModelsResponse response;
    EXPECT_TRUE(coordinator.inference().ListModels(&context, {}, &response).ok());
    EXPECT_EQ(response.models_size(), 1);
    return response.models(0);
  };
  EXPECT_EQ(list().name(), "fake");
  EXPECT_EQ(list().context_length(), 32);
  EXPECT_EQ(list().vocabulary(), 257);
  EXPECT_FALSE(list().ready());
  const auto job = Serve(coordinator, "x");
  EXPECT_TRUE(list().ready());
}

}  // namespace
}  // namespace skein::coordinator
