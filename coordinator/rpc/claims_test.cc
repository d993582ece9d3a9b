// Tests who is taken for a rank: versions, proofs, and places that are taken. What is refused is in
// the log, with its address.
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/log/captured_log.h"
#include "base/test_util.h"
#include "coordinator/rpc/hand_made_rank.h"
#include "coordinator/rpc/test_coordinator.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace skein::coordinator {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

using cluster::v1::WorkerMessage;

// ---- Proofs ----

// A job of two ranks, rank 0 by hand, that waits for its rank 1.
class ClaimsTest : public ::testing::Test {
 protected:
  void ExpectRefused(HandMadeRank& rank, grpc::StatusCode code, const std::string& why) {
    const grpc::Status end = rank.End();
    EXPECT_EQ(end.error_code(), code) << end.error_message();
    EXPECT_THAT(end.error_message(), HasSubstr(why));
    EXPECT_TRUE(TestCoordinator::WaitFor([&] {
      return ::testing::Value(
          log_.text(), ContainsRegex(absl::StrCat("from ipv4:127.0.0.1:[0-9]+, is refused: .*",
                                                  why.substr(0, 20))));
    })) << log_.text();
  }
  int Ranks() {
    const cluster::v1::ClusterStatus status = coordinator_.Status();
    return status.jobs_size() == 0 ? 0 : status.jobs(0).ranks_size();
  }

  CapturedLog log_;
  TestCoordinator coordinator_;
};

TEST_F(ClaimsTest, WhoKnowsTheSecretIsARank) {
  HandMadeRank rank(coordinator_);
  rank.Say(HelloOf("job"));
  const cluster::v1::Welcome welcome = rank.Hear();
  EXPECT_EQ(welcome.version(), "test");
  EXPECT_EQ(welcome.protocol(), 1);
  EXPECT_EQ(welcome.protocols().min(), 1);
  EXPECT_EQ(welcome.protocols().max(), 1);
  EXPECT_EQ(welcome.nonce().size(), 32u);
  EXPECT_EQ(coordinator_.Status().jobs_size(), 0);  // a Hello alone is nobody's
  rank.Say(ProofOf(HelloOf("job"), welcome.nonce()));
  EXPECT_TRUE(TestCoordinator::WaitFor([&] { return Ranks() == 1; }));
}

// The id and the key of a job are no secrets.
TEST_F(ClaimsTest, WhoSawAHelloAloneIsNoRankOfTheJob) {
  FakeJob job({.coordinator = coordinator_.address()});
  ASSERT_TRUE(coordinator_.WaitUntilServing());
  WorkerMessage hello = HelloOf("job");
  HandMadeRank stranger(coordinator_);
  stranger.Say(hello);
  stranger.Say(ProofOf(hello, stranger.Hear().nonce(), "what a stranger makes up"));
  ExpectRefused(stranger, grpc::StatusCode::UNAUTHENTICATED,
                "it does not prove that it knows the secret of job job");
  EXPECT_TRUE(coordinator_.Status().serving());
  EXPECT_THAT(log_.text(), Not(HasSubstr("lost")));
}

TEST_F(ClaimsTest, WhatWasRecordedOnceProvesNothingAgain) {
  const WorkerMessage hello = HelloOf("job", 2);
  WorkerMessage proof;
  {
    HandMadeRank rank(coordinator_);
    rank.Say(hello);
    proof = ProofOf(hello, rank.Hear().nonce());
    // The connection breaks before the proof has come, so that the place is free.
  }
  HandMadeRank replay(coordinator_);
  replay.Say(hello);
  replay.Hear();
  replay.Say(proof);
  ExpectRefused(replay, grpc::StatusCode::UNAUTHENTICATED, "it does not prove");
  EXPECT_EQ(coordinator_.Status().jobs_size(), 0);
  // Nor does one with the nonce of a stream beside it.
  HandMadeRank first(coordinator_), second(coordinator_);
  first.Say(hello);
  second.Say(hello);
  const std::string nonce = first.Hear().nonce();
  EXPECT_NE(second.Hear().nonce(), nonce);
  second.Say(ProofOf(hello, nonce));
  ExpectRefused(second, grpc::StatusCode::UNAUTHENTICATED, "it does not prove");
}

TEST_F(ClaimsTest, AProofIsOfOneRankAlone) {
  WorkerMessage one = HelloOf("job", 2), other = HelloOf("job", 2);
  other.mutable_hello()->set_rank(1);
  HandMadeRank rank(coordinator_);
  rank.Say(one);
  rank.Say(ProofOf(other, rank.Hear().nonce()));
  ExpectRefused(rank, grpc::StatusCode::UNAUTHENTICATED, "it does not prove");
}

TEST_F(ClaimsTest, ALivingRanksPlaceIsTakenWhoeverClaimsIt) {
  HandMadeRank living(coordinator_);
  WorkerMessage hello = HelloOf("job", 2);
  hello.mutable_hello()->set_pid(4711);
  living.Introduce(hello);
  ASSERT_TRUE(TestCoordinator::WaitFor([&] { return Ranks() == 1; }));
  WorkerMessage claim = hello;
  claim.mutable_hello()->set_pid(4712);
  claim.mutable_hello()->mutable_node()->set_host("elsewhere");
  HandMadeRank second(coordinator_);
  second.Introduce(claim);
  ExpectRefused(second, grpc::StatusCode::ALREADY_EXISTS, "rank 0 of job job is attached already");
  EXPECT_THAT(log_.text(), HasSubstr("job job: rank 0 on elsewhere (pid 4712), from ipv4:"));
  // The living one goes on: the job becomes complete, and is planned.
  HandMadeRank other(coordinator_);
  hello.mutable_hello()->set_rank(1);
  other.Introduce(hello);
  cluster::v1::CoordinatorMessage plan;
  ASSERT_TRUE(living.stream().Read(&plan));
  EXPECT_TRUE(plan.has_plan());
  EXPECT_EQ(coordinator_.Status().jobs(0).ranks(0).pid(), 4711);
}

TEST_F(ClaimsTest, TheOrderIsHelloThenProofOnce) {
  struct Case {
    std::function<void(HandMadeRank&)> say;
    std::string why;
  };
  const WorkerMessage hello = HelloOf("job");
  WorkerMessage heartbeat;
  heartbeat.mutable_heartbeat();
  const std::vector<Case> cases = {
      {[&](auto& rank) { rank.Say(heartbeat); }, "the first message must be Hello"},
      {[&](auto& rank) { rank.Say(ProofOf(hello, std::string(32, 'n'))); },
       "the first message must be Hello"},
      {[&](auto& rank) {
         rank.Say(hello);
         rank.Say(heartbeat);
       },
       "the message after Hello must be Proof"},
      {[&](auto& rank) {
         rank.Say(hello);
         rank.Say(hello);
       },
       "the message after Hello must be Proof"},
  };
  for (const Case& c : cases) {
    HandMadeRank rank(coordinator_);
    c.say(rank);
    ExpectRefused(rank, grpc::StatusCode::INVALID_ARGUMENT, c.why);
  }
  EXPECT_EQ(coordinator_.Status().jobs_size(), 0);
  for (const WorkerMessage& again : {hello, ProofOf(hello, std::string(32, 'n'))}) {
    HandMadeRank rank(coordinator_);
    rank.Introduce(hello);
    rank.Say(again);
    EXPECT_THAT(rank.End().error_message(), HasSubstr("it said twice who it is"));
  }
}

TEST(ClaimsTimeTest, WhoProvesNothingInTimeIsRefused) {
  const CapturedLog log;
  Daemon::Options options = TestOptions();
  options.server.cluster.hello_time = absl::Milliseconds(200);
  TestCoordinator coordinator(std::move(options));
  HandMadeRank half(coordinator);
  half.Say(HelloOf("job"));
  half.Hear();
  const grpc::Status end = half.End();
  EXPECT_EQ(end.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_THAT(end.error_message(), HasSubstr("it has not proved within 200ms which rank it is"));
  EXPECT_THAT(log.text(), ContainsRegex("a caller of Attach, from ipv4:127.0.0.1:[0-9]+, is "
                                        "refused: it has not proved within 200ms"));
}

// ---- Versions ----

FakeJobOptions Job(const TestCoordinator& coordinator, const std::string& id, std::string version,
                   attach::ProtocolRange protocols) {
  return {.coordinator = coordinator.address(),
          .job_id = id,
          .version = std::move(version),
          .protocols = protocols};
}

TEST(VersionsTest, NeighboursServeBesideEachOther) {
  Daemon::Options options = TestOptions();
  options.cluster.protocols = {2, 3};
  TestCoordinator coordinator(options);
  FakeJob older(Job(coordinator, "older", "0.2", {1, 2}));
  FakeJob same(Job(coordinator, "same", "test", {2, 3}));
  FakeJob newer(Job(coordinator, "newer", "0.4", {3, 4}));
  for (FakeJob* job : {&older, &same, &newer}) EXPECT_TRUE(job->WaitForPlan(0));
  ASSERT_TRUE(TestCoordinator::WaitFor([&] {
    const auto status = coordinator.Status();
    return status.jobs_size() == 3 && status.jobs(2).state() == "serving";
  }));
  const cluster::v1::ClusterStatus status = coordinator.Status();
  for (const auto& job : status.jobs()) {
    EXPECT_EQ(job.protocol(), job.job_id() == "older" ? 2 : 3) << job.job_id();
    EXPECT_EQ(job.version(), job.job_id() == "older"  ? "0.2"
                             : job.job_id() == "same" ? "test"
                                                      : "0.4");
  }
}

TEST(VersionsTest, OthersAreRefusedByName) {
  const CapturedLog log;
  Daemon::Options options = TestOptions();
  options.cluster.protocols = {2, 3};
  TestCoordinator coordinator(options);
  FakeJob old(Job(coordinator, "old", "0.1", {1, 1}));
  FakeJob far(Job(coordinator, "far", "0.9", {4, 5}));
  EXPECT_THAT(
      old.WaitForEnd(0),
      StatusIs(absl::StatusCode::kFailedPrecondition,
               AllOf(HasSubstr("rank 0 on host0 (pid 1000) (Skein 0.1) speaks version 1 of"),
                     HasSubstr("the coordinator (Skein test) speaks versions 2 to 3"),
                     HasSubstr("start the job's workers from a newer Skein"))));
  EXPECT_THAT(far.WaitForEnd(0), StatusIs(absl::StatusCode::kFailedPrecondition,
                                          HasSubstr("start the coordinator from a newer Skein")));
  EXPECT_THAT(log.text(),
              ContainsRegex("from ipv4:127.0.0.1:[0-9]+, is refused: rank 0 .*Skein 0.1"));

  // From before there were versions, or proofs.
  HandMadeRank first(coordinator);
  WorkerMessage hello = HelloOf("job");
  hello.mutable_hello()->clear_protocols();
  hello.mutable_hello()->clear_job_key();
  hello.mutable_hello()->set_version("0.0.9");
  first.Say(hello);
  const grpc::Status end = first.End();
  EXPECT_EQ(end.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_THAT(end.error_message(), HasSubstr("(Skein 0.0.9) tells of no version of the protocol"));
}

TEST(VersionsTest, AJobsRanksAreOfOneProgram) {
  TestCoordinator coordinator;
  HandMadeRank first(coordinator), second(coordinator);
  WorkerMessage hello = HelloOf("job", 2);
  first.Introduce(hello);
  ASSERT_TRUE(TestCoordinator::WaitFor([&] { return coordinator.Status().jobs_size() == 1; }));
  hello.mutable_hello()->set_rank(1);
  hello.mutable_hello()->set_version("0.2");
  second.Introduce(hello);
  const grpc::Status end = second.End();
  EXPECT_EQ(end.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_THAT(end.error_message(),
              AllOf(HasSubstr("rank 1 on host0 (pid 0) runs Skein 0.2, others of job job test"),
                    HasSubstr("start all ranks of a job with the same worker")));
  EXPECT_EQ(coordinator.Status().jobs(0).state(), "waiting for ranks");
}

}  // namespace
}  // namespace skein::coordinator
