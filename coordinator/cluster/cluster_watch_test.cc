// Whom the cluster holds lost: ranks that fall silent, hold up others or do not move.
#include <malloc.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/device_kind.h"
#include "base/test_util.h"
#include "coordinator/cluster/cluster_fixture.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "model/config/test_models.h"
#include "parallel/planner/predict_plan.h"
#include "topology/machine.h"

namespace skein::coordinator {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;

using ClusterWatchTest = ClusterTest;

// A rank that computes for a minute and then waits: shares of late forget the minute.
TEST_F(ClusterWatchTest, WhereTimeWentOfLateIsOfTenSeconds) {
  const std::vector<TestRank> ranks = ServeJob("a", 2);
  comm::RankTimes times;
  const auto beat = [&](int half_seconds, absl::Duration comm::RankTimes::* activity) {
    for (int i = 0; i < half_seconds; ++i) {
      clock_.Advance(absl::Milliseconds(500));
      times.*activity += absl::Milliseconds(500);
      cluster_.OnHeartbeat(*ranks[0].id, {.times = times});
      cluster_.OnHeartbeat(*ranks[1].id);
    }
  };
  EXPECT_EQ(cluster_.Status()[0].ranks[0].times, std::nullopt);
  beat(1, &comm::RankTimes::compute);
  EXPECT_EQ(cluster_.Status()[0].ranks[0].recent_times, std::nullopt);
  beat(119, &comm::RankTimes::compute);
  beat(10, &comm::RankTimes::bubble);
  RankStatus rank = cluster_.Status()[0].ranks[0];
  EXPECT_EQ(rank.times, times);
  EXPECT_EQ(rank.recent_times->bubble, absl::Seconds(5));
  EXPECT_NEAR(absl::ToDoubleSeconds(rank.recent_times->compute), 5, 0.5);
  beat(30, &comm::RankTimes::waiting);
  rank = cluster_.Status()[0].ranks[0];
  EXPECT_EQ(rank.recent_times->compute + rank.recent_times->bubble, absl::ZeroDuration());
  EXPECT_NEAR(absl::ToDoubleSeconds(rank.recent_times->waiting), 10, 0.5);
  // Of one that starts anew, or lies, no time is negative.
  cluster_.OnHeartbeat(*ranks[0].id, {.times = comm::RankTimes{}});
  EXPECT_GE(cluster_.Status()[0].ranks[0].recent_times->waiting, absl::ZeroDuration());
  EXPECT_EQ(cluster_.Status()[0].ranks[1].times, std::nullopt);
}

TEST_F(ClusterWatchTest, ASilentRankIsLostAfterTheTimeout) {
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
std::vector<attach::Heartbeat> OneWaits(double seconds) {
  const comm::OperationInProgress waits = {
      .group = "tp of replica 0, stage 0",
      .call = {.operation = comm::Operation::kAllReduce, .number = 8},
      .others = {1},
      .elapsed = absl::Seconds(seconds)};
  return {{.progress = {.step = 3,
                        .deadline = absl::Seconds(30),
                        .operation = waits,
                        .entered = {{waits.group, 8}}}},
          {.progress = {.step = 3, .entered = {{waits.group, 7}}}}};
}

TEST_F(ClusterWatchTest, ARankThatHoldsUpAnotherBeyondItsDeadlineIsLost) {
  const std::vector<TestRank> ranks = ServeJob("a", 2);
  for (double seconds = 0; seconds <= 30; seconds += 0.5) {
    clock_.Advance(absl::Milliseconds(500));
    const std::vector<attach::Heartbeat> now = OneWaits(seconds);
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
TEST_F(ClusterWatchTest, WhoIsWaitedForCountsOnce) {
  const std::vector<TestRank> ranks = ServeJob("a", 4);
  attach::Heartbeat waits = OneWaits(31)[0];
  waits.progress.operation->others = {2, 1, 70000, 2, -3, 1, 4, 2};
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

TEST_F(ClusterWatchTest, ARankThatSaysThatItHasManyOthersCostsLittle) {
  const size_t before = HeapBytes();
  for (int i = 0; i < 100; ++i) {
    const TestRank rank =
        Attach(Hello(absl::StrCat("job", i), attach::kMaxJobSize - 1, attach::kMaxJobSize));
    SKEIN_ASSERT_OK(rank.id.status());
    cluster_.OnHeartbeat(*rank.id, OneWaits(31)[0]);
  }
  cluster_.Tick();
  EXPECT_LT(HeapBytes() - before, 1 << 20);
}

TEST_F(ClusterWatchTest, ASilentRankIsLostWithWhatItDidLast) {
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
TEST_F(ClusterWatchTest, NobodyIsBlamedForARankThatIsSilent) {
  const std::vector<TestRank> ranks = ServeJob("a", 2);
  std::vector<attach::Heartbeat> now = OneWaits(0.1);
  for (attach::Heartbeat& beat : now) beat.progress.deadline = absl::Seconds(1.8);
  // As far as is known rank 1 waits for rank 0.
  now[1].progress.operation = now[0].progress.operation;
  now[1].progress.operation->call.number = 7;
  now[1].progress.operation->others = {0};
  for (int i = 0; i < 2; ++i) cluster_.OnHeartbeat(*ranks[i].id, now[i]);
  for (double seconds = 0.5; seconds <= 3; seconds += 0.5) {
    clock_.Advance(absl::Milliseconds(500));
    now[0].progress.operation->elapsed = absl::Seconds(seconds);
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

TEST_F(ClusterWatchTest, AThreadThatDoesNotMoveLosesItsJob) {
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

TEST_F(ClusterWatchTest, TheBusiestExpertOfAllRanksIsTold) {
  const std::vector<TestRank> ranks = ServeJob("a", 2);
  EXPECT_EQ(cluster_.Status().front().experts, std::nullopt);
  const ExpertLoad even = {.rows = 90, .layer = 1, .expert = 3, .of_average = 1.5};
  const ExpertLoad uneven = {.rows = 80, .layer = 7, .expert = 2, .of_average = 3};
  cluster_.OnHeartbeat(*ranks[0].id, {.experts = even});
  EXPECT_EQ(cluster_.Status().front().experts, even);
  cluster_.OnHeartbeat(*ranks[1].id, {.experts = uneven});
  EXPECT_EQ(cluster_.Status().front().experts, uneven);
  cluster_.OnHeartbeat(*ranks[1].id, {.experts = {{.rows = 99, .of_average = 1.25}}});
  EXPECT_EQ(cluster_.Status().front().experts, even);
}

TEST_F(ClusterWatchTest, StepsThatAreNotTakenUpLoseTheJob) {
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

TEST_F(ClusterWatchTest, ACoordinatorThatWasStoppedBlamesNobodyForWhatItMissed) {
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

TEST_F(ClusterWatchTest, SilenceCountsWhileAJobWaitsAndLoads) {
  const TestRank alone = Attach(Hello("a", 0, 2));
  const std::vector<TestRank> b = AttachJob("b", 2);
  Pass(7, {});
  EXPECT_EQ(StateOf("a"), "lost");
  EXPECT_EQ(StateOf("b"), "lost");
  EXPECT_THAT(cluster_.Status().front().detail,
              HasSubstr("silent for 3500 ms; not all ranks of its job have come"));
}

TEST_F(ClusterWatchTest, ACoordinatorThatWasStoppedBlamesNobody) {
  const std::vector<TestRank> ranks = ServeJob("a", 2);
  clock_.Advance(absl::Seconds(60));
  cluster_.Tick();
  EXPECT_EQ(StateOf("a"), "serving");
  Pass(7, {});
  EXPECT_EQ(StateOf("a"), "lost");
}

// As a coordinator plans; nobody measured the hosts.
class ClusterStepTest : public ClusterTest {
 protected:
  // Steps of two sequences at 100 tokens that take `times` what is predicted, for so long.
  void Decode(const TestRank& leader, double times, int seconds) {
    const absl::Duration predicted = Predicted(leader, {.decodes = 2, .context = 100});
    const int64_t steps = absl::Seconds(1) / (times * predicted) + 1;
    for (int i = 0; i < seconds; ++i) {
      load_.steps += steps;
      load_.decode_steps += steps;
      load_.decode_rows += 2 * steps;
      load_.decode_context += 200 * steps;
      load_.decode_time += steps * times * predicted;
      Second(leader);
    }
  }
  // Steps with 100 tokens of a prompt beside a sequence at 50.
  void ComputePrompts(const TestRank& leader, double times, int seconds) {
    const absl::Duration predicted = Predicted(leader, {.decodes = 1,
                                                        .context = 50,
                                                        .prompts = 1,
                                                        .prompt_rows = 100,
                                                        .prompt_context = 49.5,
                                                        .outputs = 1});
    const int64_t steps = absl::Seconds(1) / (times * predicted) + 1;
    for (int i = 0; i < seconds; ++i) {
      load_.steps += steps;
      serving::PromptSteps& prompts = load_.prompt_steps;
      prompts.steps += steps;
      prompts.prompts += steps;
      prompts.rows += 100 * steps;
      prompts.context += 4950 * steps;
      prompts.outputs += steps;
      prompts.decodes += steps;
      prompts.decode_context += 50 * steps;
      prompts.time += steps * times * predicted;
      Second(leader);
    }
  }
  ClusterStepTest() { AddModel(cluster, model_, listener_); }

  TestRank Serve(const topology::Device& device = {}) {
    TestRank rank;
    attach::Hello hello = Hello("a", 0, 1);
    hello.device = device;
    machine_ = topology::MachineFromRanks({{{hello.node, hello.device, hello.told}}});
    rank.id = cluster.Attach(hello, rank.link);
    cluster.OnReady(*rank.id, {.slice_key = "s", .slice_digest = "d", .model_path = "/m"});
    return rank;
  }

  absl::Duration Predicted(const TestRank& leader, const plan::StepMeans& means) const {
    return *plan::PredictStep(machine_, topology::TopologyOf(machine_), model_.config,
                              leader.link->plans.front(), /*dp_rank=*/0, means);
  }
  void Second(const TestRank& leader) {
    cluster.OnStep(*leader.id, {.load = load_});
    clock_.Advance(absl::Seconds(1));
    cluster.OnHeartbeat(*leader.id);
    cluster.Tick();
  }

  const plan::ModelFacts model_ = {"bard", "/models/bard", "1d", model::Bard()};
  topology::Machine machine_;
  serving::ReplicaLoad load_;
  Cluster cluster{{.version = "1"}, &clock_};
};

TEST_F(ClusterStepTest, WhatStepsTakeIsShownBesideWhatWasPredicted) {
  const TestRank rank = Serve();
  ASSERT_EQ(cluster.Status().front().state, "serving");
  EXPECT_FALSE(cluster.Status().front().replicas.front().decodes.has_value());
  ::testing::internal::CaptureStdout();
  Decode(rank, 1.25, 20);
  EXPECT_THAT(::testing::internal::GetCapturedStdout(),
              AllOf(HasSubstr("replica 0 of job a: "),
                    HasSubstr(" ms for a step of 2.0 sequences at 100 tokens; predicted were "),
                    HasSubstr(" ms (+25%)")));
  const StepComparison shown = *cluster.Status().front().replicas.front().decodes;
  EXPECT_EQ(shown.decodes, 2);
  EXPECT_EQ(shown.context, 100);
  EXPECT_NEAR(shown.excess(), 0.25, 1e-6);
}

// On cores 40% are tolerated, which others may use, too.
TEST_F(ClusterStepTest, AMinuteFarFromThePredictionIsAWarning) {
  const TestRank rank = Serve();
  ::testing::internal::CaptureStdout();
  Decode(rank, 1.38, 70);
  EXPECT_THAT(::testing::internal::GetCapturedStdout(), Not(HasSubstr("for a minute")));
  ::testing::internal::CaptureStdout();
  Decode(rank, 1.42, 70);
  EXPECT_THAT(::testing::internal::GetCapturedStdout(),
              HasSubstr("(+42%), for a minute; the figures of its hosts are assumed"));
}

// So it is where no step decodes alone.
TEST_F(ClusterStepTest, StepsWithPromptsAreShownAndWarnedOf) {
  const TestRank rank = Serve();
  ::testing::internal::CaptureStdout();
  ComputePrompts(rank, 1.42, 70);
  EXPECT_THAT(::testing::internal::GetCapturedStdout(),
              AllOf(HasSubstr(" ms for a step of 100.0 rows of prompts beside 1.0 sequences; "
                              "predicted were "),
                    HasSubstr("(+42%), for a minute; the figures of its hosts are assumed")));
  const ReplicaStatus shown = cluster.Status().front().replicas.front();
  EXPECT_FALSE(shown.decodes.has_value());
  ASSERT_TRUE(shown.prompts.has_value());
  EXPECT_EQ(shown.prompts->prompt_rows, 100);
  EXPECT_NEAR(shown.prompts->excess(), 0.42, 1e-6);
}

TEST_F(ClusterStepTest, OnGpusItIsOneSooner) {
  const TestRank rank = Serve({.kind = DeviceKind::kCuda,
                               .name = "NVIDIA H100 80GB HBM3",
                               .memory_bytes = int64_t{80} << 30});
  ASSERT_EQ(cluster.Status().front().state, "serving") << cluster.Status().front().detail;
  ::testing::internal::CaptureStdout();
  Decode(rank, 1.18, 70);
  EXPECT_THAT(::testing::internal::GetCapturedStdout(), Not(HasSubstr("for a minute")));
  ::testing::internal::CaptureStdout();
  Decode(rank, 1.22, 70);
  EXPECT_THAT(
      ::testing::internal::GetCapturedStdout(),
      HasSubstr("(+22%), for a minute; the figures of its hosts are assumed; workers that are "
                "started with --probe measure them"));
}

// What no replica can have would take the cost model for ever.
TEST_F(ClusterStepTest, WhatThePlanDoesNotAllowIsNotCompared) {
  const TestRank rank = Serve();
  const plan::Plan& plan = rank.link->plans.front();
  cluster.OnStep(*rank.id, {.load = {.steps = 1}});
  cluster.Tick();
  for (const auto& [rows, context] : {std::pair<int64_t, int64_t>{plan.max_num_seqs + 1, 1},
                                      {int64_t{1} << 40, 1},
                                      {1, plan.context_length + 1},
                                      {1, int64_t{1} << 50}}) {
    load_.steps += 2;
    load_.decode_steps += 1;
    load_.decode_rows += rows;
    load_.decode_context += rows * context % (int64_t{1} << 51);
    load_.decode_time += absl::Seconds(2);
    Second(rank);
    EXPECT_FALSE(cluster.Status().front().replicas.front().decodes.has_value()) << rows;
  }
}

}  // namespace
}  // namespace skein::coordinator
