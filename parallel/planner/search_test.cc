#include "parallel/planner/search.h"

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/test_util.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "model/config/test_models.h"
#include "parallel/planner/cards_test_util.h"
#include "parallel/planner/search_test_util.h"
#include "topology/presets/presets.h"

namespace skein::plan {
namespace {

using model::Bard;
using model::Llama70B;
using model::Llama8B;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;
using topology::MakePreset;
using topology::Topology;

// A choice is one that could run: each layer once in each replica, no site twice, memory that fits.
void ExpectSound(const Topology& topology, const model::ModelConfig& model,
                 const SearchResult& result) {
  std::set<std::string> layouts;
  for (const Choice& choice : result.choices) {
    SCOPED_TRACE(choice.layout.ToString());
    EXPECT_TRUE(layouts.insert(choice.layout.ToString()).second);
    EXPECT_EQ(choice.replicas.size(), static_cast<size_t>(choice.layout.dp_size));
    EXPECT_LE(choice.needed_bytes, choice.usable_bytes);
    int64_t most_bytes = 0;
    ASSERT_EQ(choice.rank_bytes.size(), choice.replicas.size());
    for (const std::vector<int64_t>& of_replica : choice.rank_bytes) {
      EXPECT_EQ(of_replica.size(), static_cast<size_t>(choice.layout.pp_size));
      for (const int64_t bytes : of_replica) most_bytes = std::max(most_bytes, bytes);
    }
    EXPECT_GE(most_bytes, choice.needed_bytes);
    EXPECT_GT(choice.output_tokens_per_s, 0);
    EXPECT_GT(choice.cost.ttft, absl::ZeroDuration());
    EXPECT_GE(choice.cost.tpot, choice.cost.step);
    std::set<std::pair<int32_t, int32_t>> used;
    for (const cost::Replica& replica : choice.replicas) {
      EXPECT_EQ(replica.stages.size(), static_cast<size_t>(choice.layout.pp_size));
      int64_t layer = 0;
      for (const cost::Stage& stage : replica.stages) {
        EXPECT_EQ(stage.layers.begin, layer);
        EXPECT_GT(stage.layers.size(), 0);
        layer = stage.layers.end;
        EXPECT_EQ(stage.sites.size(), static_cast<size_t>(choice.layout.tp_size));
        for (const cost::Site& site : stage.sites) {
          ASSERT_LT(site.host, static_cast<int32_t>(topology.hosts.size()));
          if (site.gpu >= 0) EXPECT_TRUE(used.insert({site.host, site.gpu}).second);
        }
      }
      EXPECT_EQ(layer, model.num_layers);
    }
  }
}

// Machines as they are sold: what a 70B gets with many and with one request. With many, at most two
// shards exchange over PCIe, and stages go over the rest. One alone waits for each read of weights,
// so that shards pay even over PCIe: their sums are small (docs/adr/0038).
TEST(SearchTest, WhatA70BGetsOnEachPreset) {
  struct Case {
    std::string preset;
    std::string many, one;
    std::string why;
  };
  const std::vector<Case> cases = {
      {"dgx-1v", "tp=4,pp=2,dp=1", "tp=8,pp=1,dp=1", "NVLink connects four, a ring of it eight"},
      {"dgx-a100", "tp=4,pp=1,dp=2", "tp=8,pp=1,dp=1", "NVSwitch connects all"},
      {"dgx-h100", "tp=4,pp=1,dp=2", "tp=8,pp=1,dp=1", "NVSwitch connects all"},
      {"dgx-h200", "tp=4,pp=1,dp=2", "tp=8,pp=1,dp=1", "NVSwitch connects all"},
      {"pcie-4", "tp=2,pp=2,dp=1", "tp=4,pp=1,dp=1", "sums of four over PCIe cost more than hops"},
      {"pcie-4-bridged", "tp=2,pp=2,dp=1", "tp=4,pp=1,dp=1", "NVLink connects pairs"},
      {"pcie-8", "tp=2,pp=4,dp=1", "tp=8,pp=1,dp=1", "so do sums of four and eight"},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(absl::StrCat(c.preset, ": ", c.why));
    const Topology topology = *MakePreset(c.preset);
    const SearchResult many = Search(topology, Llama70B(), Task(256));
    ExpectSound(topology, Llama70B(), many);
    EXPECT_EQ(many.choices.front().layout.ToString(), c.many);
    EXPECT_EQ(Best(topology, Llama70B(), Task(1, Objective::kLatency)), c.one);
  }
}

TEST(SearchTest, SaysWhyA70BDoesNotGetOthers) {
  struct Case {
    std::string preset, layout;
    std::string why;
  };
  const std::vector<Case> cases = {
      {"dgx-1v", "tp=8,pp=1,dp=1", "exchanges take "},
      {"dgx-1v", "tp=1,pp=8,dp=1", "memory holds "},
      {"dgx-a100", "tp=4,pp=2,dp=1", "as good within 5%, and its replicas have 8 ranks, not 4"},
      {"dgx-h100", "tp=8,pp=1,dp=1", "exchanges take "},
      {"dgx-h200", "tp=2,pp=1,dp=4", "a rank goes through 50% of the weights a step, not 25%"},
      {"dgx-h200", "tp=2,pp=2,dp=2", "a rank goes through 50% of the weights a step, not 25%"},
      {"pcie-4", "tp=4,pp=1,dp=1", "exchanges take "},
      {"pcie-4-bridged", "tp=1,pp=3,dp=1", "one rank more helps"},
      {"pcie-4-bridged", "tp=1,pp=4,dp=1",
       "a rank goes through 100% of the weights a step, not 50%"},
      {"pcie-8", "tp=2,pp=3,dp=1", "2 ranks more help"},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(absl::StrCat(c.preset, ": ", c.layout));
    const SearchResult result = Search(*MakePreset(c.preset), Llama70B(), Task(256));
    const auto choice =
        std::find_if(result.choices.begin(), result.choices.end(),
                     [&](const Choice& of) { return of.layout.ToString() == c.layout; });
    ASSERT_NE(choice, result.choices.end());
    EXPECT_THAT(WhyItIsBehind(*choice, result.choices.front(), Task(256)), StartsWith(c.why));
  }
}

TEST(SearchTest, ShardsAreInsideAnIsland) {
  for (const Choice& choice : Search(*MakePreset("dgx-1v"), Llama70B(), Task(256)).choices) {
    if (choice.layout.tp_size != 4) continue;
    for (const cost::Stage& stage : choice.replicas[0].stages) {
      EXPECT_EQ(stage.sites.front().gpu / 4, stage.sites.back().gpu / 4);
    }
  }
}

TEST(SearchTest, ReplicasWhereTheModelFitsAndRequestsAreMany) {
  // So many that reading weights is shared by many rows anyway, without NVLink.
  EXPECT_EQ(Best(*MakePreset("pcie-4"), Llama8B(), Task(1024)), "tp=1,pp=1,dp=4");
  EXPECT_EQ(Best(*MakePreset("pcie-4", 2, "ethernet-10g"), Llama8B(), Task(2048)),
            "tp=1,pp=1,dp=8");
}

TEST(SearchTest, FewerRanksWhereMoreWouldBeSlower) {
  // Cores that exchange slowly: one does as well as two.
  Topology box;
  topology::Host& host = box.hosts.emplace_back();
  host = {.name = "box", .cores = 4, .memory_bytes = int64_t{64} << 30};
  host.core_rates.reads = {{int64_t{1} << 40, 10e9, 10e9}};
  host.core_rates.products = {{DType::kF32, 0, 1, 1e11}};
  host.links = {{topology::Path::kSelf, {.latency = absl::Milliseconds(5), .bytes_per_s = 1e9}}};
  SearchTask task = Task(1, Objective::kLatency);
  task.core_ranks = 4;
  const SearchResult slow = Search(box, Bard(), task);
  EXPECT_EQ(slow.choices.front().layout.ToString(), "tp=1,pp=1,dp=1");
  ExpectSound(box, Bard(), slow);
  // And all of them where exchanging costs next to nothing: a rank then reads its shard alone.
  host.links[0].second.latency = absl::Nanoseconds(10);
  host.core_rates.reads = {{1 << 23, 100e9, 100e9}, {(1 << 23) + 1, 10e9, 10e9}};
  EXPECT_EQ(Best(box, Bard(), task), "tp=4,pp=1,dp=1");
}

TEST(SearchTest, OddNumbersOfGpusGetARealPlan) {
  for (const int gpus : {3, 5, 6, 7}) {
    Topology topology = *MakePreset("dgx-h100");
    topology::Interconnect& of = topology.hosts[0].interconnect;
    of.nics.clear();
    of.gpus.resize(gpus);
    of.connections.resize(gpus);
    for (auto& row : of.connections) row.resize(gpus);
    for (const auto& model : {Llama8B(), Llama70B()}) {
      const SearchResult result = Search(topology, model, Task(256));
      ExpectSound(topology, model, result);
      const Choice& best = result.choices.front();
      EXPECT_GE(best.devices, gpus - 1) << best.layout.ToString();
    }
  }
}

// A quarter of the cards is half as fast: stages on them get fewer layers, replicas fewer requests.
TEST(SearchTest, UnlikeCardsGetTheirShare) {
  Topology topology = *MakePreset("pcie-4");
  topology::Gpu& slow = topology.hosts[0].interconnect.gpus[3];
  slow.model = "half";
  slow.rates.reads[0].alone_bytes_per_s /= 2;
  slow.rates.reads[0].together_bytes_per_s /= 2;
  SearchTask task = Task(64);
  task.layout = {.tp_size = 1, .pp_size = 4, .dp_size = 1};
  const Choice stages = Search(topology, Llama8B(), task).choices.front();
  const auto& of = stages.replicas[0].stages;
  EXPECT_LT(of[3].layers.size(), of[2].layers.size() * 0.6);
  task.layout = {.tp_size = 1, .pp_size = 1, .dp_size = 4};
  const Choice replicas = Search(topology, Llama8B(), task).choices.front();
  EXPECT_LT(replicas.replicas[3].sequences, replicas.replicas[0].sequences);
}

TEST(SearchTest, LimitsRuleLayoutsOut) {
  const Topology topology = *MakePreset("dgx-h100");
  SearchTask task = Task(256);
  const Choice free = Search(topology, Llama70B(), task).choices.front();
  task.layout.tp_size = 8;
  const Choice wide = Search(topology, Llama70B(), task).choices.front();
  task.layout = {};
  ASSERT_LT(wide.cost.ttft, 0.95 * free.cost.ttft);
  task.ttft_limit = wide.cost.ttft;
  const SearchResult limited = Search(topology, Llama70B(), task);
  EXPECT_LE(limited.choices.front().cost.ttft, *task.ttft_limit);
  EXPECT_TRUE(limited.choices.front().within_limits);
  EXPECT_FALSE(limited.choices.back().within_limits);
  EXPECT_THAT(WhyItIsBehind(limited.choices.back(), limited.choices.front(), task),
              HasSubstr("beyond its limit"));
  task.ttft_limit.reset();
  task.tpot_limit = absl::Nanoseconds(1);
  EXPECT_FALSE(Search(topology, Llama70B(), task).choices.front().within_limits);
}

// Requests that memory has no room for wait for whole answers of others.
TEST(SearchTest, WhoWaitsForAPlaceWaitsLong) {
  const SearchResult result = Search(*MakePreset("dgx-h100"), Llama70B(), Task(256));
  const auto ttft_of = [&](const Layout& layout) {
    const auto found = std::find_if(result.choices.begin(), result.choices.end(),
                                    [&](const Choice& choice) { return choice.layout == layout; });
    return found == result.choices.end() ? absl::ZeroDuration() : found->cost.ttft;
  };
  const absl::Duration with_room = ttft_of({4, 1, 2, 1});
  EXPECT_GT(with_room, absl::ZeroDuration());
  EXPECT_GT(ttft_of({2, 1, 4, 1}), 100 * with_room);
}

// What does not divide is dealt out: nobody asks for more than there is.
TEST(SearchTest, AlikeReplicasShareRequestsAsTheyAreDealt) {
  SearchTask task = Task(10);
  task.layout = {.tp_size = 1, .pp_size = 1, .dp_size = 4};
  const SearchResult result = Search(*MakePreset("pcie-4"), Llama8B(), task);
  ASSERT_EQ(result.choices.size(), 1u);
  std::vector<int32_t> sequences;
  for (const cost::Replica& replica : result.choices[0].replicas) {
    sequences.push_back(replica.sequences);
    EXPECT_EQ(replica.waiting, 0);
  }
  EXPECT_EQ(sequences, (std::vector<int32_t>{3, 3, 2, 2}));
}

// One that is better in all else comes behind it.
TEST(SearchTest, WhatIsBeyondALimitComesLast) {
  SearchTask task = Task(256);
  const Topology topology = *MakePreset("pcie-8");
  task.layout = {.tp_size = 4, .pp_size = 2};
  task.ttft_limit = Search(topology, Llama70B(), task).choices.front().cost.ttft;
  task.layout = {};
  const SearchResult result = Search(topology, Llama70B(), task);
  const Choice& best = result.choices.front();
  EXPECT_TRUE(best.within_limits);
  int better = 0;
  for (const Choice& choice : result.choices) {
    better += !choice.within_limits && choice.output_tokens_per_s > best.output_tokens_per_s;
  }
  EXPECT_GT(better, 0);
}

TEST(SearchTest, AnAnswerTakesItsFirstTokenAndTheOthers) {
  Choice choice;
  choice.cost.ttft = absl::Milliseconds(100);
  choice.cost.tpot = absl::Milliseconds(10);
  EXPECT_EQ(choice.AnswerTime({.output_tokens = 11}), absl::Milliseconds(200));
}

TEST(SearchTest, WhatIsAskedOfAReplicaReachesIt) {
  SearchTask task = Task(512);
  task.workload.prompt_tokens = 4096;
  task.layout = {.tp_size = 1, .pp_size = 1, .dp_size = 1};
  const Topology topology = *MakePreset("dgx-h100");
  const Choice free = Search(topology, Llama8B(), task).choices.front();
  task.max_num_seqs = 4;
  EXPECT_EQ(Search(topology, Llama8B(), task).choices.front().replicas[0].sequences, 4);
  task.max_num_seqs = 0;
  task.kv_dtype = KvDType::kInt8;  // half of the bytes: twice the sequences
  const Choice small = Search(topology, Llama8B(), task).choices.front();
  EXPECT_GT(small.replicas[0].sequences, 1.8 * free.replicas[0].sequences);
}

// As many as keep it, of each layout; one that cannot keep it with any has all.
TEST(SearchTest, ALimitOnTpotBoundsSequences) {
  SearchTask task = Task(256);
  task.layout = {.pp_size = 1, .dp_size = 1};
  const Topology topology = *MakePreset("pcie-4");
  const auto of_one = [&](const SearchTask& asked) {
    const SearchResult result = Search(topology, Llama8B(), asked);
    const auto found =
        std::find_if(result.choices.begin(), result.choices.end(),
                     [](const Choice& choice) { return choice.layout.tp_size == 1; });
    return found == result.choices.end() ? Choice() : *found;
  };
  const Choice free = of_one(task);
  task.max_num_seqs = free.replicas[0].sequences / 3;
  const Choice fewer = of_one(task);
  task.max_num_seqs = 0;
  task.tpot_limit = fewer.cost.tpot;
  const Choice kept = of_one(task);
  EXPECT_EQ(kept.replicas[0].sequences, fewer.replicas[0].sequences);
  EXPECT_TRUE(kept.within_limits);
  EXPECT_TRUE(kept.bounded);
  EXPECT_FALSE(fewer.bounded);
  EXPECT_EQ(kept.output_tokens_per_s, fewer.output_tokens_per_s);
  task.tpot_limit = absl::Nanoseconds(1);
  EXPECT_EQ(of_one(task).replicas[0].sequences, free.replicas[0].sequences);
  EXPECT_FALSE(of_one(task).within_limits);
}

// Exchanging costs next to nothing there.
Topology TwoCores() {
  Topology box;
  topology::Host& host = box.hosts.emplace_back();
  host = {.name = "box", .cores = 2, .memory_bytes = int64_t{64} << 30};
  host.core_rates.reads = {{int64_t{1} << 40, 10e9, 10e9}};
  host.core_rates.products = {{DType::kF32, 0, 1, 1e13}};
  host.links = {{topology::Path::kSelf, {.latency = absl::Nanoseconds(1), .bytes_per_s = 1e12}}};
  return box;
}

// Four stages of one sequence work one after the other: each has a core while it does, and what a
// rank of one stage and two threads takes is half of all theirs.
TEST(SearchTest, StagesThatIdleShareNoCores) {
  const Topology box = TwoCores();
  const auto tpot = [&](int32_t stages) {
    SearchTask task = Task(1);
    task.core_ranks = 4;
    task.layout = {.tp_size = 1, .pp_size = stages, .dp_size = 1};
    return Search(box, Bard(), task).choices.front().cost.tpot;
  };
  EXPECT_NEAR(absl::FDivDuration(tpot(4), tpot(1)), 2, 0.05);
}

// With experts apart what one shard would have of each one does not matter.
TEST(SearchTest, ExpertsApartAreJudgedAsSuch) {
  const Topology box = TwoCores();
  model::ModelConfig model = Bard();
  model.experts = {.count = 4, .chosen = 2, .intermediate_size = 97};
  SearchTask task = Task(4);
  task.layout = {.tp_size = 2, .pp_size = 1, .ep_size = 2};
  EXPECT_EQ(Best(box, model, task), "tp=2,pp=1,dp=1,ep=2");
}

// Replicas go where cores are idle, and each has those of the fullest host at least.
TEST(SearchTest, ReplicasOnCoresTakeTurnsOfHosts) {
  Topology two;
  topology::Host host = {.name = "a", .cores = 2, .memory_bytes = int64_t{64} << 30};
  host.core_rates.reads = {{int64_t{1} << 40, 10e9, 10e9}};
  host.core_rates.products = {{DType::kF32, 0, 1, 1e13}};
  host.links = {{topology::Path::kSelf, {.latency = absl::Nanoseconds(1), .bytes_per_s = 1e12}}};
  two.hosts = {host, host};
  two.hosts[1].name = "b";
  two.fabric.link.bytes_per_s = 1e9;
  const auto placed = [&](int32_t stages, int32_t replicas) {
    SearchTask task = Task(4);
    task.layout = {.tp_size = 1, .pp_size = stages, .dp_size = replicas};
    std::vector<std::pair<int32_t, int32_t>> hosts_and_threads;
    const SearchResult result = Search(two, Bard(), task);
    for (const cost::Replica& replica : result.choices.front().replicas) {
      const cost::Stage& stage = replica.stages.front();
      hosts_and_threads.emplace_back(stage.sites.front().host, stage.share.threads);
    }
    return hosts_and_threads;
  };
  using Placed = std::vector<std::pair<int32_t, int32_t>>;
  EXPECT_EQ(placed(1, 1), (Placed{{0, 2}}));
  EXPECT_EQ(placed(1, 2), (Placed{{0, 2}, {1, 2}}));
  EXPECT_EQ(placed(1, 3), (Placed{{0, 1}, {1, 1}, {0, 1}}));
  EXPECT_EQ(placed(2, 1), (Placed{{0, 1}}));
}

// The second card of three is slow, whose times are those of the whole.
TEST(SearchTest, TheSlowestReplicaTellsTheTimes) {
  Topology topology = *MakePreset("pcie-4");
  topology::DeviceRates& slow = topology.hosts[0].interconnect.gpus[1].rates;
  for (topology::ProductRate& product : slow.products) product.operations_per_s /= 4;
  SearchTask task = Task(8);
  task.layout = {.tp_size = 1, .pp_size = 1, .dp_size = 1};
  const Choice one = Search(topology, Llama8B(), task).choices.front();
  task.layout.dp_size = 3;
  const Choice three = Search(topology, Llama8B(), task).choices.front();
  EXPECT_GT(three.cost.prompt, 3 * one.cost.prompt);
}

// Who asks for replicas gets them, whatever load is planned for; of its own accord the search has
// none that would idle.
TEST(SearchTest, MoreReplicasThanRequestsAreThoseThatAreAskedFor) {
  const Topology topology = *MakePreset("pcie-4");
  SearchTask task = Task(2);
  for (const Choice& choice : Search(topology, Llama8B(), task).choices) {
    EXPECT_LE(choice.layout.dp_size, 2) << choice.layout.ToString();
  }
  task.layout = {.tp_size = 1, .pp_size = 1, .dp_size = 4};
  const std::vector<Choice> asked = Search(topology, Llama8B(), task).choices;
  ASSERT_EQ(asked.size(), 1);
  EXPECT_EQ(asked.front().layout.dp_size, 4);
  task.layout.dp_size = 5;
  SKEIN_ASSERT_OK_AND_ASSIGN(const SearchResult beyond, SearchLayouts(topology, Llama8B(), task));
  EXPECT_THAT(beyond.choices, IsEmpty());
}

// tp=4 gives a few percent more than tp=2, whose replicas are smaller; a few percent of noise in
// either's links change nothing.
TEST(SearchTest, LayoutsThatAreAlikeDoNotFlap) {
  for (const double noise : {0.98, 1.0, 1.02}) {
    Topology topology = *MakePreset("dgx-h100");
    topology.hosts[0].links[0].second.bytes_per_s *= noise;
    topology.hosts[0].links[0].second.latency *= noise;
    const SearchResult result = Search(topology, Llama8B(), Task(256));
    const Choice& best = result.choices.front();
    EXPECT_EQ(best.layout.ToString(), "tp=2,pp=1,dp=4");
    double most = 0;
    for (const Choice& choice : result.choices) most = std::max(most, choice.output_tokens_per_s);
    EXPECT_GT(most, best.output_tokens_per_s);
    EXPECT_LT(most * (1 - kAlike), best.output_tokens_per_s);
  }
}

// Hosts that are alike; that were measured, so that no two GPUs have quite the same rates; and of
// which one has a GPU that is slower than all others.
TEST(SearchTest, IsQuickAndSaysWhatItPruned) {
  struct Case {
    int32_t nodes;
    double seconds;
  };
  for (const Case& c : {Case{1, 1}, Case{8, 5}, Case{128, 10}}) {
    Topology alike = *MakePreset("dgx-h100", c.nodes);
    Topology measured = AsMeasured(alike);
    Topology one_slow = measured;
    Scale(one_slow.hosts.back().interconnect.gpus.back(), 0.7);
    for (const Topology* const topology : {&alike, &measured, &one_slow}) {
      const absl::Time begin = absl::Now();
      const SearchResult result = Search(*topology, Llama70B(), Task(64 * c.nodes));
      const double seconds = absl::ToDoubleSeconds(absl::Now() - begin);
      EXPECT_LT(seconds, c.seconds);
      EXPECT_GE(result.choices.size(), 10U);
      // One that is slow asks for numbers of replicas, too, of which there are many.
      EXPECT_EQ(result.pruned.empty(), c.nodes == 1);
      const bool large = c.nodes > 16;
      EXPECT_EQ(absl::StrContains(result.pruned, "of more than 8 stages"), c.nodes > 1);
      EXPECT_EQ(absl::StrContains(result.pruned, "hosts counted as others"),
                large && topology != &alike);
      EXPECT_EQ(absl::StrContains(result.pruned, "only some numbers"),
                c.nodes > 1 && topology == &one_slow);
    }
  }
}

}  // namespace
}  // namespace skein::plan
