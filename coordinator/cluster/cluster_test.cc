#include "coordinator/cluster/cluster.h"

#include <malloc.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/test_util.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace skein::coordinator {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// What a rank was told.
class FakeLink final : public RankLink {
 public:
  void SendPlan(const plan::Plan& plan) override { plans.push_back(plan); }
  void SendUpdates(serving::RequestUpdates) override { ++steps; }
  uint64_t messages_sent() const override { return steps; }
  void SendShutdown(const std::string& reason, int exit_code) override {
    shutdowns.push_back(absl::StrCat(exit_code, ": ", reason));
  }
  void Close(const absl::Status& status) override { closed.push_back(status); }

  std::vector<plan::Plan> plans;
  uint64_t steps = 0;
  std::vector<std::string> shutdowns;
  std::vector<absl::Status> closed;
};

class FakeListener final : public ReplicaListener {
 public:
  void OnReplicaUp(const ReplicaInfo& replica) override { up[replica.id] = replica; }
  void OnReplicasDown(const std::vector<ReplicaId>& ids, const absl::Status& why) override {
    for (const ReplicaId id : ids) {
      up.erase(id);
      down.push_back(why);
    }
  }
  absl::Status OnStepOutput(ReplicaId id, const serving::StepOutput& output) override {
    outputs.emplace_back(id, output.answers.size());
    return accepts;
  }

  absl::Status accepts;  // what comes

  std::map<ReplicaId, ReplicaInfo> up;
  std::vector<absl::Status> down;
  std::vector<std::pair<ReplicaId, size_t>> outputs;
};

// tp=2 and as many replicas as the ranks give; odd jobs cannot be planned.
absl::StatusOr<plan::Planning> PlanPairs(const topology::Machine& machine,
                                         const plan::ModelFacts& model, const plan::Constraints&) {
  const auto ranks = static_cast<int32_t>(machine.devices.size());
  if (ranks % 2 != 0) return absl::FailedPreconditionError("odd jobs are not planned here");
  plan::Plan plan;
  plan.model_name = model.name;
  plan.model_path = model.path;
  plan.layout = {.tp_size = 2, .pp_size = 1, .dp_size = ranks / 2};
  plan.max_num_seqs = 4;
  plan.pages = 9;
  plan.swap_pages = 5;
  for (int32_t rank = 0; rank < ranks; ++rank) {
    plan.ranks.push_back({.rank = rank, .dp_rank = rank / 2, .tp_rank = rank % 2});
  }
  return plan::Planning{.plans = {plan}};
}

class ClusterTest : public ::testing::Test {
 protected:
  struct TestRank {
    std::shared_ptr<FakeLink> link = std::make_shared<FakeLink>();
    absl::StatusOr<Cluster::RankId> id;
  };

  static RankHello Hello(const std::string& job, int32_t rank, int32_t size) {
    return {.version = "1",
            .job_id = job,
            .rank = rank,
            .job_size = size,
            .pid = 100 + rank,
            .node = {.host = absl::StrCat("node", rank), .cores = 4, .memory_bytes = 1 << 30}};
  }

  TestRank Attach(const RankHello& hello) {
    TestRank rank;
    rank.id = cluster_.Attach(hello, rank.link);
    return rank;
  }

  std::vector<TestRank> AttachJob(const std::string& job, int32_t size) {
    std::vector<TestRank> ranks;
    for (int32_t i = 0; i < size; ++i) ranks.push_back(Attach(Hello(job, i, size)));
    return ranks;
  }

  // Slices are equal where shards are.
  std::vector<TestRank> ServeJob(const std::string& job, int32_t size) {
    std::vector<TestRank> ranks = AttachJob(job, size);
    for (int32_t i = 0; i < size; ++i) {
      cluster_.OnReady(*ranks[i].id, {.slice_key = absl::StrCat("shard", i % 2),
                                      .slice_digest = absl::StrCat("d", i % 2),
                                      .model_path = "/models/bard"});
    }
    return ranks;
  }

  // Half a second at a time, as a ticker does; `alive` send heartbeats.
  void Pass(int half_seconds, const std::vector<Cluster::RankId>& alive) {
    for (int i = 0; i < half_seconds; ++i) {
      clock_.Advance(absl::Milliseconds(500));
      for (const Cluster::RankId id : alive) cluster_.OnHeartbeat(id);
      cluster_.Tick();
    }
  }

  std::string StateOf(const std::string& job) const {
    for (const JobStatus& status : cluster_.Status()) {
      if (status.id == job) return status.state;
    }
    return "unknown";
  }

  SimulatedClock clock_;
  FakeListener listener_;
  Cluster cluster_{{.version = "1", .planner = PlanPairs},
                   {.name = "bard", .path = "checkpoints/bard"},
                   &listener_,
                   &clock_};
};

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
  RankHello old = Hello("b", 0, 2);
  old.version = "0.9";
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
  RankHello far = Hello("b", 0, 2);
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

TEST_F(ClusterTest, ADeadRankIsBlamedBeforeOnesThatFailForItsSake) {
  const std::vector<TestRank> ranks = ServeJob("a", 4);
  cluster_.OnFailure(*ranks[0].id, absl::UnavailableError("rank 2 of the replica is gone"));
  cluster_.OnGone(*ranks[0].id, absl::OkStatus());
  EXPECT_EQ(StateOf("a"), "serving");
  cluster_.OnGone(*ranks[2].id, absl::UnavailableError("Socket closed"));
  EXPECT_EQ(StateOf("a"), "lost");
  EXPECT_THAT(ranks[1].link->shutdowns, ElementsAre(HasSubstr("rank 2 on node2")));
}

TEST_F(ClusterTest, ASilentRankIsLostAfterTheTimeout) {
  const std::vector<TestRank> a = ServeJob("a", 2);
  const std::vector<TestRank> b = ServeJob("b", 2);
  Pass(6, {*a[0].id, *b[0].id, *b[1].id});
  EXPECT_EQ(StateOf("a"), "serving");
  Pass(1, {*a[0].id, *b[0].id, *b[1].id});
  EXPECT_EQ(StateOf("a"), "lost");
  EXPECT_EQ(StateOf("b"), "serving");
  EXPECT_THAT(a[0].link->shutdowns,
              ElementsAre(AllOf(HasSubstr("rank 1 on node1"), HasSubstr("silent for 3500 ms"))));
  EXPECT_THAT(a[1].link->closed, SizeIs(1));
}

// Rank 0 has been in all-reduce 8 for `seconds`, rank 1 not yet.
std::vector<RankActivity> OneWaits(double seconds) {
  const OperationInProgress waits = {.group = "tp of replica 0, stage 0",
                                     .operation = comm::Operation::kAllReduce,
                                     .number = 8,
                                     .others = {1},
                                     .elapsed = absl::Seconds(seconds),
                                     .deadline = absl::Seconds(30)};
  return {{.operation = waits, .step = 3, .entered = {{waits.group, 8}}},
          {.step = 3, .entered = {{waits.group, 7}}}};
}

TEST_F(ClusterTest, ARankThatHoldsUpAnotherBeyondItsDeadlineIsLost) {
  const std::vector<TestRank> ranks = ServeJob("a", 2);
  for (double seconds = 0; seconds <= 30; seconds += 0.5) {
    clock_.Advance(absl::Milliseconds(500));
    const std::vector<RankActivity> now = OneWaits(seconds);
    for (int i = 0; i < 2; ++i) cluster_.OnHeartbeat(*ranks[i].id, now[i]);
    cluster_.Tick();
    ASSERT_EQ(StateOf("a"), "serving");
  }
  cluster_.OnHeartbeat(*ranks[0].id, OneWaits(30.5)[0]);
  cluster_.Tick();
  EXPECT_EQ(StateOf("a"), "lost");
  const std::string why =
      "rank 1 on node1 (pid 101) is lost: it never entered all-reduce 8 of 'tp of replica 0, stage "
      "0' (step 3); it was last heard computing step 3; rank 0 has waited in all-reduce 8 of 'tp "
      "of replica 0, stage 0' (step 3) for 30.5 s, past the deadline of 30.0 s";
  EXPECT_EQ(cluster_.Status().front().detail, why);
  EXPECT_THAT(ranks[0].link->shutdowns, ElementsAre("1: " + why));
  EXPECT_THAT(ranks[1].link->closed, ElementsAre(StatusIs(absl::StatusCode::kAborted, why)));
  ASSERT_THAT(listener_.down, SizeIs(1));
  EXPECT_THAT(listener_.down[0], StatusIs(absl::StatusCode::kUnavailable, HasSubstr(why)));
}

// A worker's list of others is not believed as it is.
TEST_F(ClusterTest, WhoIsWaitedForCountsOnce) {
  const std::vector<TestRank> ranks = ServeJob("a", 4);
  RankActivity waits = OneWaits(31)[0];
  waits.operation->others = {2, 1, 70000, 2, -3, 1, 4, 2};
  cluster_.OnHeartbeat(*ranks[0].id, waits);
  cluster_.Tick();
  EXPECT_THAT(cluster_.Status().front().detail,
              AllOf(HasSubstr("rank 1 on node1 (pid 101) is lost: it never entered all-reduce 8"),
                    HasSubstr(", nor did rank 2;")));
}

// Bytes of this process's heap.
size_t HeapBytes() {
  const struct mallinfo2 info = mallinfo2();
  return info.uordblks + info.hblkhd;
}

TEST_F(ClusterTest, ARankThatSaysThatItHasManyOthersCostsLittle) {
  const size_t before = HeapBytes();
  for (int i = 0; i < 100; ++i) {
    const TestRank rank = Attach(Hello(absl::StrCat("job", i), kMaxJobSize - 1, kMaxJobSize));
    SKEIN_ASSERT_OK(rank.id.status());
    cluster_.OnHeartbeat(*rank.id, OneWaits(31)[0]);
  }
  cluster_.Tick();
  EXPECT_LT(HeapBytes() - before, 1 << 20);
}

TEST_F(ClusterTest, ASilentRankIsLostWithWhatItDidLast) {
  const std::vector<TestRank> ranks = ServeJob("a", 2);
  cluster_.OnHeartbeat(*ranks[1].id, OneWaits(0)[1]);
  for (double seconds = 0.5; seconds <= 3.5; seconds += 0.5) {
    clock_.Advance(absl::Milliseconds(500));
    cluster_.OnHeartbeat(*ranks[0].id, OneWaits(seconds - 0.1)[0]);
    cluster_.Tick();
  }
  EXPECT_EQ(cluster_.Status().front().detail,
            "rank 1 on node1 (pid 101) is lost: it has been silent for 3500 ms; it was last heard "
            "computing step 3; rank 0 has waited in all-reduce 8 of 'tp of replica 0, stage 0' "
            "(step 3) for 3.4 s");
}

// Rank 1's process stops while rank 0 waits for it, with a deadline below --heartbeat-timeout.
TEST_F(ClusterTest, NobodyIsBlamedForARankThatIsSilent) {
  const std::vector<TestRank> ranks = ServeJob("a", 2);
  std::vector<RankActivity> now = OneWaits(0.1);
  now[0].operation->deadline = absl::Seconds(1.8);
  // As far as is known rank 1 waits for rank 0.
  now[1].operation = now[0].operation;
  now[1].operation->number = 7;
  now[1].operation->others = {0};
  for (int i = 0; i < 2; ++i) cluster_.OnHeartbeat(*ranks[i].id, now[i]);
  for (double seconds = 0.5; seconds <= 3; seconds += 0.5) {
    clock_.Advance(absl::Milliseconds(500));
    now[0].operation->elapsed = absl::Seconds(seconds);
    cluster_.OnHeartbeat(*ranks[0].id, now[0]);
    cluster_.Tick();
    ASSERT_EQ(StateOf("a"), "serving") << cluster_.Status().front().detail;
  }
  clock_.Advance(absl::Milliseconds(500));
  cluster_.OnHeartbeat(*ranks[0].id, now[0]);
  cluster_.Tick();
  EXPECT_THAT(cluster_.Status().front().detail,
              HasSubstr("rank 1 on node1 (pid 101) is lost: it has been silent for 3500 ms"));
}

TEST_F(ClusterTest, AThreadThatDoesNotMoveLosesItsJob) {
  const std::vector<TestRank> ranks = ServeJob("a", 2);
  for (const double still : {0.4, 5.0, 0.1}) {
    cluster_.OnHeartbeat(*ranks[0].id, {.threads = {{"scheduler", absl::Seconds(still)},
                                                    {"listener", absl::Seconds(0.2)}}});
    cluster_.Tick();
    ASSERT_EQ(StateOf("a"), "serving");
  }
  cluster_.OnHeartbeat(*ranks[0].id, {.threads = {{"scheduler", absl::Seconds(0.1)},
                                                  {"listener", absl::Seconds(5.2)}}});
  cluster_.Tick();
  EXPECT_EQ(cluster_.Status().front().detail,
            "rank 0 on node0 (pid 100) is lost: its thread 'listener' has not moved for 5s");
}

TEST_F(ClusterTest, StepsThatAreNotTakenUpLoseTheJob) {
  const std::vector<TestRank> ranks = ServeJob("a", 2);
  const std::vector<Cluster::RankId> both = {*ranks[0].id, *ranks[1].id};
  const auto pass = [&](int half_seconds, uint64_t taken) {
    for (int i = 0; i < half_seconds; ++i) {
      clock_.Advance(absl::Milliseconds(500));
      cluster_.OnHeartbeat(both[0], {.messages_taken = taken});
      cluster_.OnHeartbeat(both[1]);
      cluster_.Tick();
    }
  };
  pass(20, 0);  // nothing was sent
  ranks[0].link->SendUpdates({});
  pass(10, 0);
  EXPECT_EQ(StateOf("a"), "serving");
  pass(1, 1);
  pass(20, 1);
  ranks[0].link->SendUpdates({});
  pass(6, 1);
  ranks[0].link->SendUpdates({});  // a later one does not make the first one young
  pass(5, 1);
  EXPECT_EQ(StateOf("a"), "serving");
  pass(1, 1);
  EXPECT_THAT(cluster_.Status().front().detail,
              HasSubstr("rank 0 on node0 (pid 100) is lost: it has not taken up what was sent to "
                        "it 5500 ms ago, though its heartbeats come"));
}

TEST_F(ClusterTest, ACoordinatorThatWasStoppedBlamesNobodyForWhatItMissed) {
  const std::vector<TestRank> ranks = ServeJob("a", 2);
  ranks[0].link->SendUpdates({});
  Pass(1, {*ranks[0].id, *ranks[1].id});
  clock_.Advance(absl::Seconds(60));
  cluster_.OnHeartbeat(*ranks[0].id,
                       {.threads = {{"scheduler", absl::Seconds(60)}}});  // waited for our reading
  cluster_.Tick();
  EXPECT_EQ(StateOf("a"), "serving");
  Pass(8, {*ranks[0].id, *ranks[1].id});
  EXPECT_EQ(StateOf("a"), "serving");
}

TEST_F(ClusterTest, AWorkerThatLiesLosesItsJob) {
  const std::vector<TestRank> ranks = ServeJob("a", 2);
  listener_.accepts = absl::InvalidArgumentError("token 7 of a vocabulary of 5");
  cluster_.OnStep(*ranks[0].id, {.answers = {{}}});
  EXPECT_EQ(cluster_.Status().front().detail,
            "rank 0 on node0 (pid 100) is lost: it reported what cannot be: token 7 of a "
            "vocabulary of 5");
}

TEST_F(ClusterTest, SilenceCountsWhileAJobWaitsAndLoads) {
  const TestRank alone = Attach(Hello("a", 0, 2));
  const std::vector<TestRank> b = AttachJob("b", 2);
  Pass(7, {});
  EXPECT_EQ(StateOf("a"), "lost");
  EXPECT_EQ(StateOf("b"), "lost");
  EXPECT_THAT(cluster_.Status().front().detail,
              HasSubstr("silent for 3500 ms; not all ranks of its job have come"));
}

TEST_F(ClusterTest, ACoordinatorThatWasStoppedBlamesNobody) {
  const std::vector<TestRank> ranks = ServeJob("a", 2);
  clock_.Advance(absl::Seconds(60));
  cluster_.Tick();
  EXPECT_EQ(StateOf("a"), "serving");
  Pass(7, {});
  EXPECT_EQ(StateOf("a"), "lost");
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

}  // namespace
}  // namespace skein::coordinator
