// Answers that outlive their calls and their coordinator, over gRPC.
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "coordinator/journal/journal.h"
#include "coordinator/rpc/generate_fixture.h"
#include "coordinator/rpc/test_coordinator.h"
#include "gmock/gmock.h"

namespace skein::coordinator {
namespace {

using ::testing::HasSubstr;

constexpr int kUntilCancelled = 1'000'000;

class ResumeTest : public GenerateTest {
 protected:
  void SetUp() override {
    std::filesystem::remove_all(folder_);
    Start();
  }
  void TearDown() override { Stop(); }
  void Start() {
    journal_ = Journal::Open({.folder = folder_}).value();
    Daemon::Options options = TestOptions();
    options.journal = journal_.get();
    coordinator_ = std::make_unique<TestCoordinator>(options);
    job_ = Serve(*coordinator_);
  }
  // As a process that is killed, as far as one can be that runs the test, too.
  void Stop() {
    job_.reset();
    coordinator_.reset();
    journal_.reset();
  }
  void Restart() {
    Stop();
    Start();
  }

  // Calls and reads `events` events, or all.
  Answer Generate(const std::string& prompt, int events) {
    grpc::ClientContext context;
    const auto reader = coordinator_->inference().Generate(&context, PromptRequest(prompt));
    return Read(*reader, context, events);
  }
  Answer Resume(const std::string& id, uint64_t have, int events = kUntilCancelled) {
    grpc::ClientContext context;
    v1::ResumeRequest request;
    request.set_request_id(id);
    request.set_events(have);
    const auto reader = coordinator_->inference().Resume(&context, request);
    return Read(*reader, context, events);
  }
  static Answer Read(grpc::ClientReader<v1::GenerateEvent>& reader, grpc::ClientContext& context,
                     int events) {
    Answer answer;
    v1::GenerateEvent event;
    while (static_cast<int>(answer.events.size()) < events && reader.Read(&event)) {
      answer.events.push_back(event);
    }
    if (static_cast<int>(answer.events.size()) == events) context.TryCancel();
    answer.status = reader.Finish();
    return answer;
  }
  grpc::Status Discard(const std::string& id) {
    grpc::ClientContext context;
    v1::DiscardRequest request;
    request.set_request_id(id);
    v1::DiscardResponse response;
    return coordinator_->inference().Discard(&context, request, &response);
  }
  // Sends what is next of the newest request.
  void Send(const serving::Request& request, const std::string& text,
            serving::Finish finish = serving::Finish::kNotFinished) {
    job_->Send(TextOutput(request.id, text, finish));
  }

  const std::string folder_ = ::testing::TempDir() + "/resume";
  std::unique_ptr<Journal> journal_;
  std::unique_ptr<TestCoordinator> coordinator_;
  std::unique_ptr<FakeJob> job_;
};

TEST_F(ResumeTest, ABrokenCallIsGoneOnWithByAnother) {
  const Answer first = Generate("hi", 1);
  ASSERT_EQ(first.events.size(), 1);
  const v1::Accepted& accepted = first.events[0].accepted();
  EXPECT_EQ(accepted.resume_window_seconds(), 60);
  EXPECT_THAT(accepted.request_id(), ::testing::MatchesRegex("req-[0-9a-f]{24}"));
  const auto request = job_->WaitForRequest();
  Send(*request, "on its way ");
  const Answer second = Resume(accepted.request_id(), 1, 1);
  EXPECT_EQ(second.text(), "on its way ");
  Send(*request, "and all", serving::Finish::kEos);
  const Answer third = Resume(accepted.request_id(), 2);
  EXPECT_TRUE(third.status.ok());
  EXPECT_EQ(third.text(), "and all");
  EXPECT_EQ(third.last().finished().reason(), v1::Finished::REASON_EOS);
  EXPECT_EQ(Resume(accepted.request_id(), 0).text(), "on its way and all");
}

TEST_F(ResumeTest, TheNextCoordinatorGoesOn) {
  const Answer before = Generate("hi", 1);
  const std::string id = before.events[0].accepted().request_id();
  Send(*job_->WaitForRequest(), "one ");
  ASSERT_EQ(Resume(id, 1, 1).text(), "one ");
  Restart();
  const auto request = job_->WaitForRequest();
  ASSERT_TRUE(request.has_value());
  EXPECT_EQ(request->answers[0].output, (std::vector<int32_t>{'o', 'n', 'e', ' '}));
  EXPECT_EQ(request->sampling.seed, before.events[0].accepted().seed());
  Send(*request, "two", serving::Finish::kEos);
  const Answer rest = Resume(id, 2);
  EXPECT_TRUE(rest.status.ok()) << rest.status.error_message();
  EXPECT_EQ(rest.text(), "two");
  EXPECT_EQ(rest.last().finished().usage().completion_tokens(), 8);
  const Answer all = Resume(id, 0);
  EXPECT_EQ(all.text(), "one two");
  EXPECT_EQ(all.events[0].accepted().request_id(), id);
}

TEST_F(ResumeTest, ADrainEndsTheCallAndNotTheAnswer) {
  grpc::ClientContext context;
  const auto reader = coordinator_->inference().Generate(&context, PromptRequest("hi"));
  v1::GenerateEvent event;
  ASSERT_TRUE(reader->Read(&event));
  const std::string id = event.accepted().request_id();
  Send(*job_->WaitForRequest(), "one ");
  ASSERT_TRUE(reader->Read(&event));
  // Its workers end, too: nothing could go on.
  coordinator_->StartDrain();
  job_->Kill(0);
  const Answer rest = TestCoordinator::ReadAll(*reader);
  EXPECT_EQ(rest.events.size(), 0);
  EXPECT_EQ(rest.status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_THAT(rest.status.error_message(), HasSubstr("go on with the next one"));
  Restart();
  Send(*job_->WaitForRequest(), "two", serving::Finish::kEos);
  EXPECT_EQ(Resume(id, 2).text(), "two");
}

TEST_F(ResumeTest, ASecondReaderEndsTheFirstOnesCall) {
  grpc::ClientContext context;
  const auto reader = coordinator_->inference().Generate(&context, PromptRequest("hi"));
  v1::GenerateEvent event;
  ASSERT_TRUE(reader->Read(&event));
  const std::string id = event.accepted().request_id();
  EXPECT_EQ(Resume(id, 0, 1).events.size(), 1);
  EXPECT_EQ(TestCoordinator::ReadAll(*reader).status.error_code(), grpc::StatusCode::ABORTED);
}

TEST_F(ResumeTest, ADiscardedAnswerEndsWithItsReader) {
  grpc::ClientContext context;
  const auto reader = coordinator_->inference().Generate(&context, PromptRequest("hi"));
  v1::GenerateEvent event;
  ASSERT_TRUE(reader->Read(&event));
  const std::string id = event.accepted().request_id();
  const auto request = job_->WaitForRequest();
  EXPECT_TRUE(Discard(id).ok());
  EXPECT_TRUE(job_->WaitForCancel(request->id));
  EXPECT_EQ(TestCoordinator::ReadAll(*reader).status.error_code(), grpc::StatusCode::CANCELLED);
  EXPECT_EQ(Resume(id, 1).status.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(Discard(id).error_code(), grpc::StatusCode::NOT_FOUND);
}

TEST_F(ResumeTest, WhatIsNotThereIsRefused) {
  const Answer unknown = Resume("req-1", 0);
  EXPECT_EQ(unknown.status.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_THAT(unknown.status.error_message(), HasSubstr("'req-1'"));
  const std::string id = Generate("hi", 1).events[0].accepted().request_id();
  EXPECT_EQ(Resume(id, 7).status.error_code(), grpc::StatusCode::OUT_OF_RANGE);
  TestCoordinator other;
  const auto job = Serve(other, "all");
  const Answer answer = other.Ask(PromptRequest("hi"));
  EXPECT_EQ(answer.events[0].accepted().resume_window_seconds(), 0);
  grpc::ClientContext context;
  v1::ResumeRequest request;
  const auto none = TestCoordinator::ReadAll(*other.inference().Resume(&context, request));
  EXPECT_EQ(none.status.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_THAT(none.status.error_message(), HasSubstr("--journal"));
}

}  // namespace
}  // namespace skein::coordinator
