// What plans are ranked by, and what they say of it.
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "base/device_kind.h"
#include "base/test_util.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "parallel/cost/replica_cost.h"
#include "parallel/plan/plan.h"
#include "parallel/planner/goal.h"
#include "parallel/planner/planner.h"
#include "parallel/planner/planner_test_util.h"
#include "topology/machine.h"
#include "topology/rates.h"

namespace skein::plan {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

Standing Does(Layout layout, double tokens_per_s, bool leaves_island = false) {
  Standing standing{.layout = layout};
  standing.output_tokens_per_s = tokens_per_s;
  standing.leaves_island = leaves_island;
  return standing;
}

// Those within 5% of the best of them go by a fixed order.
TEST(RankStandingsTest, AlikeLayoutsFollowAFixedOrder) {
  const auto rank = [](const std::vector<Standing>& standings) {
    return RankStandings({}, {512, 256, 16}, standings);
  };
  EXPECT_THAT(rank({Does({1, 1, 8}, 90), Does({8, 1, 1}, 100)}), ElementsAre(1, 0));
  EXPECT_THAT(rank({Does({8, 1, 1}, 100), Does({1, 1, 8}, 96)}), ElementsAre(1, 0));
  // One that is alike to the second, but not to the first, is behind both.
  EXPECT_THAT(rank({Does({4, 1, 2}, 100), Does({2, 1, 4}, 96), Does({1, 1, 8}, 92)}),
              ElementsAre(1, 0, 2));
  // Of replicas of one size shards in an island go before stages, and stages before shards beyond.
  EXPECT_THAT(rank({Does({2, 2, 1}, 100), Does({4, 1, 1}, 100), Does({1, 4, 1}, 100)}),
              ElementsAre(1, 0, 2));
  EXPECT_THAT(rank({Does({2, 2, 1}, 100, true), Does({4, 1, 1}, 100, true), Does({1, 4, 1}, 100)}),
              ElementsAre(2, 0, 1));
}

TEST(WorkloadOfTest, FitsTheContext) {
  EXPECT_EQ(WorkloadOf({}, DeviceKind::kCpu, 4096), (cost::Workload{512, 256, 16}));
  EXPECT_EQ(WorkloadOf({}, DeviceKind::kCuda, 768), (cost::Workload{512, 256, 256}));
  EXPECT_EQ(WorkloadOf({.workload = {.concurrency = 3}}, DeviceKind::kCuda, 300),
            (cost::Workload{200, 100, 3}));
  EXPECT_EQ(WorkloadOf({}, DeviceKind::kCpu, 1), (cost::Workload{1, 1, 16}));
}

// A replica for each rank, since bard fits into each, exchanges are slow, and as many requests as
// run at once by default keep all of them busy.
TEST(PlanJob, ManyRequestsGetReplicas) {
  struct Case {
    int32_t cores, ranks, threads;
  };
  for (const Case& c : {Case{1, 1, 1},
                        {2, 1, 2},
                        {1, 4, 1},
                        {2, 2, 1},
                        {2, 3, 1},
                        {2, 7, 1},
                        {16, 4, 4},
                        {16, 8, 2},
                        {100, 12, 8}}) {
    SCOPED_TRACE(testing::Message() << c.ranks << " ranks on " << c.cores << " cores");
    const auto machine = WithLatency(OneNode(c.cores, 64 * kGiB, c.ranks), absl::Milliseconds(1));
    SKEIN_ASSERT_OK_AND_ASSIGN(const Planning planning, PlanJob(machine, Bard(), {}));
    ExpectSound(planning, Bard(), c.ranks);
    const Plan& plan = planning.plans[0];
    EXPECT_EQ(plan.layout, (Layout{1, 1, c.ranks})) << plan.layout.ToString();
    EXPECT_EQ(plan.ranks.back().threads, c.threads);
    EXPECT_EQ(plan.max_num_seqs, 16);
    EXPECT_EQ(plan.pages, 1024);
    EXPECT_EQ(plan.context_length, 1024);
  }
}

// A limit on TPOT leaves a replica as many sequences at once as keep it, unless their number is
// asked for.
TEST(PlanJob, ALimitOnTpotBoundsSequences) {
  const auto machine = OneNode(8, 80 * kGiB, 1);
  Constraints constraints;
  constraints.layout = {.tp_size = 1, .pp_size = 1, .dp_size = 1};
  const auto plan = [&] { return PlanJob(machine, Llama8B(), constraints)->plans[0]; };
  const Plan free = plan();
  EXPECT_EQ(free.max_num_seqs, 16);
  constraints.max_num_seqs = 5;
  const absl::Duration limit = plan().prediction.tpot;
  ASSERT_LT(limit, free.prediction.tpot);
  constraints.max_num_seqs = 0;
  constraints.goal.tpot_limit = limit;
  const Plan kept = plan();
  EXPECT_EQ(kept.max_num_seqs, 5);
  EXPECT_EQ(kept.prediction.tpot, limit);
  EXPECT_LT(kept.pages, free.pages);
  EXPECT_THAT(Reasons(kept), HasSubstr("A replica runs 5 sequences at once, not 16, which would "
                                       "take "));
  // With two stages micro-batches follow the sequences.
  constraints.layout = {.tp_size = 1, .pp_size = 2, .dp_size = 1};
  const auto two = OneNode(16, 80 * kGiB, 2);
  const Plan stages = PlanJob(two, Llama8B(), constraints)->plans[0];
  EXPECT_LT(stages.max_num_seqs, 16);
  EXPECT_LE(stages.prediction.tpot, limit);
  constraints.layout = {.tp_size = 1, .pp_size = 1, .dp_size = 1};
  // One that none keeps is broken.
  constraints.goal.tpot_limit = absl::Nanoseconds(1);
  EXPECT_EQ(plan().max_num_seqs, 16);
  constraints.goal.tpot_limit = limit;
  constraints.max_num_seqs = 16;
  EXPECT_EQ(plan().max_num_seqs, 16);
}

// One stream gains by shards where they exchange fast, and by nothing where they do not.
TEST(PlanJob, OneStreamGetsShardsWhereExchangesAreFast) {
  Constraints constraints;
  constraints.goal.workload.concurrency = 1;
  constraints.goal.objective = Objective::kLatency;
  const auto best = [&](absl::Duration latency) {
    return PlanJob(WithLatency(OneNode(4, 64 * kGiB, 4), latency), Bard(), constraints)
        ->plans[0]
        .layout;
  };
  EXPECT_EQ(best(absl::Nanoseconds(100)), (Layout{4, 1, 1}));
  EXPECT_EQ(best(absl::Milliseconds(5)), (Layout{1, 1, 4}));
}

// Slow cores: four together compute a prompt sooner than one, as shards or as stages that work on
// its pieces.
TEST(PlanJob, WhatIsBeyondALimitLoses) {
  Constraints constraints;
  auto machine = WithLatency(OneNode(4, 64 * kGiB, 4), absl::Milliseconds(1));
  machine.topology.hosts[0].core_rates.products[0].operations_per_s = 1e10;
  constraints.goal.workload.concurrency = 4;
  SKEIN_ASSERT_OK_AND_ASSIGN(constraints.layout, ParseLayoutRequest("tp=4"));
  SKEIN_ASSERT_OK_AND_ASSIGN(const Planning shards, PlanJob(machine, Bard(), constraints));
  constraints.layout = {};
  SKEIN_ASSERT_OK_AND_ASSIGN(const Planning free, PlanJob(machine, Bard(), constraints));
  EXPECT_EQ(free.plans[0].layout, (Layout{1, 1, 4}));
  constraints.goal.ttft_limit = shards.plans[0].prediction.ttft;
  ASSERT_GT(free.plans[0].prediction.ttft, 2 * *constraints.goal.ttft_limit);
  SKEIN_ASSERT_OK_AND_ASSIGN(const Planning bound, PlanJob(machine, Bard(), constraints));
  EXPECT_EQ(bound.plans[0].layout, (Layout{1, 4, 1}));
  EXPECT_LE(bound.plans[0].prediction.ttft, *constraints.goal.ttft_limit);
  EXPECT_THAT(bound.rejected,
              Contains(testing::Field(&RejectedLayout::reason, HasSubstr("beyond its limit"))));
  // Another limit, that only replicas hold.
  constraints.goal.ttft_limit.reset();
  constraints.goal.tpot_limit = free.plans[0].prediction.tpot;
  EXPECT_EQ(PlanJob(machine, Bard(), constraints)->plans[0].layout, (Layout{1, 1, 4}));
}

// One request keeps one of four replicas busy.
TEST(PlanJob, ReplicasWithoutRequestsDoNothing) {
  Constraints constraints{.layout = {.dp_size = 4}};
  const auto machine = WithLatency(OneNode(4, 64 * kGiB, 4), absl::Milliseconds(1));
  const auto tokens_per_s = [&](int64_t concurrency) {
    constraints.goal.workload.concurrency = concurrency;
    return PlanJob(machine, Bard(), constraints)->plans[0].prediction.output_tokens_per_s;
  };
  EXPECT_NEAR(tokens_per_s(4) / tokens_per_s(1), 4, 0.01);
  EXPECT_NEAR(tokens_per_s(3) / tokens_per_s(1), 3, 0.01);
  EXPECT_GT(tokens_per_s(5), tokens_per_s(4));
}

TEST(PlanJob, SaysWhatItIsRankedBy) {
  Constraints constraints;
  const auto machine = WithLatency(OneNode(4, 64 * kGiB, 4), absl::Milliseconds(1));
  const auto reasons = [&] { return Reasons(PlanJob(machine, Bard(), constraints)->plans[0]); };
  EXPECT_THAT(reasons(), HasSubstr("Ranked by tokens a second."));
  constraints.goal = {.objective = Objective::kLatency, .ttft_limit = absl::Hours(1)};
  EXPECT_THAT(reasons(), HasSubstr("Ranked by the time of an answer, with TTFT of at most 1h."));
  constraints.goal.tpot_limit = absl::Nanoseconds(1);
  EXPECT_THAT(reasons(), HasSubstr("1h and TPOT of at most 1ns, which the best does not keep."));
}

TEST(PlanJob, PlansSayWhatIsPredictedAndForWhichLoad) {
  SKEIN_ASSERT_OK_AND_ASSIGN(const Planning planning,
                             PlanJob(OneNode(2, 64 * kGiB, 2), Bard(), {.context_length = 90}));
  const Prediction& predicted = planning.plans[0].prediction;
  EXPECT_EQ(predicted.prompt_tokens, 60);
  EXPECT_EQ(predicted.output_tokens, 30);
  EXPECT_EQ(predicted.concurrency, 16);
  EXPECT_GT(predicted.output_tokens_per_s, 0);
  EXPECT_GT(predicted.tpot, absl::ZeroDuration());
  EXPECT_GT(predicted.ttft, absl::ZeroDuration());
  EXPECT_FALSE(predicted.measured);
  topology::Machine measured = WithLatency(OneNode(2, 64 * kGiB, 2), absl::Microseconds(1));
  measured.topology.hosts[0].core_rates.origin = topology::Origin::kMeasured;
  EXPECT_TRUE(PlanJob(measured, Bard(), {})->plans[0].prediction.measured);
  EXPECT_THAT(FormatPlan(planning.plans[0]), HasSubstr("predicted, by figures that are assumed"));
}

TEST(WhyItIsBehindTest, TellsWhatDecidesBetweenAlikeOnes) {
  const auto standing = [](const Layout& layout, double tokens_per_s, int32_t idle = 0,
                           bool leaves_island = false) {
    Standing of{.layout = layout};
    of.output_tokens_per_s = tokens_per_s;
    of.idle_ranks = idle;
    of.leaves_island = leaves_island;
    return of;
  };
  const auto why = [](const Standing& of, const Standing& best) {
    return WhyItIsBehind({.objective = Objective::kThroughput}, {}, of, best);
  };
  const Standing best = standing({2, 2, 2}, 100);
  EXPECT_EQ(why(standing({4, 2, 1}, 96), best),
            "as good within 5%, and its replicas have 8 ranks, not 4");
  EXPECT_EQ(why(standing({4, 2, 1}, 94), best), "");
  EXPECT_EQ(why(standing({1, 2, 4}, 96), best), "");  // it is smaller
  EXPECT_EQ(why(standing({1, 4, 2}, 96), best), "as good within 5%, and it has 4 stages, not 2");
  EXPECT_EQ(why(standing({2, 2, 4}, 96), best), "as good within 5%, and it has 4 replicas, not 2");
  EXPECT_EQ(why(standing({2, 1, 2}, 96, 4), best), "as good within 5%, and it leaves 4 ranks idle");
  EXPECT_EQ(why(standing({4, 1, 2}, 96, 0, true), best),
            "as good within 5%, and NVLink does not connect its shards");
  EXPECT_EQ(why(standing({4, 1, 2}, 96, 0, true), standing({2, 2, 2}, 100, 0, true)),
            "as good within 5%, and it has 4 shards, not 2");
}

TEST(PlanJob, SaysWhyOthersLost) {
  const auto machine = WithLatency(OneNode(2, 64 * kGiB, 8), absl::Milliseconds(1));
  SKEIN_ASSERT_OK_AND_ASSIGN(const Planning planning, PlanJob(machine, Bard(), {}));
  EXPECT_EQ(planning.plans[0].layout, (Layout{1, 1, 8}));
  const auto why = [&](const Layout& layout) -> std::string {
    for (const RejectedLayout& rejected : planning.rejected) {
      if (rejected.layout == layout) return rejected.reason;
    }
    return "";
  };
  EXPECT_EQ(why({8, 1, 1}), "tp=8: 4 heads cannot be split into 8 shards");
  EXPECT_THAT(why({4, 1, 2}), AllOf(HasSubstr(" tokens/s, where tp=1,pp=1,dp=8 has "),
                                    HasSubstr(": exchanges take ")));
}

}  // namespace
}  // namespace skein::plan
