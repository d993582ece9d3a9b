// Tests many requests over one call, against ranks that answer by a script.
#include <grpcpp/generic/generic_stub.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <limits>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/mutex.h"
#include "coordinator/rpc/test_coordinator.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace skein::coordinator {
namespace {

using ::testing::HasSubstr;
using ::testing::Le;
using ::testing::Lt;
using ::testing::SizeIs;

using serving::Finish;
using serving::RequestId;

// Gives up calls that wait for too long: fails the test by the name of what did not come, and ends
// the call, so that the wait returns.
class Watchdog {
 public:
  explicit Watchdog(grpc::ClientContext* context)
      : context_(context), thread_([this] { Watch(); }) {}
  ~Watchdog() {
    {
      MutexLock lock(&mutex_);
      over_ = true;
      changed_.NotifyAll();
    }
    thread_.join();
  }

  // Returns what `wait`, which blocks, returns. Any thread may call.
  template <typename Body>
  auto Watched(const char* what, const Body& wait) {
    std::list<Wait>::iterator self;
    {
      MutexLock lock(&mutex_);
      self = waits_.insert(waits_.end(), {what, std::chrono::steady_clock::now() + kPatience});
      if (self == waits_.begin()) changed_.NotifyAll();
    }
    auto result = wait();
    MutexLock lock(&mutex_);
    waits_.erase(self);
    return result;
  }

 private:
  static constexpr std::chrono::seconds kPatience{30};

  struct Wait {
    const char* what;
    std::chrono::steady_clock::time_point deadline;
  };

  void Watch() {
    MutexLock lock(&mutex_);
    while (!over_) {
      if (waits_.empty()) {
        changed_.Wait(&mutex_);
        continue;
      }
      const auto deadline = waits_.front().deadline;  // the oldest one's
      if (std::chrono::steady_clock::now() < deadline) {
        changed_.WaitUntil(&mutex_, deadline);
        continue;
      }
      ADD_FAILURE() << waits_.front().what << " did not come within " << kPatience.count() << " s";
      context_->TryCancel();
      return;
    }
  }

  grpc::ClientContext* const context_;
  Mutex mutex_;
  CondVar changed_;
  std::list<Wait> waits_ ABSL_GUARDED_BY(mutex_);
  bool over_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

// A call with what has been read of it.
class Call {
 public:
  explicit Call(TestCoordinator& coordinator, std::chrono::milliseconds deadline = {}) {
    if (deadline.count() > 0) context_.set_deadline(std::chrono::system_clock::now() + deadline);
    stream_ = coordinator.inference().GenerateMany(&context_);
  }
  static std::unique_ptr<Call> WithSmallWindow(TestCoordinator& coordinator) {
    std::unique_ptr<Call> call(new Call);
    call->stub_ = coordinator.StubWithSmallWindow();
    call->stream_ = call->stub_->GenerateMany(&call->context_);
    return call;
  }

  bool Generate(uint64_t number, const v1::GenerateRequest& request,
                std::optional<double> timeout_s = {}) {
    v1::GenerateManyRequest message;
    message.set_request(number);
    *message.mutable_generate() = request;
    if (timeout_s.has_value()) message.set_timeout_seconds(*timeout_s);
    return Write(message);
  }
  bool Cancel(uint64_t number) {
    v1::GenerateManyRequest message;
    message.set_request(number);
    message.mutable_cancel();
    return Write(message);
  }
  bool Write(const v1::GenerateManyRequest& message) {
    return watchdog_.Watched("room for a request", [&] { return stream_->Write(message); });
  }
  void HalfClose() {
    watchdog_.Watched("room for the end of requests", [&] { return stream_->WritesDone(); });
  }
  void Break() { context_.TryCancel(); }

  // Reads the next message; false at the end.
  bool Read() {
    if (!watchdog_.Watched("a message", [&] { return stream_->Read(&message_); })) return false;
    for (const v1::RequestEvent& event : message_.events()) {
      events_[event.request()].push_back(event.event());
    }
    return true;
  }
  // Reads until the request has so many events.
  bool ReadUntil(uint64_t number, size_t events) {
    while (events_[number].size() < events) {
      if (!Read()) return false;
    }
    return true;
  }
  // Reads all the rest.
  grpc::Status Finish() {
    while (Read()) {
    }
    return watchdog_.Watched("the call's status", [&] { return stream_->Finish(); });
  }

  const v1::GenerateManyResponse& message() const { return message_; }
  const std::vector<v1::GenerateEvent>& events(uint64_t number) { return events_[number]; }
  std::string text(uint64_t number) {
    std::string text;
    for (const v1::GenerateEvent& event : events_[number]) text += event.tokens().text();
    return text;
  }
  size_t requests() const { return events_.size(); }

 private:
  Call() = default;

  std::unique_ptr<v1::Inference::Stub> stub_;  // its own, if it has one
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::GenerateManyRequest, v1::GenerateManyResponse>>
      stream_;
  v1::GenerateManyResponse message_;
  std::map<uint64_t, std::vector<v1::GenerateEvent>> events_;
  Watchdog watchdog_{&context_};
};

class GenerateManyTest : public ::testing::Test {
 protected:
  static Daemon::Options Options() {
    Daemon::Options options = TestOptions();
    options.model.limits.constraints.max_num_seqs = 8;
    return options;
  }

  // Begins a request and waits until the replica has it; returns the coordinator's id of it.
  RequestId Begin(Call& call, uint64_t number, std::optional<double> timeout_s = {}) {
    EXPECT_TRUE(call.Generate(number, PromptRequest("x"), timeout_s));
    const auto received = job_.WaitForRequest();
    EXPECT_TRUE(received.has_value());
    return received.has_value() ? received->id : RequestId();
  }

  void ExpectNoneRuns() {
    EXPECT_TRUE(
        TestCoordinator::WaitFor([&] { return coordinator_.Status().running_requests() == 0; }));
  }

  void SetUp() override { ASSERT_TRUE(coordinator_.WaitUntilServing()); }

  TestCoordinator coordinator_{Options()};
  FakeJob job_{{.coordinator = coordinator_.address()}};
};

void ExpectError(const v1::GenerateEvent& event, grpc::StatusCode code, const std::string& says) {
  EXPECT_EQ(event.error().code(), code) << event.DebugString();
  EXPECT_THAT(event.error().message(), HasSubstr(says));
}

TEST_F(GenerateManyTest, EachRequestHasTheEventsThatGenerateGives) {
  Call call(coordinator_);
  const RequestId seven = Begin(call, 7);
  const RequestId zero = Begin(call, 0);
  job_.Send(TextOutput(zero, "zero"));
  job_.Send(TextOutput(seven, "sev", Finish::kNotFinished));
  job_.Send(TextOutput(seven, "en"));
  call.HalfClose();
  const grpc::Status status = call.Finish();
  EXPECT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(call.requests(), 2u);
  for (const auto& [number, text] : {std::pair(7, "seven"), std::pair(0, "zero")}) {
    SCOPED_TRACE(number);
    EXPECT_EQ(call.text(number), text);
    EXPECT_THAT(call.events(number).front().accepted().request_id(), HasSubstr("req-"));
    EXPECT_EQ(call.events(number).back().finished().reason(), v1::Finished::REASON_EOS);
  }
}

TEST_F(GenerateManyTest, WhatAStepGivesToAllComesTogether) {
  constexpr int kSteps = 25;
  Call call(coordinator_);
  std::vector<RequestId> ids;
  for (const uint64_t number : {1, 2, 3, 4}) {
    ids.push_back(Begin(call, number));
    ASSERT_TRUE(call.ReadUntil(number, 1));
  }
  int messages = 0;
  for (int i = 1; i <= kSteps; ++i) {
    std::vector<serving::AnswerOutput> step;
    for (const RequestId id : ids) {
      step.push_back(TextOutput(id, "x", i < kSteps ? Finish::kNotFinished : Finish::kEos));
    }
    job_.SendOutputs(step);
    for (const uint64_t number : {1, 2, 3, 4}) {
      while (call.text(number).size() < static_cast<size_t>(i)) {
        ASSERT_TRUE(call.Read());
        ++messages;
      }
    }
  }
  // A write that ends in the middle of a step may take its beginning along: a rare second message.
  EXPECT_THAT(messages, Lt(kSteps + kSteps / 2));
  call.HalfClose();
  EXPECT_TRUE(call.Finish().ok());
}

TEST_F(GenerateManyTest, ARefusedRequestLeavesTheOthersAlone) {
  Call call(coordinator_);
  const RequestId good = Begin(call, 1);
  call.Generate(2, PromptRequest(""));
  call.Generate(3, PromptRequest("x"), 0);
  call.Generate(4, PromptRequest("x"), std::numeric_limits<double>::quiet_NaN());
  for (const uint64_t number : {2, 3, 4}) {
    ASSERT_TRUE(call.ReadUntil(number, 1));
    ExpectError(call.events(number)[0], grpc::StatusCode::INVALID_ARGUMENT,
                number == 2 ? "prompt: empty" : "timeout_seconds: ");
  }
  job_.Send(TextOutput(good, "good"));
  call.Generate(2, PromptRequest(std::string(32, 'x')));  // the number is free again
  call.HalfClose();
  EXPECT_TRUE(call.Finish().ok());
  EXPECT_EQ(call.text(1), "good");
  EXPECT_THAT(call.events(2), SizeIs(2));
}

TEST_F(GenerateManyTest, OneIsCancelledAndTheOthersGoOn) {
  Call call(coordinator_);
  const RequestId first = Begin(call, 1);
  const RequestId second = Begin(call, 2);
  call.Cancel(77);  // never was
  call.Cancel(1);
  EXPECT_TRUE(job_.WaitForCancel(first));
  ASSERT_TRUE(call.ReadUntil(1, 2));
  ExpectError(call.events(1)[1], grpc::StatusCode::CANCELLED, "the client cancelled");
  call.Cancel(1);  // has ended
  job_.Send(TextOutput(second, "on"));
  call.HalfClose();
  EXPECT_TRUE(call.Finish().ok());
  EXPECT_EQ(call.text(2), "on");
  EXPECT_THAT(call.events(1), SizeIs(2));
}

TEST_F(GenerateManyTest, ARequestMayHaveATimeoutOfItsOwn) {
  Call call(coordinator_);
  const RequestId late = Begin(call, 1, 0.5);
  const RequestId other = Begin(call, 2, 1e300);
  EXPECT_TRUE(job_.WaitForCancel(late));
  ASSERT_TRUE(call.ReadUntil(1, 2));
  ExpectError(call.events(1)[1], grpc::StatusCode::DEADLINE_EXCEEDED, "the deadline passed");
  job_.Send(TextOutput(other, "on"));
  call.HalfClose();
  EXPECT_TRUE(call.Finish().ok());
  EXPECT_EQ(call.text(2), "on");
}

TEST_F(GenerateManyTest, MisuseEndsTheCallAndSaysWhy) {
  for (const bool twice : {true, false}) {
    Call call(coordinator_);
    const RequestId running = Begin(call, 3);
    if (twice) {
      call.Generate(3, PromptRequest("y"));
    } else {
      v1::GenerateManyRequest empty;
      empty.set_request(4);
      call.Write(empty);
    }
    const grpc::Status status = call.Finish();
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
    EXPECT_EQ(status.error_message(), twice ? "request 3: the one of this number has not ended yet"
                                            : "request 4: neither generate nor cancel");
    EXPECT_TRUE(job_.WaitForCancel(running));
    ExpectNoneRuns();
  }
}

TEST_F(GenerateManyTest, ACallThatBreaksOrIsLateCancelsAllItsRequests) {
  for (const bool late : {true, false}) {
    Call call(coordinator_, std::chrono::milliseconds(late ? 2000 : 0));
    const RequestId first = Begin(call, 1);
    const RequestId second = Begin(call, 2);
    if (!late) call.Break();
    EXPECT_EQ(call.Finish().error_code(),
              late ? grpc::StatusCode::DEADLINE_EXCEEDED : grpc::StatusCode::CANCELLED);
    EXPECT_TRUE(job_.WaitForCancel(first));
    EXPECT_TRUE(job_.WaitForCancel(second));
    ExpectNoneRuns();
  }
}

TEST_F(GenerateManyTest, WithoutWorkersRequestsEndButTheCallGoesOn) {
  job_.Kill(0);
  ASSERT_TRUE(coordinator_.WaitUntilServing(false));
  Call call(coordinator_);
  call.Generate(1, PromptRequest("x"));
  ASSERT_TRUE(call.ReadUntil(1, 1));
  ExpectError(call.events(1)[0], grpc::StatusCode::UNAVAILABLE, "no replica serves");
  FakeJob job({.coordinator = coordinator_.address(), .job_id = "another"});
  ASSERT_TRUE(coordinator_.WaitUntilServing());
  call.Generate(1, PromptRequest("x"));
  const auto received = job.WaitForRequest();
  ASSERT_TRUE(received.has_value());
  job.Send(TextOutput(received->id, "yes"));
  call.HalfClose();
  EXPECT_TRUE(call.Finish().ok());
  EXPECT_EQ(call.text(1), "yes");
}

// Two answers of 4 MiB stay unread: a message stays below what gRPC's clients take, and a short
// answer need not wait for the ends of long ones.
TEST(GenerateManyFlowTest, WhatPilesUpIsSentInTurnAndInPieces) {
  constexpr int kTokens = 4096;
  const std::string word(1024, 'w');
  Daemon::Options options = TestOptions();
  options.model.limits.constraints.max_num_seqs = 8;
  TestCoordinator coordinator(std::move(options), MakeFakeModel({word}, kTokens + 8));
  FakeJob job({.coordinator = coordinator.address()});
  ASSERT_TRUE(coordinator.WaitUntilServing());
  const auto call = Call::WithSmallWindow(coordinator);
  std::vector<RequestId> ids;
  for (const uint64_t number : {1, 2, 3}) {
    v1::GenerateRequest request = PromptRequest("x");
    request.set_max_tokens(kTokens);
    call->Generate(number, request);
    const auto received = job.WaitForRequest();
    ASSERT_TRUE(received.has_value());
    ids.push_back(received->id);
  }
  for (int i = 0; i < kTokens; ++i) {
    const Finish finish = i + 1 == kTokens ? Finish::kMaxTokens : Finish::kNotFinished;
    std::vector<serving::AnswerOutput> step;
    for (const RequestId id : {ids[0], ids[1]}) {
      step.push_back(
          {.request_id = id, .tokens = {{.id = FakeTokenizer::kFirstWord}}, .finish = finish});
    }
    job.SendOutputs(step);
  }
  job.Send(TextOutput(ids[2], "short"));
  EXPECT_TRUE(
      TestCoordinator::WaitFor([&] { return coordinator.Status().running_requests() == 0; }));
  size_t before_short = 0;
  while (call->text(3) != "short") {
    before_short = call->text(1).size() + call->text(2).size();
    ASSERT_TRUE(call->Read());
    // A message takes events until it has 1 MiB; the last one may be half a MiB of text and its
    // tokens.
    EXPECT_THAT(call->message().ByteSizeLong(), Le(size_t{2} << 20));
  }
  EXPECT_THAT(before_short, Lt(kTokens * word.size()));  // half of the two
  call->HalfClose();
  EXPECT_TRUE(call->Finish().ok());
  for (const uint64_t number : {1, 2}) {
    EXPECT_EQ(call->text(number).size(), kTokens * word.size());
    EXPECT_TRUE(call->events(number).back().has_finished());
  }
}

// Refusals pile up, too: from some number on the coordinator reads no more requests.
TEST(GenerateManyFlowTest, AClientThatDoesNotReadIsNotReadEither) {
  constexpr uint64_t kMany = 60'000;
  constexpr uint64_t kMost = 16'384;  // in hand
  TestCoordinator coordinator;
  const auto call = Call::WithSmallWindow(coordinator);
  // Each has 1 KiB and is refused: flow control lets some more through unread.
  const v1::GenerateRequest request = PromptRequest(std::string(1024, 'x'));
  std::atomic<uint64_t> written = 0;
  std::thread writer([&] {
    for (uint64_t number = 0; number < kMany && call->Generate(number, request); ++number) {
      ++written;
    }
    call->HalfClose();
  });
  EXPECT_TRUE(TestCoordinator::WaitFor([&] { return written >= kMost; }));
  uint64_t before = 0;
  do {
    before = written;
    absl::SleepFor(absl::Milliseconds(500));
  } while (written != before);
  EXPECT_THAT(written, Lt(kMany));
  const grpc::Status status = call->Finish();
  writer.join();
  EXPECT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(call->requests(), kMany);
  for (uint64_t number = 0; number < kMany; ++number) {
    ASSERT_THAT(call->events(number), SizeIs(1)) << number;
  }
}

// This ends all like misuse, not like the end of what the client has to say.
TEST_F(GenerateManyTest, AMessageThatCannotBeReadEndsTheCall) {
  grpc::GenericStub stub(coordinator_.channel());
  grpc::CompletionQueue queue;
  void* tag = nullptr;
  bool ok = false;
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
  const auto call = stub.PrepareCall(&context, "/skein.v1.Inference/GenerateMany", &queue);
  call->StartCall(nullptr);
  ASSERT_TRUE(queue.Next(&tag, &ok) && ok);
  const grpc::Slice slice("\x12\xFF");  // a length without its bytes
  call->Write(grpc::ByteBuffer(&slice, 1), nullptr);
  ASSERT_TRUE(queue.Next(&tag, &ok) && ok);
  grpc::Status status;
  call->Finish(&status, nullptr);
  ASSERT_TRUE(queue.Next(&tag, &ok) && ok);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << status.error_message();
  EXPECT_EQ(status.error_message(), "a message is no GenerateManyRequest");
}

}  // namespace
}  // namespace skein::coordinator
