// Tests a rank's tie to coordinators that are played.
#include "worker/rpc/attachment.h"

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/log/captured_log.h"
#include "base/mutex.h"
#include "base/test_util.h"
#include "base/tls/certificate_for_tests.h"
#include "base/tls/job_key.h"
#include "base/tls/mutual_tls.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "parallel/plan/plan.h"
#include "proto/cluster.grpc.pb.h"
#include "proto/convert/plan.h"
#include "proto/credentials/credentials.h"

namespace skein::worker {
namespace {

namespace pb = ::skein::cluster::v1;

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

pb::Welcome DefaultWelcome() {
  pb::Welcome welcome;
  welcome.set_version("0.8");
  welcome.mutable_protocols()->set_min(1);
  welcome.mutable_protocols()->set_max(1);
  welcome.set_protocol(1);
  welcome.set_nonce(std::string(32, 'n'));
  return welcome;
}

// Plays coordinators of one rank, one after the other, on one port.
class FakeCoordinators final : public pb::Cluster::Service {
 public:
  using Rpc = grpc::ServerReaderWriter<pb::CoordinatorMessage, pb::WorkerMessage>;

  explicit FakeCoordinators(const std::optional<MutualTls>& tls = std::nullopt) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", ServerCredentialsOf(tls), &port_);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
  }
  ~FakeCoordinators() override { server_->Shutdown(std::chrono::system_clock::now()); }

  std::string address() const { return absl::StrCat("127.0.0.1:", port_); }

  pb::Welcome welcome = DefaultWelcome();

  // Waits until the nth one has heard the rank's heart; the rank's next words are for that one.
  bool AwaitHeartbeatOf(int nth) {
    return Await([&] { return coordinator_ == nth && heard_; });
  }
  // Waits until the present one was sent a step.
  bool AwaitStep() {
    return Await([&] { return !steps_.empty(); });
  }
  // Returns the ids of the requests that the present one was sent answers to.
  std::vector<uint64_t> steps() {
    MutexLock lock(&mutex_);
    return steps_;
  }
  // Waits until the rank says that it has taken up so many messages with requests.
  bool AwaitTaken(uint64_t count) {
    return Await([&] { return taken_ == count; });
  }
  void Ask(uint64_t request_id) {
    pb::CoordinatorMessage message;
    pb::Request& request = *message.mutable_updates()->add_requests();
    request.set_request_id(request_id);
    request.add_prompt(1);
    MutexLock lock(&mutex_);
    rpc_->Write(message);
  }
  // Waits until the present one was told that the rank is ready.
  bool AwaitReady() {
    return Await([&] { return ready_; });
  }
  // Waits until the present one has heard why the rank ends.
  bool AwaitFailure() {
    return Await([&] { return failed_; });
  }
  // Waits until the rank has said that it says no more.
  bool AwaitHalfClose() {
    return Await([&] { return half_closed_; });
  }
  void ForgetHeartbeats() {
    MutexLock lock(&mutex_);
    heard_ = false;
  }
  bool attached() {
    MutexLock lock(&mutex_);
    return rpc_ != nullptr;
  }
  void SendShutdown() {
    pb::CoordinatorMessage message;
    message.mutable_shutdown()->set_exit_code(1);
    MutexLock lock(&mutex_);
    rpc_->Write(message);
  }
  void SendPlan(const plan::Plan& plan) {
    pb::CoordinatorMessage message;
    *message.mutable_plan() = convert::ToProto(plan);
    MutexLock lock(&mutex_);
    rpc_->Write(message);
  }
  void BreakConnection() {
    MutexLock lock(&mutex_);
    context_->TryCancel();
  }

  grpc::Status Attach(grpc::ServerContext* context, Rpc* rpc) override {
    pb::WorkerMessage message;
    if (!rpc->Read(&message) || !message.has_hello()) return grpc::Status::CANCELLED;
    const pb::Hello hello = message.hello();
    pb::CoordinatorMessage answer;
    *answer.mutable_welcome() = welcome;
    rpc->Write(answer);
    if (!rpc->Read(&message)) return grpc::Status::CANCELLED;
    if (!IsProof(message.proof().signature(), hello.job_key(),
                 {.nonce = welcome.nonce(),
                  .job_id = hello.job_id(),
                  .rank = hello.rank(),
                  .job_size = hello.job_size()})) {
      return {grpc::StatusCode::UNAUTHENTICATED, "no proof"};
    }
    {
      MutexLock lock(&mutex_);
      ++coordinator_;
      context_ = context;
      rpc_ = rpc;
      heard_ = false;
      ready_ = false;
      steps_.clear();
    }
    while (rpc->Read(&message)) {
      MutexLock lock(&mutex_);
      if (message.has_heartbeat()) {
        heard_ = true;
        taken_ = message.heartbeat().messages_taken();
      }
      if (message.has_ready()) ready_ = true;
      if (message.has_failure()) failed_ = true;
      for (const pb::AnswerOutput& answer : message.step().answers()) {
        steps_.push_back(answer.request_id());
      }
    }
    // Whoever uses the context holds the mutex.
    MutexLock lock(&mutex_);
    half_closed_ = !context->IsCancelled();
    if (context_ == context) {
      context_ = nullptr;
      rpc_ = nullptr;
    }
    return grpc::Status::OK;
  }

 private:
  template <typename Predicate>
  bool Await(const Predicate& predicate) {
    const absl::Time until = absl::Now() + absl::Seconds(20);
    while (absl::Now() < until) {
      {
        MutexLock lock(&mutex_);
        if (predicate()) return true;
      }
      absl::SleepFor(absl::Milliseconds(2));
    }
    return false;
  }

  Mutex mutex_;
  int coordinator_ ABSL_GUARDED_BY(mutex_) = 0;
  grpc::ServerContext* context_ ABSL_GUARDED_BY(mutex_) = nullptr;
  Rpc* rpc_ ABSL_GUARDED_BY(mutex_) = nullptr;
  bool heard_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<uint64_t> taken_ ABSL_GUARDED_BY(mutex_);
  bool ready_ ABSL_GUARDED_BY(mutex_) = false;
  bool failed_ ABSL_GUARDED_BY(mutex_) = false;
  bool half_closed_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<uint64_t> steps_ ABSL_GUARDED_BY(mutex_);
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

StepReport AnswerTo(uint64_t id, uint64_t epoch) {
  StepReport report;
  report.epoch = epoch;
  report.answers.push_back({.request_id = serving::RequestId(id), .tokens = {{.id = 3}}});
  return report;
}

Inbox::Contents TakeSoon(Inbox& inbox) {
  return inbox.Take(std::chrono::steady_clock::now() + std::chrono::seconds(20));
}

// What the log says of a rank that waits for a coordinator.
std::string WordsOfOneThatWaits(const AttachmentOptions& options) {
  const CapturedLog log;
  Inbox inbox;
  std::promise<std::string> end;
  {
    const Attachment attachment(options, &inbox, [&](const absl::Status& why, int) {
      end.set_value(std::string(why.message()));
    });
    EXPECT_THAT(end.get_future().get(), HasSubstr("--orphan-timeout"));
  }
  return log.text();
}

TEST(AttachmentTest, SpeaksTlsWhereItIsToldAndSaysWhatIsWrongElse) {
  const TestCertificate ca("ca", {});
  const TestCertificate own("own", {.issuer = &ca});
  SKEIN_ASSERT_OK_AND_ASSIGN(const MutualTls tls, LoadMutualTls(own.TrustingOnly(ca), absl::Now()));
  FakeCoordinators coordinators(tls);
  AttachmentOptions options = {.coordinator = coordinators.address(),
                               .tls = tls,
                               .job = {.id = "job", .secret = "a secret of the job"},
                               .heartbeat_interval = absl::Milliseconds(10)};
  {
    Inbox inbox;
    const Attachment attachment(options, &inbox, [](const absl::Status&, int) {});
    EXPECT_TRUE(coordinators.AwaitHeartbeatOf(1));
  }
  options.orphan_timeout = absl::Milliseconds(1500);
  options.tls = std::nullopt;
  EXPECT_THAT(WordsOfOneThatWaits(options),
              HasSubstr("; the coordinator may want TLS: --tls-cert FILE"));
  const TestCertificate other_ca("other-ca", {});
  const TestCertificate stranger("stranger", {.issuer = &other_ca});
  SKEIN_ASSERT_OK_AND_ASSIGN(options.tls, LoadMutualTls(stranger.TrustingOnly(ca), absl::Now()));
  EXPECT_THAT(WordsOfOneThatWaits(options), HasSubstr("may not trust --tls-cert"));
  EXPECT_FALSE(coordinators.attached());
  options.coordinator = "127.0.0.1:1";
  EXPECT_THAT(WordsOfOneThatWaits(options), HasSubstr("127.0.0.1:1 (no connection); start one"));
}

TEST(AttachmentTest, AnAnswerToAnOldCoordinatorNeverReachesANewOne) {
  FakeCoordinators coordinators;
  Inbox inbox;
  Attachment attachment({.coordinator = coordinators.address(),
                         .job = {.id = "job", .secret = "a secret of the job"},
                         .heartbeat_interval = absl::Milliseconds(10)},
                        &inbox, [](const absl::Status&, int) {});
  ASSERT_TRUE(coordinators.AwaitHeartbeatOf(1));
  coordinators.Ask(7);
  const Inbox::Contents before = TakeSoon(inbox);
  ASSERT_THAT(before.requests, SizeIs(1));
  coordinators.BreakConnection();
  ASSERT_TRUE(coordinators.AwaitHeartbeatOf(2));

  // The engine was busy with the answer for all this time, and has not looked into its inbox.
  attachment.SendStep(AnswerTo(7, before.epoch));
  coordinators.Ask(8);
  Inbox::Contents after = TakeSoon(inbox);
  EXPECT_TRUE(after.cancel_all);
  if (after.requests.empty()) after = TakeSoon(inbox);
  ASSERT_THAT(after.requests, SizeIs(1));
  attachment.SendStep(AnswerTo(8, after.epoch));
  ASSERT_TRUE(coordinators.AwaitStep());
  EXPECT_THAT(coordinators.steps(), ElementsAre(8));
}

// A leader that waits for busy followers takes nothing up, and is not stuck.
TEST(AttachmentTest, WhatCameCountsAsTakenWhileTheLeaderWaitsForOthers) {
  FakeCoordinators coordinators;
  Inbox inbox;
  ThreadBeats beats;
  ThreadBeats::Beat* const scheduler = beats.Add("scheduler");
  Attachment attachment({.coordinator = coordinators.address(),
                         .job = {.id = "job", .secret = "a secret of the job"},
                         .beats = &beats,
                         .heartbeat_interval = absl::Milliseconds(10)},
                        &inbox, [](const absl::Status&, int) {});
  ASSERT_TRUE(coordinators.AwaitTaken(0));
  {
    const ThreadBeats::Excuse waits_for_followers(scheduler);
    coordinators.Ask(7);
    EXPECT_TRUE(coordinators.AwaitTaken(1));
  }
  EXPECT_TRUE(coordinators.AwaitTaken(0));
  EXPECT_THAT(TakeSoon(inbox).requests, SizeIs(1));
  EXPECT_TRUE(coordinators.AwaitTaken(1));
}

const topology::Device kDevice{.name = "a CPU"};

AttachmentOptions OptionsOfOneRank(const FakeCoordinators& coordinators) {
  return {.coordinator = coordinators.address(),
          .job = {.id = "job", .secret = "a secret of the job"},
          .device = kDevice,
          .heartbeat_interval = absl::Milliseconds(10)};
}

plan::Plan PlanOfOneRank() {
  return {.job_id = "job",
          .model_path = "models/bard",
          .ranks = {{.layers = {0, 8}, .weight_bytes = 1, .kv_bytes = 1, .device = kDevice}},
          .max_num_seqs = 4,
          .max_micro_batch_rows = 16,
          .max_num_batched_tokens = 16,
          .page_size = 16,
          .pages = 64,
          .context_length = 128};
}

// Records how a rank ended, once.
class End {
 public:
  Attachment::EndCallback callback() {
    return [this](const absl::Status& why, int code) {
      MutexLock lock(&mutex_);
      why_ = why;
      code_ = code;
      told_.NotifyAll();
    };
  }
  // Returns the reason, or OK when the rank has not ended within `patience`.
  absl::Status Await(std::chrono::milliseconds patience) {
    MutexLock lock(&mutex_);
    const auto deadline = std::chrono::steady_clock::now() + patience;
    while (why_.ok() && told_.WaitUntil(&mutex_, deadline)) {
    }
    return why_;
  }
  int code() {
    MutexLock lock(&mutex_);
    return code_;
  }

 private:
  Mutex mutex_;
  CondVar told_;
  absl::Status why_ ABSL_GUARDED_BY(mutex_);
  int code_ ABSL_GUARDED_BY(mutex_) = -1;
};

// The launcher ends the other ranks with the process of one that failed. The coordinator, which
// then hears that they are gone, has to lose the job before that.
TEST(AttachmentTest, ARankThatFailsStaysUntilTheCoordinatorHasLostItsJob) {
  for (const bool shutdown : {false, true}) {
    SCOPED_TRACE(shutdown);
    FakeCoordinators coordinators;
    Inbox inbox;
    AttachmentOptions options = OptionsOfOneRank(coordinators);
    options.verdict_time = absl::Minutes(2);
    Attachment attachment(options, &inbox, [](const absl::Status&, int) {});
    ASSERT_TRUE(coordinators.AwaitHeartbeatOf(1));
    std::atomic<bool> over = false;
    std::thread failing([&] {
      attachment.SendFailure(absl::InternalError("its GPU has failed"));
      over = true;
    });
    EXPECT_TRUE(coordinators.AwaitFailure());
    coordinators.ForgetHeartbeats();
    absl::SleepFor(absl::Milliseconds(300));
    EXPECT_FALSE(over);
    EXPECT_TRUE(coordinators.attached());
    EXPECT_TRUE(coordinators.AwaitHeartbeatOf(1));  // it lives
    const absl::Time verdict = absl::Now();
    if (shutdown) {  // another rank was blamed meanwhile
      coordinators.SendShutdown();
      EXPECT_TRUE(coordinators.AwaitHalfClose());
    } else {
      coordinators.BreakConnection();
    }
    failing.join();
    EXPECT_LT(absl::Now() - verdict, absl::Minutes(1));
  }
}

// The plan comes at the first attach, and at a later one.
TEST(AttachmentTest, APlanForAnotherDeviceIsRefused) {
  plan::Plan other = PlanOfOneRank();
  other.ranks[0].device.name = "an accelerator";
  for (const bool later : {false, true}) {
    SCOPED_TRACE(later);
    FakeCoordinators coordinators;
    Inbox inbox;
    End end;
    Attachment attachment(OptionsOfOneRank(coordinators), &inbox, end.callback());
    ASSERT_TRUE(coordinators.AwaitHeartbeatOf(1));
    if (later) {
      coordinators.SendPlan(PlanOfOneRank());
      SKEIN_ASSERT_OK(attachment.WaitForPlan());
      coordinators.BreakConnection();
      ASSERT_TRUE(coordinators.AwaitHeartbeatOf(2));
    }
    coordinators.SendPlan(other);
    EXPECT_THAT(
        end.Await(std::chrono::seconds(20)),
        StatusIs(absl::StatusCode::kFailedPrecondition,
                 HasSubstr("another device ('an accelerator') than this rank has ('a CPU')")));
  }
}

// The second coordinator plans as the first one did, though it expects something else of it, and
// hears again that the shard is loaded; the third one gives the job another part of the model, or
// fewer pages.
TEST(AttachmentTest, ANewCoordinatorMayOnlyRepeatThePlanThatIsLoaded) {
  plan::Plan layers = PlanOfOneRank();
  layers.ranks[0].layers = {0, 4};
  plan::Plan pages = PlanOfOneRank();
  pages.pages = 63;
  for (const plan::Plan& other : {layers, pages}) {
    FakeCoordinators coordinators;
    Inbox inbox;
    End end;
    Attachment attachment(OptionsOfOneRank(coordinators), &inbox, end.callback());
    ASSERT_TRUE(coordinators.AwaitHeartbeatOf(1));
    coordinators.SendPlan(PlanOfOneRank());
    SKEIN_ASSERT_OK_AND_ASSIGN(const plan::Plan taken, attachment.WaitForPlan());
    EXPECT_EQ(taken, PlanOfOneRank());
    attachment.SendReady({});
    ASSERT_TRUE(coordinators.AwaitReady());
    coordinators.BreakConnection();

    ASSERT_TRUE(coordinators.AwaitHeartbeatOf(2));
    plan::Plan same = PlanOfOneRank();
    same.prediction.output_tokens_per_s += 1;
    same.reasons.emplace_back("Ranked by tokens a second.");
    coordinators.SendPlan(same);
    ASSERT_TRUE(coordinators.AwaitReady());
    EXPECT_THAT(end.Await({}), IsOk());
    coordinators.BreakConnection();

    ASSERT_TRUE(coordinators.AwaitHeartbeatOf(3));
    coordinators.SendPlan(other);
    EXPECT_THAT(end.Await(std::chrono::seconds(20)),
                StatusIs(absl::StatusCode::kFailedPrecondition,
                         HasSubstr("a new coordinator made another plan for this job")));
    EXPECT_EQ(end.code(), 1);
  }
}

// ---- Versions ----

TEST(AttachmentTest, SpeaksTheHighestProtocolThatBothDo) {
  FakeCoordinators coordinators;
  coordinators.welcome.mutable_protocols()->set_max(7);
  coordinators.welcome.set_protocol(3);
  Inbox inbox;
  AttachmentOptions options = OptionsOfOneRank(coordinators);
  options.protocols = {1, 3};
  const Attachment attachment(options, &inbox, [](const absl::Status&, int) {});
  EXPECT_TRUE(coordinators.AwaitHeartbeatOf(1));
}

// By this side, too, should the other have let it in.
TEST(AttachmentTest, RefusesACoordinatorThatItDoesNotUnderstandByName) {
  FakeCoordinators coordinators;
  AttachmentOptions options = OptionsOfOneRank(coordinators);
  const auto why = [&] {
    Inbox inbox;
    End end;
    const Attachment attachment(options, &inbox, end.callback());
    const absl::Status status = end.Await(std::chrono::seconds(20));
    EXPECT_EQ(end.code(), 1);
    return status;
  };
  options.protocols = {2, 3};
  EXPECT_THAT(why(), StatusIs(absl::StatusCode::kFailedPrecondition,
                              AllOf(HasSubstr("rank 0 (Skein "),
                                    HasSubstr(") speaks versions 2 to 3 of the protocol"),
                                    HasSubstr(" (Skein 0.8) speaks version 1 of the protocol"),
                                    HasSubstr("start the coordinator from a newer Skein"))));
  options.protocols = {1, 1};
  coordinators.welcome.set_protocol(2);
  EXPECT_THAT(why(), StatusIs(absl::StatusCode::kFailedPrecondition,
                              HasSubstr("wants version 2 of the protocol; the highest that both "
                                        "speak is 1")));
  coordinators.welcome.Clear();
  EXPECT_THAT(why(), StatusIs(absl::StatusCode::kFailedPrecondition,
                              HasSubstr("(Skein older) tells of no version of the protocol")));
  EXPECT_FALSE(coordinators.attached());
}

}  // namespace
}  // namespace skein::worker
