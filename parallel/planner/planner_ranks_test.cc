// Which of a job's ranks a plan takes, where it puts them, and how many layers each stage has.
#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/device_kind.h"
#include "base/test_util.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "model/config/test_models.h"
#include "parallel/plan/plan.h"
#include "parallel/planner/cards_test_util.h"
#include "parallel/planner/job_placement.h"
#include "parallel/planner/planner.h"
#include "parallel/planner/planner_test_util.h"
#include "topology/machine.h"
#include "topology/presets/presets.h"
#include "topology/rates.h"

namespace skein::plan {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

std::vector<int32_t> RanksOf(const Plan& plan) {
  std::vector<int32_t> ranks;
  for (const RankPlan& part : plan.ranks) ranks.push_back(part.rank);
  return ranks;
}

Plan Best(const topology::Machine& machine, const ModelFacts& model, const std::string& asked,
          Constraints constraints = {}) {
  constraints.layout = *ParseLayoutRequest(asked);
  const absl::StatusOr<Planning> planning = PlanJob(machine, model, constraints);
  SKEIN_EXPECT_OK(planning.status());
  if (!planning.ok()) return {};
  SKEIN_EXPECT_OK(ValidatePlan(planning->plans[0], model.config));
  return planning->plans[0];
}

// Ranks that were dealt to nodes in turn, as mpirun --map-by node deals them.
topology::Machine Dealt(int32_t nodes, int32_t ranks) {
  topology::Machine machine;
  for (int32_t i = 0; i < nodes; ++i) {
    machine.nodes.push_back({std::string(1, static_cast<char>('a' + i)), 2, 64 * kGiB});
  }
  for (int32_t rank = 0; rank < ranks; ++rank) machine.devices.push_back({{}, rank % nodes});
  return machine;
}

TEST(PlanJob, ShardsAreOnOneNodeHoweverRanksWereDealt) {
  const Plan pairs = Best(Dealt(2, 4), Bard(), "tp=2,pp=2");
  EXPECT_THAT(RanksOf(pairs), ElementsAre(0, 2, 1, 3));
  EXPECT_THAT(pairs.idle_ranks, IsEmpty());
  EXPECT_THAT(Reasons(pairs), Not(HasSubstr("spread over nodes")));
  EXPECT_EQ(pairs.ranks[1].device.node, 0);
  EXPECT_EQ(pairs.ranks[2].device.node, 1);
  // Replicas stay on a node, too.
  EXPECT_THAT(RanksOf(Best(Dealt(2, 4), Bard(), "tp=1,pp=2")), ElementsAre(0, 2, 1, 3));
  EXPECT_THAT(RanksOf(Best(Dealt(4, 8), Bard(), "tp=2,pp=2,dp=2")),
              ElementsAre(0, 4, 1, 5, 2, 6, 3, 7));
  // All in order where none needs another.
  EXPECT_THAT(RanksOf(Best(OneNode(4, 64 * kGiB, 4), Bard(), "tp=2")), ElementsAre(0, 1, 2, 3));
}

// Three ranks of each of two nodes: a pair over both would send every layer's sums between them.
TEST(PlanJob, RanksIdleRatherThanAddBetweenNodes) {
  const auto machine = WithLatency(Machine({{{"a", 3, 64 * kGiB}, 3}, {{"b", 3, 64 * kGiB}, 3}}),
                                   absl::Microseconds(1));
  const Plan plan = Best(machine, Bard(), "tp=2");
  EXPECT_EQ(plan.layout, (Layout{2, 1, 2}));
  EXPECT_THAT(RanksOf(plan), ElementsAre(0, 1, 3, 4));
  EXPECT_THAT(plan.idle_ranks, ElementsAre(2, 5));
  EXPECT_THAT(Reasons(plan), HasSubstr("Ranks 2, 5 idle: tp=2,pp=1,dp=3 has work for all, but its "
                                       "shards are spread over nodes a and b; ask for all three"));
  EXPECT_THAT(RanksOf(Best(machine, Bard(), "tp=2,pp=1,dp=3")), ElementsAre(0, 1, 2, 3, 4, 5));
  // But not nearly all of them.
  std::vector<std::pair<topology::Node, int32_t>> nodes = {{{"pair", 3, 64 * kGiB}, 2}};
  for (int i = 0; i < 4; ++i) nodes.push_back({{absl::StrCat("one", i), 3, 64 * kGiB}, 1});
  EXPECT_EQ(Best(Machine(nodes), Bard(), "tp=2").layout.ranks(), 6);
  EXPECT_THAT(FormatPlan(plan), AllOf(HasSubstr(" of 6 ranks\n"), HasSubstr("\n    5  idle\n")));
  EXPECT_EQ(plan.ranks[0].threads, 1);
  EXPECT_EQ(Best(Machine({{{"a", 4, 64 * kGiB}, 3}}), Bard(), "tp=2").ranks[0].threads, 2);
}

TEST(PlanJob, RanksIdleWhereNoLayoutHasWorkForAll) {
  for (const int32_t ranks : {3, 5, 7}) {
    const Plan plan = Best(OneNode(8, 64 * kGiB, ranks), Bard(), "tp=2");
    EXPECT_EQ(plan.idle_ranks, std::vector<int32_t>{ranks - 1});
    EXPECT_THAT(
        Reasons(plan),
        HasSubstr(absl::StrCat("Rank ", ranks - 1, " idles: no layout of all ", ranks, " works.")));
  }
  EXPECT_EQ(Best(OneNode(8, 64 * kGiB, 11), Bard(), "tp=2,dp=3").layout, (Layout{2, 1, 3}));
  // One whose node has no room.
  const Plan big =
      Best(Machine({{{"tiny", 8, 2 * kGiB}, 1}, {{"big", 8, 64 * kGiB}, 2}}), Llama8B(), "");
  EXPECT_THAT(big.idle_ranks, ElementsAre(0));
  EXPECT_THAT(RanksOf(big), ElementsAre(1, 2));
}

TEST(PlanJob, SaysWhatItDidNotLookAt) {
  const auto pruned = [](int32_t ranks, const char* asked) {
    Constraints constraints;
    constraints.layout = *ParseLayoutRequest(asked);
    const absl::StatusOr<Planning> planning =
        PlanJob(OneNode(64, 640 * kGiB, ranks), Llama8B(), constraints);
    SKEIN_EXPECT_OK(planning);
    return planning.ok() ? planning->pruned : "";
  };
  EXPECT_EQ(pruned(2, ""), "");
  EXPECT_EQ(pruned(4, ""),
            "Layouts that leave ranks idle were looked at with 1, 2, 4, ... replicas alone.");
  EXPECT_EQ(pruned(12, ""),
            "Layouts that leave ranks idle were looked at with at most 8 stages and with 1, 2, 4, "
            "... replicas alone.");
  EXPECT_EQ(pruned(4, "tp=1,pp=1,dp=4"), "");
}

// Who counts all ranks wants them all, and mistakes are told.
TEST(PlanJob, NoRankIdlesUnaskedWhereAllAreCounted) {
  for (const char* const asked : {"tp=2,pp=1,dp=1", "tp=2,pp=2,dp=2"}) {
    Constraints constraints;
    constraints.layout = *ParseLayoutRequest(asked);
    EXPECT_THAT(PlanJob(OneNode(8, 64 * kGiB, 6), Bard(), constraints).status(),
                StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("the job has 6")));
  }
  EXPECT_EQ(Best(OneNode(8, 64 * kGiB, 8), Bard(), "tp=2,dp=1").layout, (Layout{2, 4, 1}));
  // Deeper than is looked at unasked.
  EXPECT_EQ(Best(OneNode(16, 64 * kGiB, 16), Llama8B(), "tp=1,dp=1").layout, (Layout{1, 16, 1}));
}

// Four ranks on one core read all weights four times.
TEST(PlanJob, RanksThatWouldSlowTheOthersIdleWhereThatIsMeasured) {
  topology::Machine machine = WithLatency(OneNode(1, 64 * kGiB, 4), absl::Milliseconds(1));
  EXPECT_THAT(Best(machine, Bard(), "").idle_ranks, IsEmpty());
  machine.topology.hosts[0].core_rates.origin = topology::Origin::kMeasured;
  const Plan plan = Best(machine, Bard(), "");
  EXPECT_EQ(plan.layout, (Layout{1, 1, 1}));
  EXPECT_THAT(plan.idle_ranks, ElementsAre(1, 2, 3));
  EXPECT_THAT(
      Reasons(plan),
      AllOf(HasSubstr("Ranks 1, 2, 3 idle: of all 4 the best would be tp=1,pp=1,dp=4, with "),
            HasSubstr(" tokens/s, where tp=1,pp=1,dp=1 has ")));
  EXPECT_EQ(Best(machine, Bard(), "dp=4").layout.dp_size, 4);
  // Beyond what is predicted to be gained.
  machine.topology.hosts[0].core_rates.spread = 5;
  EXPECT_THAT(Best(machine, Bard(), "").idle_ranks, IsEmpty());
}

// Hosts take turns, so that two replicas have both nodes' cores.
TEST(RanksOfReplicas, FewReplicasOnCoresAreFarApart) {
  const auto machine = Machine({{{"a", 2, kGiB}, 2}, {{"b", 2, kGiB}, 2}});
  const topology::Topology topology = topology::TopologyOf(machine);
  Placer placer(topology);
  const auto replicas = PlaceJob(machine, placer, 1, 1);
  EXPECT_THAT(RanksOfReplicas(machine, replicas, 2), ElementsAre(0, 2));
  EXPECT_THAT(RanksOfReplicas(machine, replicas, 3), ElementsAre(0, 2, 1));
  EXPECT_THAT(RanksOfReplicas(machine, replicas, 4), ElementsAre(0, 1, 2, 3));
}

topology::Machine Gpus(const topology::Topology& topology, int32_t count) {
  return *topology::MachineOf(topology, count);
}

TEST(PlanJob, ShardsAreNextToEachOther) {
  const topology::Topology pairs = *topology::MakePreset("dgx-1v");
  EXPECT_THAT(RanksOf(Best(Gpus(pairs, 8), Llama8B(), "tp=2,pp=1")),
              ElementsAre(0, 3, 1, 2, 4, 7, 5, 6));
}

TEST(PlanJob, OddNumbersOfGpusGetAPlan) {
  for (const int32_t count : {3, 5, 6, 7}) {
    topology::Topology topology = *topology::MakePreset("dgx-h100");
    topology::Interconnect& of = topology.hosts[0].interconnect;
    of.gpus.resize(count);
    of.connections.resize(count);
    for (auto& row : of.connections) row.resize(count);
    for (topology::Gpu& gpu : of.gpus) gpu.rates.origin = topology::Origin::kMeasured;
    Constraints constraints;
    constraints.goal.workload.concurrency = 1;
    constraints.goal.objective = Objective::kLatency;
    const Plan fast = Best(Gpus(topology, count), Llama8B(), "", constraints);
    // Four shards are faster than three stages, or than replicas that idle.
    EXPECT_EQ(fast.layout, (Layout{count < 4 ? 2 : 4, 1, 1}))
        << count << ": " << fast.layout.ToString();
    EXPECT_EQ(fast.job_size(), count);
    // None is behind a replica on each.
    const auto speed = [&](const std::string& asked) {
      return Best(Gpus(topology, count), Llama8B(), asked).prediction.output_tokens_per_s;
    };
    EXPECT_GE(speed(""), speed(absl::StrCat("dp=", count)) * 0.95) << count;
  }
}

// Of three ranks two are shards, which answer one stream sooner than three stages.
TEST(PlanJob, ALimitThatFewerRanksKeepIsKept) {
  const auto machine = WithLatency(OneNode(3, 64 * kGiB, 3), absl::Nanoseconds(100));
  Constraints constraints;
  constraints.goal.workload.concurrency = 1;
  const Plan all = Best(machine, Bard(), "", constraints);
  EXPECT_THAT(all.idle_ranks, IsEmpty());
  const absl::Duration least = Best(machine, Bard(), "tp=2", constraints).prediction.tpot;
  ASSERT_LT(least, 0.9 * all.prediction.tpot);
  constraints.goal.tpot_limit = 1.05 * least;
  const Plan plan = Best(machine, Bard(), "", constraints);
  EXPECT_LE(plan.prediction.tpot, *constraints.goal.tpot_limit);
  EXPECT_THAT(plan.idle_ranks, Not(IsEmpty()));
  EXPECT_THAT(Reasons(plan), AllOf(Not(HasSubstr("which the best does not keep")),
                                   HasSubstr(" ms, beyond its limit.")));
}

// As the coordinator's lock is held meanwhile.
TEST(PlanJob, ManyGpusAreSoonPlanned) {
  topology::Topology topology = *topology::MakePreset("dgx-h100", 8);
  for (topology::Host& host : topology.hosts) {
    for (topology::Gpu& gpu : host.interconnect.gpus)
      gpu.rates.origin = topology::Origin::kMeasured;
  }
  const absl::Time begin = absl::Now();
  EXPECT_EQ(Best(Gpus(topology, 64), Llama8B(), "").job_size(), 64);
  EXPECT_EQ(Best(OneNode(64, 64 * kGiB, 1024), Bard(), "").job_size(), 1024);
  EXPECT_LT(absl::Now() - begin, absl::Seconds(5));
  for (const auto& [nodes, seconds] : {std::pair{1, 1}, {8, 5}, {128, 10}}) {
    const topology::Topology measured = AsMeasured(*topology::MakePreset("dgx-h100", nodes));
    for (const bool limited : {false, true}) {
      Constraints constraints;
      if (limited) constraints.goal.tpot_limit = absl::Milliseconds(30);
      const absl::Time start = absl::Now();
      SKEIN_ASSERT_OK_AND_ASSIGN(
          const Planning planning,
          PlanJob(Gpus(measured, 8 * nodes),
                  {"llama3-70b", "/models/llama3-70b", "70b", model::Llama70B()}, constraints));
      EXPECT_LT(absl::Now() - start, absl::Seconds(seconds));
      const auto deep = std::find_if(planning.rejected.begin(), planning.rejected.end(),
                                     [](const RejectedLayout& of) {
                                       return of.layout.tp_size == 1 && of.layout.pp_size == 16;
                                     });
      ASSERT_EQ(deep != planning.rejected.end(), nodes > 1);
      if (nodes == 1) continue;
      EXPECT_EQ(deep->reason,
                "it was not looked at: 2 stages hold the model, and more than 8 seldom pay");
    }
  }
}

TEST(PlanJob, SlowCardsHaveFewerLayers) {
  topology::Topology mixed = *topology::MakePreset("pcie-4");
  topology::Gpu& slow = mixed.hosts[0].interconnect.gpus[1];
  slow.model = "a slower card";
  for (topology::ReadRate& rate : slow.rates.reads) {
    rate.alone_bytes_per_s /= 3;
    rate.together_bytes_per_s /= 3;
  }
  for (topology::ProductRate& rate : slow.rates.products) rate.operations_per_s /= 3;
  const Plan plan = Best(Gpus(mixed, 4), Llama8B(), "pp=4");
  const auto layers = [&](int32_t rank) { return plan.Find(rank)->layers.size(); };
  EXPECT_GT(layers(0), 2 * layers(1));
  EXPECT_LT(layers(0), 4 * layers(1));
  EXPECT_THAT(Reasons(plan), HasSubstr(" layers, by how fast each is: "));
  // Not by figures that may as well be off by as much.
  mixed.hosts[0].interconnect.gpus[1].rates.spread = 4;
  for (topology::Gpu& gpu : mixed.hosts[0].interconnect.gpus) {
    gpu.rates.origin = topology::Origin::kMeasured;
  }
  EXPECT_THAT(Reasons(Best(Gpus(mixed, 4), Llama8B(), "pp=4")), Not(HasSubstr(" layers, by how ")));
  // Alike ones are split by bytes, whatever differs a little.
  topology::Topology alike = *topology::MakePreset("pcie-4");
  for (topology::ReadRate& rate : alike.hosts[0].interconnect.gpus[1].rates.reads) {
    rate.alone_bytes_per_s *= 0.97;
  }
  const Plan even = Best(Gpus(alike, 4), Llama8B(), "pp=4");
  EXPECT_THAT(Reasons(even), Not(HasSubstr(" layers, by how fast ")));
  EXPECT_EQ(even.Find(0)->layers.size(), even.Find(1)->layers.size());
}

// A card with a third of the memory has a third of the layers, or nothing works.
TEST(PlanJob, SmallCardsHaveFewerLayers) {
  topology::Topology mixed = *topology::MakePreset("pcie-4");
  for (topology::Gpu& gpu : mixed.hosts[0].interconnect.gpus) gpu.memory_bytes = 10 * kGiB;
  mixed.hosts[0].interconnect.gpus[2].memory_bytes = 4 * kGiB;
  const Plan plan =
      Best(Gpus(mixed, 4), Llama8B(), "pp=4", {.context_length = 1024, .max_num_seqs = 4});
  EXPECT_THAT(Reasons(plan), HasSubstr(" layers: with "));
  EXPECT_LT(plan.Find(2)->layers.size(), plan.Find(1)->layers.size());
}

}  // namespace
}  // namespace skein::plan
