#include "coordinator/cluster/cluster.h"

#include <functional>
#include <string>
#include <vector>

#include "base/test_util.h"
#include "coordinator/cluster/cluster_fixture.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "topology/machine.h"

namespace skein::coordinator {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

TEST_F(ClusterTest, ACompleteJobIsPlannedLoadedAndServed) {
  std::vector<TestRank> ranks = AttachJob("a", 3 + 1);
  for (const TestRank& rank : ranks) {
    ASSERT_THAT(rank.link->plans, SizeIs(1));
    EXPECT_EQ(rank.link->plans[0].job_id, "a");
    EXPECT_EQ(rank.link->plans[0].layout.ToString(), "tp=2,pp=1,dp=2");
  }
  EXPECT_EQ(StateOf("a"), "loading");
  for (int i = 0; i < 4; ++i) {
    EXPECT_THAT(listener_.up, IsEmpty());
    cluster_.OnReady(*ranks[i].id, {.slice_key = absl::StrCat(i % 2), .bytes_read = 10});
  }
  EXPECT_EQ(StateOf("a"), "serving");
  ASSERT_THAT(listener_.up, SizeIs(2));
  EXPECT_EQ(listener_.up.begin()->second.leader, ranks[0].link);
  EXPECT_EQ(listener_.up.rbegin()->second.leader, ranks[2].link);
  EXPECT_EQ(listener_.up.rbegin()->second.max_num_seqs, 4);
}

TEST_F(ClusterTest, NothingIsPlannedBeforeAllRanksAreThere) {
  const TestRank last = Attach(Hello("a", 1, 2));
  EXPECT_EQ(StateOf("a"), "waiting for ranks");
  EXPECT_THAT(last.link->plans, IsEmpty());
  Attach(Hello("a", 0, 2));
  EXPECT_THAT(last.link->plans, SizeIs(1));
}

TEST_F(ClusterTest, ALaterJobGivesFurtherReplicas) {
  ServeJob("a", 2);
  ServeJob("b", 4);
  EXPECT_THAT(listener_.up, SizeIs(3));
}

TEST_F(ClusterTest, WhatCannotAttachIsRefusedByName) {
  ServeJob("a", 2);
  attach::Hello old = Hello("b", 0, 2);
  old.version = "0.9";
  old.protocols = {};
  EXPECT_THAT(Attach(old).id, StatusIs(absl::StatusCode::kFailedPrecondition,
                                       AllOf(HasSubstr("0.9"), HasSubstr("node0"))));
  EXPECT_THAT(Attach(Hello("a", 1, 2)).id,
              StatusIs(absl::StatusCode::kAlreadyExists,
                       AllOf(HasSubstr("rank 1"), HasSubstr("node1 (pid 101)"))));
  EXPECT_THAT(Attach(Hello("a", 2, 3)).id,
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("others said 2")));
  EXPECT_THAT(Attach(Hello("b", 2, 2)).id,
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("rank: 2 is not in [0, 1]")));
  EXPECT_THAT(Attach(Hello("b", -1, 2)).id,
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("rank: -1")));
  EXPECT_THAT(Attach(Hello("b", 0, 0)).id,
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("job_size: 0")));
  EXPECT_THAT(Attach(Hello("", 0, 1)).id,
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("job_id")));
  EXPECT_EQ(StateOf("a"), "serving");
}

TEST_F(ClusterTest, AJobThatCannotBePlannedIsRefusedOnAllRanks) {
  const std::vector<TestRank> ranks = AttachJob("odd", 3);
  for (const TestRank& rank : ranks) {
    ASSERT_THAT(rank.link->closed, SizeIs(1));
    EXPECT_THAT(rank.link->closed[0],
                StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("odd jobs")));
    EXPECT_THAT(rank.link->plans, IsEmpty());
  }
  EXPECT_EQ(StateOf("odd"), "lost");
}

TEST_F(ClusterTest, RanksThatReadDifferentWeightsAreRefusedByHostAndPath) {
  ServeJob("a", 2);
  attach::Hello far = Hello("b", 0, 2);
  far.node.host = "far";
  std::vector<TestRank> ranks = {Attach(far), Attach(Hello("b", 1, 2))};
  cluster_.OnReady(*ranks[0].id,
                   {.slice_key = "shard0", .slice_digest = "other", .model_path = "/copies/bard"});
  EXPECT_EQ(StateOf("a"), "serving");
  EXPECT_EQ(StateOf("b"), "lost");
  ASSERT_THAT(ranks[1].link->closed, SizeIs(1));
  EXPECT_THAT(ranks[1].link->closed[0],
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("rank 0 on far (pid 100) of job b"),
                             HasSubstr("rank 0 on node0 (pid 100) of job a"),
                             HasSubstr("the copies far:/copies/bard and node0:/models/bard"))));
}

TEST_F(ClusterTest, ReplicasOfOneJobMustAgreeToo) {
  std::vector<TestRank> ranks = AttachJob("a", 4);
  cluster_.OnReady(*ranks[0].id, {.slice_key = "shard0", .slice_digest = "x"});
  cluster_.OnReady(*ranks[1].id, {.slice_key = "shard1", .slice_digest = "y"});
  EXPECT_EQ(StateOf("a"), "loading");
  cluster_.OnReady(*ranks[2].id, {.slice_key = "shard0", .slice_digest = "z"});
  EXPECT_EQ(StateOf("a"), "lost");
}

TEST_F(ClusterTest, ARankThatGoesLosesItsJobAndNoOther) {
  const std::vector<TestRank> a = ServeJob("a", 2);
  const std::vector<TestRank> b = ServeJob("b", 2);
  cluster_.OnGone(*a[1].id, absl::UnavailableError("the connection broke"));
  EXPECT_EQ(StateOf("a"), "lost");
  EXPECT_EQ(StateOf("b"), "serving");
  EXPECT_THAT(a[0].link->shutdowns,
              ElementsAre(AllOf(HasSubstr("1: rank 1 on node1 (pid 101) is lost"),
                                HasSubstr("the connection broke"))));
  EXPECT_THAT(b[0].link->shutdowns, IsEmpty());
  ASSERT_THAT(listener_.down, SizeIs(1));
  EXPECT_THAT(listener_.down[0], StatusIs(absl::StatusCode::kUnavailable,
                                          AllOf(HasSubstr("job a is gone"), HasSubstr("node1"))));
  EXPECT_THAT(listener_.up, SizeIs(1));

  cluster_.OnGone(*a[0].id, absl::CancelledError("the rank hung up"));
  EXPECT_THAT(listener_.down, SizeIs(1));
  EXPECT_EQ(cluster_.attached_ranks(), 2);

  EXPECT_THAT(Attach(Hello("a", 0, 2)).id,
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("job a is over")));
  ServeJob("c", 2);
  EXPECT_EQ(StateOf("c"), "serving");
}

TEST_F(ClusterTest, AFailureIsQuoted) {
  const std::vector<TestRank> ranks = AttachJob("a", 2);
  cluster_.OnFailure(*ranks[1].id, absl::NotFoundError("no such folder: /models/bard"));
  Pass(1, {});
  EXPECT_EQ(StateOf("a"), "lost");
  EXPECT_THAT(ranks[0].link->shutdowns, ElementsAre(HasSubstr("no such folder: /models/bard")));
  EXPECT_THAT(ranks[1].link->closed, SizeIs(1));
}

TEST_F(ClusterTest, TheFirstRankToFailIsBlamed) {
  const std::vector<TestRank> ranks = ServeJob("a", 4);
  cluster_.OnFailure(*ranks[2].id, absl::InternalError("its GPU has failed"));
  clock_.Advance(absl::Milliseconds(1));
  cluster_.OnFailure(*ranks[0].id, absl::InternalError("rank 2 of the replica has failed"));
  Pass(1, {});
  EXPECT_THAT(ranks[1].link->shutdowns, ElementsAre(HasSubstr("its GPU has failed")));
  // They wait for the verdict, and end when their streams do.
  EXPECT_THAT(ranks[0].link->closed, SizeIs(1));
  EXPECT_THAT(ranks[2].link->closed, SizeIs(1));
}

// As one that was told to end, and fails meanwhile.
TEST_F(ClusterTest, ARankThatFailsWhenItsJobIsOverIsLetGoAtOnce) {
  const std::vector<TestRank> ranks = ServeJob("a", 2);
  cluster_.Shutdown("bye", 0);
  EXPECT_THAT(ranks[1].link->closed, IsEmpty());
  cluster_.OnFailure(*ranks[1].id, absl::InternalError("its GPU has failed"));
  EXPECT_THAT(ranks[1].link->closed, SizeIs(1));
  EXPECT_THAT(ranks[0].link->closed, IsEmpty());
}

TEST_F(ClusterTest, ADeadRankIsBlamedBeforeOnesThatFailForItsSake) {
  const std::vector<TestRank> ranks = ServeJob("a", 4);
  cluster_.OnFailure(*ranks[0].id, absl::UnavailableError("rank 2 of the replica is gone"));
  cluster_.OnGone(*ranks[0].id, absl::OkStatus());
  EXPECT_EQ(StateOf("a"), "serving");
  cluster_.OnGone(*ranks[2].id, absl::UnavailableError("Socket closed"));
  EXPECT_EQ(StateOf("a"), "lost");
  EXPECT_THAT(ranks[1].link->shutdowns, ElementsAre(HasSubstr("rank 2 on node2")));
}

TEST_F(ClusterTest, AWorkerThatLiesLosesItsJob) {
  const std::vector<TestRank> ranks = ServeJob("a", 2);
  listener_.accepts = absl::InvalidArgumentError("token 7 of a vocabulary of 5");
  cluster_.OnStep(*ranks[0].id, {.answers = {{}}});
  EXPECT_EQ(cluster_.Status().front().detail,
            "rank 0 on node0 (pid 100) is lost: it reported what cannot be: token 7 of a "
            "vocabulary of 5");
}

TEST_F(ClusterTest, ARankThatIgnoresItsShutdownIsCutOff) {
  const std::vector<TestRank> ranks = ServeJob("a", 2);
  cluster_.OnGone(*ranks[1].id, absl::UnavailableError("gone"));
  Pass(5, {});
  EXPECT_THAT(ranks[0].link->closed, IsEmpty());
  Pass(1, {});
  EXPECT_THAT(ranks[0].link->closed, SizeIs(1));
  EXPECT_EQ(cluster_.attached_ranks(), 0);
}

TEST_F(ClusterTest, OutputGoesToTheReplicaAndIsCounted) {
  const std::vector<TestRank> ranks = ServeJob("a", 4);
  serving::StepOutput output;
  output.answers.resize(2);
  output.answers[0].tokens.resize(3);
  output.answers[1].tokens.resize(1);
  output.load = {.running = 2, .total_pages = 9, .free_pages = 7, .steps = 5};
  cluster_.OnStep(*ranks[2].id, output);
  EXPECT_THAT(listener_.outputs, ElementsAre(std::make_pair(listener_.up.rbegin()->first, 2u)));

  clock_.Advance(absl::Seconds(1));
  const JobStatus status = cluster_.Status().front();
  ASSERT_THAT(status.replicas, SizeIs(2));
  EXPECT_EQ(status.replicas[0].tokens_total, 0);
  EXPECT_EQ(status.replicas[1].tokens_total, 4);
  EXPECT_DOUBLE_EQ(status.replicas[1].tokens_per_second, 0.4);
  EXPECT_EQ(status.replicas[1].load.free_pages, 7);
  const serving::ReplicaLoad& silent = status.replicas[0].load;  // as planned
  EXPECT_EQ(silent.total_pages, 9);
  EXPECT_EQ(silent.free_pages, 9);
  EXPECT_EQ(silent.total_swap_pages, 5);
  EXPECT_EQ(silent.free_swap_pages, 5);
  clock_.Advance(absl::Seconds(11));
  EXPECT_EQ(cluster_.Status().front().replicas[1].tokens_per_second, 0);
}

TEST_F(ClusterTest, OnlyLeadersSendSteps) {
  const std::vector<TestRank> ranks = ServeJob("a", 2);
  cluster_.OnStep(*ranks[1].id, {});
  EXPECT_EQ(StateOf("a"), "lost");
  EXPECT_THAT(listener_.outputs, IsEmpty());
  cluster_.OnStep(*ranks[0].id, {});  // still on its way when the job was lost
  EXPECT_THAT(listener_.outputs, IsEmpty());
}

TEST_F(ClusterTest, ShutdownTellsAllRanksAndRefusesNewOnes) {
  const std::vector<TestRank> ranks = ServeJob("a", 2);
  cluster_.Shutdown("done", 0);
  EXPECT_EQ(StateOf("a"), "ended");
  EXPECT_THAT(ranks[0].link->shutdowns, ElementsAre("0: done"));
  EXPECT_THAT(ranks[1].link->shutdowns, ElementsAre("0: done"));
  EXPECT_EQ(cluster_.attached_ranks(), 2);
  for (const TestRank& rank : ranks) cluster_.OnGone(*rank.id, absl::CancelledError("bye"));
  EXPECT_EQ(cluster_.attached_ranks(), 0);
  EXPECT_THAT(Attach(Hello("b", 0, 2)).id,
              StatusIs(absl::StatusCode::kAborted, HasSubstr("shutting down")));
}

TEST_F(ClusterTest, JobsThatServeComeFirstAndLostOnesLast) {
  const std::vector<TestRank> first = ServeJob("first", 2);
  AttachJob("odd", 1);
  Attach(Hello("waits", 0, 2));
  ServeJob("second", 2);
  ServeJob("third", 2);
  clock_.Advance(absl::Seconds(2));
  cluster_.OnGone(*first[0].id, absl::UnavailableError("reset"));
  clock_.Advance(absl::Seconds(3));
  std::vector<std::string> order;
  std::vector<absl::Duration> over_for;
  for (const JobStatus& status : cluster_.Status()) {
    order.push_back(status.id);
    if (status.over_for.has_value()) over_for.push_back(*status.over_for);
  }
  EXPECT_THAT(order, ElementsAre("second", "third", "waits", "first", "odd"));
  EXPECT_THAT(over_for, ElementsAre(absl::Seconds(3), absl::Seconds(5)));
}

TEST_F(ClusterTest, OfJobsThatAreOverTheLastFewAreKept) {
  ServeJob("alive", 2);
  for (int i = 0; i < 12; ++i) AttachJob(absl::StrCat("odd", i), 1);
  cluster_.Tick();
  EXPECT_THAT(cluster_.Status(), SizeIs(9));
  EXPECT_EQ(StateOf("alive"), "serving");
  EXPECT_EQ(StateOf("odd3"), "unknown");
  EXPECT_EQ(StateOf("odd4"), "lost");
}

// A planner that takes its time, in which the cluster is asked and told of other things.
TEST_F(ClusterTest, OthersGoOnWhileAJobIsPlanned) {
  std::function<void()> meanwhile;
  Cluster cluster({.version = "1",
                   .planner =
                       [&](const topology::Machine& machine, const plan::ModelFacts& model,
                           const plan::Constraints& constraints) {
                         if (meanwhile) meanwhile();
                         return PlanPairs(machine, model, constraints);
                       }},
                  &clock_);
  AddModel(cluster, {}, listener_);
  const auto attach = [&](const std::string& job) {
    std::vector<TestRank> ranks(2);
    for (int32_t i = 0; i < 2; ++i) ranks[i].id = cluster.Attach(Hello(job, i, 2), ranks[i].link);
    return ranks;
  };
  const std::vector<TestRank> serving = attach("serving");
  for (const TestRank& rank : serving) cluster.OnReady(*rank.id, {});
  meanwhile = [&] {
    EXPECT_EQ(cluster.Status()[1].state, "loading");
    cluster.OnStep(*serving[0].id, {});
    EXPECT_THAT(listener_.outputs, SizeIs(1));
    // For longer than silence is forgiven.
    for (int i = 0; i < 20; ++i) {
      clock_.Advance(absl::Milliseconds(500));
      for (const TestRank& rank : serving) cluster.OnHeartbeat(*rank.id);
      cluster.Tick();
    }
  };
  const std::vector<TestRank> slow = attach("slow");
  SKEIN_ASSERT_OK(slow[1].id.status());
  EXPECT_EQ(cluster.Status()[1].state, "loading");
  EXPECT_THAT(slow[0].link->plans, SizeIs(1));
  EXPECT_EQ(cluster.Status()[0].state, "serving");

  // One whose rank goes meanwhile is lost, and gets no plan.
  std::vector<TestRank> lost(2);
  meanwhile = [&] { cluster.OnGone(*lost[0].id, absl::UnavailableError("killed")); };
  for (int32_t i = 0; i < 2; ++i) lost[i].id = cluster.Attach(Hello("lost", i, 2), lost[i].link);
  EXPECT_THAT(lost[1].link->plans, IsEmpty());
  EXPECT_EQ(cluster.Find("lost", "")->state, "lost");
}

// Rank 2 leads the first replica, rank 0 the second one; rank 1 idles.
TEST_F(ClusterTest, PlacesSayWhoLeadsAndWhoIdles) {
  const auto plan_places = [](const topology::Machine&, const plan::ModelFacts&,
                              const plan::Constraints&) -> absl::StatusOr<plan::Planning> {
    plan::Plan plan;
    plan.layout.dp_size = 2;
    plan.max_num_seqs = 4;
    plan.ranks = {{.rank = 2, .dp_rank = 0}, {.rank = 0, .dp_rank = 1}};
    plan.idle_ranks = {1};
    return plan::Planning{.plans = {plan}};
  };
  Cluster cluster({.version = "1", .planner = plan_places}, &clock_);
  AddModel(cluster, {}, listener_);
  std::vector<TestRank> ranks(3);
  for (int32_t i = 0; i < 3; ++i) ranks[i].id = cluster.Attach(Hello("a", i, 3), ranks[i].link);
  for (const TestRank& rank : ranks) cluster.OnReady(*rank.id, {});
  ASSERT_THAT(listener_.up, SizeIs(2));
  EXPECT_EQ(listener_.up.begin()->second.leader, ranks[2].link);
  EXPECT_EQ(listener_.up.rbegin()->second.leader, ranks[0].link);
  const JobStatus status = cluster.Status()[0];
  EXPECT_EQ(status.ranks[0].state, "ready");
  EXPECT_EQ(status.ranks[1].state, "idle");
  cluster.OnStep(*ranks[2].id, {});
  ASSERT_THAT(listener_.outputs, SizeIs(1));
  EXPECT_EQ(listener_.outputs[0].first, listener_.up.begin()->first);
  cluster.OnStep(*ranks[1].id, {});
  EXPECT_THAT(cluster.Status()[0].detail, HasSubstr("which only leaders may"));
}

}  // namespace
}  // namespace skein::coordinator
