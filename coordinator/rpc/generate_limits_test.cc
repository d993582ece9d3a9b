// Tests what ends, delays or refuses requests over gRPC: deadlines, cancellation, a full queue, a
// client that does not read.
#include <malloc.h>
#include <time.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <future>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "coordinator/rpc/generate_fixture.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace skein::coordinator {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

using serving::Finish;

class GenerateLimitsTest : public GenerateTest {};

TEST_F(GenerateLimitsTest, TheCallsDeadlineIsTheReplicasToo) {
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

// gRPC retries only what ended before its headers came.
TEST_F(GenerateLimitsTest, HeadersAreHeldBackSoThatClientsMayRetry) {
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

TEST_F(GenerateLimitsTest, ACancelledRequestIsCancelledAtItsReplica) {
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

TEST_F(GenerateLimitsTest, ADeadlineThatPassesIsCancelledAtItsReplicaAndInTheQueue) {
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

TEST_F(GenerateLimitsTest, AFullQueueIsResourceExhausted) {
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
TEST_F(GenerateLimitsTest, AClientThatDoesNotReadSlowsNobodyAndHoldsNoMoreThanItsAnswer) {
  constexpr int kTokens = 4096;
  const std::string word(1024, 'w');
  Daemon::Options options = TestOptions();
  options.model.limits.constraints.max_num_seqs = 4;
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

}  // namespace
}  // namespace skein::coordinator
