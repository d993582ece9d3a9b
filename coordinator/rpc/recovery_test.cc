// Tests requests whose replica is lost in mid-answer, over gRPC, against ranks that answer by a
// script.
#include <chrono>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "coordinator/rpc/test_coordinator.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace skein::coordinator {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

using serving::Finish;

constexpr auto kUnavailable = grpc::StatusCode::UNAVAILABLE;

class RecoveryTest : public ::testing::Test {
 protected:
  void Start(Daemon::Options options = TestOptions(), ServedModel model = MakeFakeModel()) {
    coordinator_ = std::make_unique<TestCoordinator>(std::move(options), std::move(model));
  }

  // Starts a job of one rank that serves.
  std::unique_ptr<FakeJob> Serve(const std::string& id) {
    auto job = std::make_unique<FakeJob>(
        FakeJobOptions{.coordinator = coordinator_->address(), .job_id = id});
    EXPECT_TRUE(TestCoordinator::WaitFor([&] {
      const cluster::v1::ClusterStatus status = coordinator_->Status();
      for (const auto& one : status.jobs()) {
        if (one.job_id() == id && one.state() == "serving") return true;
      }
      return false;
    }));
    return job;
  }

  std::future<Answer> Ask(v1::GenerateRequest request = PromptRequest("abc")) {
    return std::async(std::launch::async,
                      [this, request = std::move(request)] { return coordinator_->Ask(request); });
  }

  // Returns the next request of `job`; none fails the test.
  static serving::Request Take(FakeJob& job) {
    std::optional<serving::Request> request = job.WaitForRequest();
    EXPECT_TRUE(request.has_value());
    return request.value_or(serving::Request{});
  }

  bool WaitUntilQueued(int requests) {
    return TestCoordinator::WaitFor(
        [&] { return coordinator_->Status().queued_requests() == requests; });
  }

  // Returns when the coordinator has it.
  void SendPart(FakeJob& job, const serving::Request& request, const std::string& text,
                float mu = 0) {
    serving::AnswerOutput output = TextOutput(request.id, text, Finish::kNotFinished);
    for (serving::SampledToken& token : output.tokens) token.mu = mu;
    const int64_t before = TokensThatCame();
    job.Send(output);
    EXPECT_TRUE(TestCoordinator::WaitFor([&] { return TokensThatCame() > before; }));
  }

  int64_t TokensThatCame() {
    int64_t tokens = 0;
    const cluster::v1::ClusterStatus status = coordinator_->Status();
    for (const auto& job : status.jobs()) {
      for (const auto& replica : job.replicas()) tokens += replica.tokens_total();
    }
    return tokens;
  }

  std::unique_ptr<TestCoordinator> coordinator_;
};

TEST_F(RecoveryTest, AnAnswerGoesOnInMidCharacterInMidStopStringAndWithItsSamplingState) {
  Start();
  const auto first = Serve("first");
  v1::GenerateRequest ask = PromptRequest("abc");
  ask.add_stop("STOP");
  ask.mutable_sampling()->set_seed(77);
  ask.mutable_sampling()->set_mirostat_tau(5);
  auto answer = Ask(ask);
  serving::Request request = Take(*first);
  EXPECT_THAT(request.answers[0].output, IsEmpty());
  const absl::Duration waited = request.waited;
  EXPECT_GT(waited, absl::ZeroDuration());
  SendPart(*first, request, "a\xE2\x82", 9.5f);
  const auto second = Serve("second");
  first->Kill(0);

  request = Take(*second);
  EXPECT_THAT(request.prompt, ElementsAre('a', 'b', 'c'));
  EXPECT_EQ(request.max_tokens, 29u);
  EXPECT_EQ(request.sampling.seed, 77u);
  ASSERT_THAT(request.answers, SizeIs(1));
  EXPECT_THAT(request.answers[0].output, ElementsAre('a', 0xE2, 0x82));
  EXPECT_EQ(request.answers[0].mu, 9.5f);
  EXPECT_GT(request.waited, waited);  // its age goes on, too
  SendPart(*second, request, "\xAC ST", 8.5f);
  const auto third = Serve("third");
  second->Kill(0);

  request = Take(*third);
  EXPECT_THAT(request.answers[0].output, SizeIs(7));
  EXPECT_EQ(request.answers[0].mu, 8.5f);
  SendPart(*third, request, "OP it", 8);
  EXPECT_TRUE(third->WaitForCancel(request.id));
  const Answer got = answer.get();
  EXPECT_TRUE(got.status.ok()) << got.status.error_message();
  EXPECT_EQ(got.text(), "a€ ");
  EXPECT_EQ(got.last().finished().stop(), "STOP");
  EXPECT_EQ(got.last().finished().usage().completion_tokens(), 9u);
  EXPECT_EQ(coordinator_->Status().migrations(), 2);
}

TEST_F(RecoveryTest, RequestsWaitForTheirJobToBeStartedAgain) {
  Start();
  auto job = Serve("before");
  auto one = Ask();
  const serving::Request begun = Take(*job);
  SendPart(*job, begun, "half ");
  auto two = Ask();
  Take(*job);
  job->Kill(0);
  ASSERT_TRUE(WaitUntilQueued(2));
  EXPECT_FALSE(coordinator_->Status().serving());
  EXPECT_EQ(coordinator_->Ask(PromptRequest("new")).status.error_code(), kUnavailable);

  job = Serve("after");
  serving::Request request = Take(*job);
  EXPECT_EQ(request.id, begun.id);
  EXPECT_THAT(request.answers[0].output, SizeIs(5));
  job->Send(TextOutput(request.id, "done"));
  job->Send(TextOutput(Take(*job).id, "all"));
  EXPECT_EQ(one.get().text(), "half done");
  EXPECT_EQ(two.get().text(), "all");
  EXPECT_EQ(coordinator_->Status().migrations(), 1);
}

TEST_F(RecoveryTest, NobodyWaitsForeverForAReplica) {
  Daemon::Options options = TestOptions();
  options.replica_wait = absl::Milliseconds(100);
  Start(std::move(options));
  const auto job = Serve("only");
  auto answer = Ask();
  SendPart(*job, Take(*job), "half");
  job->Kill(0);
  const Answer got = answer.get();
  EXPECT_EQ(got.status.error_code(), kUnavailable);
  EXPECT_THAT(got.status.error_message(),
              AllOf(HasSubstr("after 0 retries"), HasSubstr("within 100ms (--replica-wait)"),
                    HasSubstr("job only is gone"), HasSubstr("rank 0 on host0")));
  EXPECT_EQ(got.text(), "half");
  EXPECT_TRUE(got.last().has_error());
}

TEST_F(RecoveryTest, RetriesWithoutATokenRunOut) {
  Daemon::Options options = TestOptions();
  options.max_retries = 1;
  Start(std::move(options));
  auto job = Serve("job0");
  auto answer = Ask();
  SendPart(*job, Take(*job), "a");
  for (int i = 1; i <= 3; ++i) {
    job->Kill(0);
    if (i == 3) break;
    ASSERT_TRUE(WaitUntilQueued(1));
    job = Serve(absl::StrCat("job", i));
    EXPECT_THAT(Take(*job).answers[0].output, ElementsAre('a'));
  }
  const Answer got = answer.get();
  EXPECT_EQ(got.status.error_code(), kUnavailable);
  EXPECT_THAT(got.status.error_message(),
              AllOf(HasSubstr("after 2 retries"), HasSubstr("2 replicas gave no token"),
                    HasSubstr("--max-retries=1"), HasSubstr("job job2 is gone")));
}

TEST_F(RecoveryTest, AWaitEndsWithTheDeadlineTheClientOrTheDrain) {
  Start();
  const auto job = Serve("only");
  grpc::ClientContext late_context, gone_context;
  late_context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(2));
  const auto ask = [&](grpc::ClientContext& context) {
    return std::async(std::launch::async,
                      [&] { return coordinator_->Ask(PromptRequest("x"), context); });
  };
  auto late = ask(late_context);
  Take(*job);
  auto gone = ask(gone_context);
  Take(*job);
  auto drained = Ask();
  ASSERT_TRUE(WaitUntilQueued(1));
  job->Kill(0);
  ASSERT_TRUE(WaitUntilQueued(3));
  gone_context.TryCancel();
  EXPECT_EQ(gone.get().status.error_code(), grpc::StatusCode::CANCELLED);
  EXPECT_EQ(late.get().status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  ASSERT_TRUE(WaitUntilQueued(1));
  coordinator_->StartDrain();
  const Answer got = drained.get();
  EXPECT_EQ(got.status.error_code(), kUnavailable);
  EXPECT_THAT(got.status.error_message(),
              AllOf(HasSubstr("shutting down"), HasSubstr("job only is gone")));
  EXPECT_TRUE(coordinator_->WaitUntilDrained());
}

TEST_F(RecoveryTest, OfSeveralAnswersTheStoppedOneIsCancelledAndTheOthersGoOnElsewhere) {
  Daemon::Options options = TestOptions();
  options.model.limits.constraints.max_num_seqs = 4;
  Start(std::move(options));
  const auto first = Serve("first");
  v1::GenerateRequest ask = PromptRequest("abc");
  ask.set_n(3);
  ask.add_stop("STOP");
  auto answer = Ask(ask);
  serving::Request request = Take(*first);
  ASSERT_THAT(request.answers, SizeIs(3));
  const auto send = [&](FakeJob& job, int32_t answer, const std::string& text, Finish finish) {
    serving::AnswerOutput output = TextOutput(request.id, text, finish);
    output.answer = answer;
    job.Send(output);
  };
  send(*first, 1, "b STOP", Finish::kNotFinished);
  EXPECT_TRUE(first->WaitForCancel(serving::CancelledAnswer{request.id, 1}));
  send(*first, 1, "late", Finish::kNotFinished);
  SendPart(*first, request, "a");
  const auto second = Serve("second");
  first->Kill(0);

  request = Take(*second);
  ASSERT_THAT(request.answers, SizeIs(2));
  EXPECT_EQ(request.answers[0].index, 0);
  EXPECT_THAT(request.answers[0].output, ElementsAre('a'));
  EXPECT_EQ(request.answers[1].index, 2);
  EXPECT_THAT(request.answers[1].output, IsEmpty());
  send(*second, 2, "c", Finish::kEos);
  send(*second, 0, "A", Finish::kEos);
  const Answer got = answer.get();
  EXPECT_TRUE(got.status.ok()) << got.status.error_message();
  std::vector<std::string> texts(3);
  int finished = 0;
  for (const v1::GenerateEvent& event : got.events) {
    if (event.has_tokens()) texts[event.tokens().answer()] += event.tokens().text();
    finished += event.has_finished();
  }
  EXPECT_THAT(texts, ElementsAre("aA", "b ", "c"));
  EXPECT_EQ(finished, 3);
}

TEST_F(RecoveryTest, APromptGoesWhereItsBeginningWasComputed) {
  Daemon::Options options = TestOptions();
  options.model.limits.constraints.max_num_seqs = 4;
  Start(std::move(options), MakeFakeModel({}, 1024));
  const auto first = Serve("first");
  const auto second = Serve("second");
  const auto ask = [&](const std::string& prompt) {
    v1::GenerateRequest request = PromptRequest(prompt);
    request.set_max_tokens(5);
    return Ask(request);
  };
  const std::string one(100, 'a'), other(100, 'b');
  auto a = ask(one);
  const serving::Request of_one = Take(*first);
  auto b = ask(other);
  const serving::Request of_other = Take(*second);
  first->Send(TextOutput(of_one.id, "x"));
  second->Send(TextOutput(of_other.id, "x"));
  a.get();
  b.get();
  for (int i = 0; i < 3; ++i) {
    auto answer = ask(other + absl::StrCat(" and ", i));
    second->Send(TextOutput(Take(*second).id, "x"));
    EXPECT_EQ(answer.get().text(), "x");
  }
}

}  // namespace
}  // namespace skein::coordinator
