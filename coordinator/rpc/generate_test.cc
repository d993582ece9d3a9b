// Tests requests over gRPC, against ranks that answer by a script.
#include <malloc.h>
#include <time.h>

#include <algorithm>
#include <functional>
#include <future>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "coordinator/rpc/test_coordinator.h"
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

class GenerateTest : public ::testing::Test {
 protected:
  // Starts a job of one rank that answers every request with `text`, or leaves it to the test.
  std::unique_ptr<FakeJob> Serve(TestCoordinator& coordinator, const std::string& text = "",
                                 const std::string& id = "job") {
    FakeJobOptions options{.coordinator = coordinator.address(), .job_id = id};
    if (!text.empty()) {
      options.script = [text](const serving::Request& request) {
        const bool full = std::ssize(text) == request.max_tokens;
        return std::vector<serving::AnswerOutput>{
            TextOutput(request.id, text, full ? Finish::kMaxTokens : Finish::kEos)};
      };
    }
    auto job = std::make_unique<FakeJob>(std::move(options));
    EXPECT_TRUE(coordinator.WaitUntilServing());
    return job;
  }
};

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

TEST_F(GenerateTest, TheCallsDeadlineIsTheReplicasToo) {
  TestCoordinator coordinator;
  const auto job = Serve(coordinator);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::hours(1));
  const absl::Time deadline = absl::FromChrono(context.deadline());
  auto answer =
      std::async(std::launch::async, [&] { return coordinator.Ask(PromptRequest("x"), context); });
  const auto received = job->WaitForRequest();
  ASSERT_TRUE(received.has_value());
  // The deadline travels as the time that is left, rounded, and twice.
  EXPECT_GT(received->deadline, deadline - absl::Seconds(30));
  EXPECT_LT(received->deadline, deadline + absl::Seconds(30));
  job->Send(TextOutput(received->id, "x"));
  EXPECT_TRUE(answer.get().status.ok());
}

TEST_F(GenerateTest, SeveralAnswersEndTheStreamWithTheLast) {
  Daemon::Options options = TestOptions();
  options.cluster.constraints.max_num_seqs = 3;
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

// gRPC retries only what ended before its headers came.
TEST_F(GenerateTest, HeadersAreHeldBackSoThatClientsMayRetry) {
  TestCoordinator coordinator;
  grpc::ChannelArguments arguments;
  arguments.SetServiceConfigJSON(R"({"methodConfig": [{
      "name": [{"service": "skein.v1.Inference"}],
      "retryPolicy": {"maxAttempts": 5, "initialBackoff": "0.5s", "maxBackoff": "2s",
                      "backoffMultiplier": 2, "retryableStatusCodes": ["UNAVAILABLE"]}}]})");
  const auto stub = v1::Inference::NewStub(grpc::CreateCustomChannel(
      coordinator.address(), grpc::InsecureChannelCredentials(), arguments));
  grpc::ClientContext context;
  const auto reader = stub->Generate(&context, PromptRequest("x"));
  const auto job = Serve(coordinator, "late");
  const Answer answer = TestCoordinator::ReadAll(*reader);
  EXPECT_TRUE(answer.status.ok()) << answer.status.error_message();
  EXPECT_EQ(answer.text(), "late");
}

TEST_F(GenerateTest, ACancelledRequestIsCancelledAtItsReplica) {
  TestCoordinator coordinator;
  const auto job = Serve(coordinator);
  grpc::ClientContext context;
  auto answer =
      std::async(std::launch::async, [&] { return coordinator.Ask(PromptRequest("x"), context); });
  const auto received = job->WaitForRequest();
  ASSERT_TRUE(received.has_value());
  context.TryCancel();
  EXPECT_TRUE(job->WaitForCancel(received->id));
  EXPECT_EQ(answer.get().status.error_code(), grpc::StatusCode::CANCELLED);
  EXPECT_EQ(coordinator.Status().running_requests(), 0);
}

TEST_F(GenerateTest, ADeadlineThatPassesIsCancelledAtItsReplicaAndInTheQueue) {
  TestCoordinator coordinator;
  const auto job = Serve(coordinator);
  std::vector<std::future<Answer>> answers;
  std::vector<std::unique_ptr<grpc::ClientContext>> contexts;
  for (int i = 0; i < 3; ++i) {  // one runs, one waits at the replica, one in the queue
    contexts.push_back(std::make_unique<grpc::ClientContext>());
    contexts.back()->set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(2));
    answers.push_back(std::async(std::launch::async, [&coordinator, &context = *contexts.back()] {
      return coordinator.Ask(PromptRequest("x"), context);
    }));
  }
  const auto first = job->WaitForRequest();
  const auto second = job->WaitForRequest();
  ASSERT_TRUE(first.has_value() && second.has_value());
  EXPECT_TRUE(job->WaitForCancel(first->id));
  EXPECT_TRUE(job->WaitForCancel(second->id));
  for (auto& answer : answers) {
    EXPECT_EQ(answer.get().status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  }
  EXPECT_TRUE(TestCoordinator::WaitFor([&] {
    const auto status = coordinator.Status();
    return status.queued_requests() == 0 && status.running_requests() == 0;
  }));
}

TEST_F(GenerateTest, AFullQueueIsResourceExhausted) {
  TestCoordinator coordinator;
  const auto job = Serve(coordinator);
  std::vector<std::future<Answer>> answers;
  for (int i = 0; i < 4; ++i) {  // two at the replica, two in the queue
    answers.push_back(std::async(std::launch::async,
                                 [&coordinator] { return coordinator.Ask(PromptRequest("x")); }));
  }
  ASSERT_TRUE(
      TestCoordinator::WaitFor([&] { return coordinator.Status().queued_requests() == 2; }));
  const Answer refused = coordinator.Ask(PromptRequest("x"));
  EXPECT_EQ(refused.status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(refused.status.error_message(), HasSubstr("2 requests wait"));
  EXPECT_THAT(refused.events, IsEmpty());
  for (int i = 0; i < 4; ++i) {
    const auto received = job->WaitForRequest();
    ASSERT_TRUE(received.has_value());
    job->Send(TextOutput(received->id, "ok"));
  }
  for (auto& answer : answers) EXPECT_EQ(answer.get().text(), "ok");
}

// Returns what this process's malloc has given out. (A sanitizer's allocator is not seen.)
int64_t LiveBytes() {
  const struct mallinfo2 info = mallinfo2();
  return static_cast<int64_t>(info.uordblks + info.hblkhd);
}

// Returns the time of all threads of this process.
absl::Duration CpuTime() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return absl::DurationFromTimespec(time);
}

// 4 MiB of text is far more than this client's flow control lets through unread (64 KiB); the rest
// piles up in few events, and costs no more than itself while others are served.
TEST_F(GenerateTest, AClientThatDoesNotReadSlowsNobodyAndHoldsNoMoreThanItsAnswer) {
  constexpr int kTokens = 4096;
  const std::string word(1024, 'w');
  Daemon::Options options = TestOptions();
  options.cluster.constraints.max_num_seqs = 4;
  TestCoordinator coordinator(std::move(options), MakeFakeModel({word}, kTokens + 8));
  const auto job = Serve(coordinator);
  const auto serve_another = [&](int tokens) {
    v1::GenerateRequest request = PromptRequest("quick");
    request.set_max_tokens(tokens);
    auto answer = std::async(std::launch::async, [&] { return coordinator.Ask(request); });
    const auto quick = job->WaitForRequest();
    ASSERT_TRUE(quick.has_value());
    job->Send({.request_id = quick->id,
               .tokens = decltype(serving::AnswerOutput::tokens)(tokens,
                                                                 {.id = FakeTokenizer::kFirstWord}),
               .finish = Finish::kMaxTokens});
    EXPECT_EQ(answer.get().text().size(), tokens * word.size());
  };
  const auto median_of = [&](int answers, const std::function<void()>& after_each) {
    std::vector<absl::Duration> took;
    for (int i = 0; i < answers; ++i) {
      const absl::Duration begin = CpuTime();
      serve_another(256);
      took.push_back(CpuTime() - begin);
      after_each();
    }
    std::nth_element(took.begin(), took.begin() + answers / 2, took.end());
    return took[answers / 2];
  };
  const absl::Duration undisturbed = median_of(48, [] {});

  const auto stub = coordinator.StubWithSmallWindow();
  grpc::ClientContext context;
  v1::GenerateRequest big_request = PromptRequest("lazy");
  big_request.set_max_tokens(kTokens);
  const auto lazy = stub->Generate(&context, big_request);
  const auto big = job->WaitForRequest();
  ASSERT_TRUE(big.has_value());
  const int64_t before = LiveBytes();
  for (int i = 0; i < kTokens; ++i) {
    const bool last = i + 1 == kTokens;
    job->Send({.request_id = big->id,
               .tokens = {{.id = FakeTokenizer::kFirstWord}},
               .finish = last ? Finish::kMaxTokens : Finish::kNotFinished});
  }
  // Text and tokens grow by doubling; an event, its message and what is on the wire come on top.
  constexpr int64_t kInFlight = 3 << 20;
  const auto per_token = static_cast<int64_t>(word.size() + sizeof(AnswerToken) + sizeof(int32_t));
  const int64_t bound = 2 * kTokens * per_token + kInFlight;
  // Steps of one replica are taken in order: the first of these answers comes after the coordinator
  // took all of the big one. Together they are three times as long.
  const absl::Duration beside = median_of(48, [&] { EXPECT_LT(LiveBytes() - before, bound); });
  // Work is measured, not time, which another process may take. The coordinator does not look
  // again, for each of them, at what is there for the lazy client.
  EXPECT_LT(beside, 1.5 * undisturbed) << beside << " beside it, " << undisturbed << " alone";
  RecordProperty("beside_over_alone", absl::StrCat(absl::FDivDuration(beside, undisturbed)));

  const Answer late = TestCoordinator::ReadAll(*lazy);
  EXPECT_TRUE(late.status.ok()) << late.status.error_message();
  EXPECT_EQ(late.text().size(), kTokens * word.size());
  EXPECT_LT(late.events.size(), kTokens / 4);
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
