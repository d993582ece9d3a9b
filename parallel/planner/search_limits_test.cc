// What the search does not plan, and why: what devices, memory and the task do not allow.
#include <algorithm>
#include <set>
#include <string>

#include "absl/time/time.h"
#include "base/test_util.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "model/config/test_models.h"
#include "parallel/planner/search.h"
#include "parallel/planner/search_test_util.h"
#include "topology/presets/presets.h"

namespace skein::plan {
namespace {

using model::Bard;
using model::Llama70B;
using model::Llama8B;
using ::testing::HasSubstr;
using topology::MakePreset;
using topology::Topology;

TEST(SearchLimitsTest, DeterministicAsksForShardsWhoseSumsAgree) {
  model::ModelConfig model = Llama8B();
  model.num_heads = model.num_kv_heads = 24;
  model.intermediate_size = 12288;
  const auto has_three = [&](bool deterministic) {
    SearchTask task = Task(8);
    task.deterministic = deterministic;
    const SearchResult result = Search(*MakePreset("dgx-h100"), model, task);
    return std::any_of(result.choices.begin(), result.choices.end(),
                       [](const Choice& choice) { return choice.layout.tp_size == 3; });
  };
  EXPECT_TRUE(has_three(false));
  EXPECT_FALSE(has_three(true));
}

// Three blocks of 256 quantised weights make no four shards.
TEST(SearchLimitsTest, BlocksOfQuantisedWeightsStayWhole) {
  Topology box;
  topology::Host& host = box.hosts.emplace_back();
  host = {.name = "box", .cores = 4, .memory_bytes = int64_t{8} << 30};
  host.core_rates.reads = {{int64_t{1} << 40, 10e9, 10e9}};
  host.core_rates.products = {{DType::kF32, 0, 1, 1e11}};
  host.links = {{topology::Path::kSelf, {.latency = absl::Nanoseconds(1), .bytes_per_s = 1e12}}};
  model::ModelConfig model = Bard();
  model.intermediate_size = 3 * 256;
  const auto sizes = [&] {
    std::set<int32_t> of;
    for (const Choice& choice : Search(box, model, Task(4)).choices) {
      of.insert(choice.layout.tp_size);
    }
    return of;
  };
  EXPECT_THAT(sizes(), testing::Contains(4));
  model.stored.matrices["model.layers.0.mlp.down_proj.weight"] = DType::kQ4_K;
  model.stored.mlp_block = 256;
  EXPECT_THAT(sizes(), testing::IsSubsetOf({1, 2, 3}));
  EXPECT_THAT(sizes(), testing::Contains(2));
  SearchTask four = Task(4);
  four.layout.tp_size = 4;
  SKEIN_ASSERT_OK_AND_ASSIGN(const SearchResult asked, SearchLayouts(box, model, four));
  EXPECT_TRUE(asked.choices.empty());
  ASSERT_FALSE(asked.rejected.empty());
  EXPECT_THAT(asked.rejected[0].reason, HasSubstr("3 blocks of 256 quantised weights"));
}

// As coordinators do, which are told of what is planned here.
TEST(SearchLimitsTest, WhatGpusCannotDoIsNotPlanned) {
  const Topology topology = *MakePreset("dgx-h100");
  SearchTask task = Task(1, Objective::kLatency);
  EXPECT_EQ(Best(topology, Llama8B(), task), "tp=8,pp=1,dp=1");
  task.deterministic = true;  // more than two would add by way of the hosts
  const SearchResult result = Search(topology, Llama8B(), task);
  EXPECT_LE(result.choices.front().layout.tp_size, 2);
  const auto eight = std::find_if(result.rejected.begin(), result.rejected.end(),
                                  [](const auto& of) { return of.layout.tp_size == 8; });
  ASSERT_NE(eight, result.rejected.end());
  EXPECT_THAT(eight->reason, HasSubstr("must be asked for by tp=8"));
  task.layout.tp_size = 8;
  const SearchResult asked = Search(topology, Llama8B(), task);
  EXPECT_EQ(asked.choices.front().layout.tp_size, 8);
  task.deterministic = false;
  const SearchResult over_nvlink = Search(topology, Llama8B(), task);
  // 64 sums: of 16 KiB by way of the hosts 41.2 us each, of 8 KiB over NVLink 3.1.
  EXPECT_NEAR(absl::ToDoubleMilliseconds(asked.choices.front().cost.tpot -
                                         over_nvlink.choices.front().cost.tpot),
              64 * 0.0381, 64 * 0.0005);
  task.deterministic = true;
  task.layout = {};
  model::ModelConfig narrow = Llama8B();
  narrow.intermediate_size = 14336 + 64;
  EXPECT_THAT(std::string(SearchLayouts(topology, narrow, task).status().message()),
              HasSubstr("a matrix of 14400 columns"));
  task = Task(1);
  task.kv_dtype = KvDType::kF32;
  EXPECT_THAT(std::string(SearchLayouts(topology, Llama8B(), task).status().message()),
              HasSubstr("GPUs keep keys and values in int8 or in bf16"));
}

TEST(SearchLimitsTest, RanksOnGpusTakeMemoryOfTheirHost) {
  Topology topology = *MakePreset("dgx-h100");
  SearchTask task = Task(1);
  task.layout = {.tp_size = 8, .pp_size = 1};
  topology.hosts[0].memory_bytes = 0;  // not told
  EXPECT_EQ(Best(topology, Llama8B(), task), "tp=8,pp=1,dp=1");
  topology.hosts[0].memory_bytes = int64_t{1} << 30;
  const absl::StatusOr<SearchResult> result = SearchLayouts(topology, Llama8B(), task);
  SKEIN_ASSERT_OK(result);
  EXPECT_TRUE(result->choices.empty());
  ASSERT_FALSE(result->rejected.empty());
  EXPECT_THAT(result->rejected[0].reason, HasSubstr("the ranks' processes would need "));
  // Fewer replicas fit, and ranks share a part.
  topology.hosts[0].memory_bytes = int64_t{4} << 30;
  task.layout = {.tp_size = 1, .pp_size = 1};
  task.workload.concurrency = 64;
  const SearchResult some = Search(topology, Llama8B(), task);
  const int32_t dp = some.choices.front().layout.dp_size;
  EXPECT_GT(dp, 1);
  EXPECT_LT(dp, 8);
  ASSERT_FALSE(some.rejected.empty());
  EXPECT_EQ(some.rejected[0].layout.dp_size, 8);
}

TEST(SearchLimitsTest, RanksOfAHostShareItsMemory) {
  Topology box;
  topology::Host& host = box.hosts.emplace_back();
  host = {.name = "box", .cores = 16, .memory_bytes = int64_t{500} << 20};
  host.core_rates.reads = {{int64_t{1} << 40, 10e9, 10e9}};
  host.core_rates.products = {{DType::kF32, 0, 1, 1e11}};
  host.links = {{topology::Path::kSelf, {.latency = absl::Nanoseconds(1), .bytes_per_s = 1e12}}};
  SearchTask task = Task(64);
  task.layout = {.tp_size = 1, .pp_size = 1};
  const SearchResult result = Search(box, Bard(), task);
  EXPECT_LT(result.choices.front().layout.dp_size,
            12);  // of 40 MiB for program and weights of each alone
  ASSERT_FALSE(result.rejected.empty());
  EXPECT_EQ(result.rejected[0].layout.dp_size, 16);
  EXPECT_THAT(result.rejected[0].reason, HasSubstr("a rank on host box would need"));
}

TEST(SearchLimitsTest, FixedPartsStayAndWhatCannotBeSaysWhy) {
  SearchTask task = Task(64);
  task.layout = {.tp_size = 2, .pp_size = 3};
  for (const Choice& choice : Search(*MakePreset("dgx-h100"), Llama70B(), task).choices) {
    EXPECT_EQ(choice.layout.tp_size, 2);
    EXPECT_EQ(choice.layout.pp_size, 3);
  }
  task.layout = {.tp_size = 16};  // over hosts, since it was asked for
  EXPECT_EQ(Best(*MakePreset("dgx-h100", 2), Llama70B(), task), "tp=16,pp=1,dp=1");
  task.layout = {.tp_size = 3};
  const absl::StatusOr<SearchResult> three =
      SearchLayouts(*MakePreset("dgx-h100"), Llama70B(), task);
  SKEIN_ASSERT_OK(three);
  EXPECT_TRUE(three->choices.empty());
  ASSERT_EQ(three->rejected.size(), 1U);
  EXPECT_THAT(three->rejected[0].reason, HasSubstr("64 heads cannot be split into 3"));
  task.layout = {};
  const absl::StatusOr<SearchResult> small = SearchLayouts(
      *MakePreset("pcie-4"),
      [] {
        model::ModelConfig model = Llama70B();
        model.num_layers = 160;
        return model;
      }(),
      task);
  SKEIN_ASSERT_OK(small);
  EXPECT_TRUE(small->choices.empty());
  std::string all;
  for (const RejectedLayout& rejected : small->rejected) all += rejected.reason + "\n";
  EXPECT_THAT(all, HasSubstr("GPU0 of host pcie-4 would need"));
  EXPECT_THAT(all, HasSubstr("memory has room for"));
}

TEST(SearchLimitsTest, MemoryBoundsSequences) {
  SearchTask task = Task(4096);
  task.workload.prompt_tokens = 7000;
  task.layout = {.tp_size = 1, .pp_size = 1, .dp_size = 1};
  const Choice choice = Search(*MakePreset("pcie-4"), Llama8B(), task).choices.front();
  // 1 MiB a token of 8 is left for 128 KiB each: 24 GiB hold some 27 of 7,256 tokens.
  EXPECT_GT(choice.replicas[0].sequences, 15);
  EXPECT_LT(choice.replicas[0].sequences, 30);
}

TEST(SearchLimitsTest, WhatMakesNoSenseIsRefused) {
  const Topology topology = *MakePreset("pcie-4");
  const auto refusal = [&](const SearchTask& task) {
    const auto result = SearchLayouts(topology, Llama8B(), task);
    EXPECT_EQ(result.status().code(), absl::StatusCode::kInvalidArgument);
    return std::string(result.status().message());
  };
  EXPECT_THAT(refusal(Task(-1)), HasSubstr("-1 requests at once"));
  SearchTask task = Task(1);
  task.workload.prompt_tokens = 8192;
  EXPECT_THAT(refusal(task), HasSubstr("do not fit into a context of 8192"));
  task = Task(1);
  task.context_length = 9000;
  EXPECT_THAT(refusal(task), HasSubstr("a context of 9000 tokens cannot be"));
  Topology bare = topology;
  bare.hosts[0].links.clear();
  EXPECT_THAT(std::string(SearchLayouts(bare, Llama8B(), Task(1)).status().message()),
              HasSubstr("--like=PRESET"));
}

}  // namespace
}  // namespace skein::plan
