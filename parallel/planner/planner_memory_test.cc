// How the planner divides memory into weights and pages, and what it refuses for lack of it.
#include <string>
#include <vector>

#include "base/test_util.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "parallel/planner/kv_memory.h"
#include "parallel/planner/memory.h"
#include "parallel/planner/planner.h"
#include "parallel/planner/planner_test_util.h"

namespace skein::plan {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;

// Pages of 16 tokens of the 8B's 32 layers: 8 KV heads, a key and a value of 128 each.
constexpr int64_t kPageBytes = int64_t{32} * 16 * 8 * 2 * 128 * 4;

TEST(PlanJob, GivesPagesWhatSequencesNeedAndMemoryHas) {
  const auto machine = OneNode(8, 80 * kGiB, 1);
  const auto plan_of = [&](const Constraints& constraints) {
    return PlanJob(machine, Llama8B(), constraints)->plans[0];
  };
  const Plan all = plan_of({});
  EXPECT_EQ(all.pages, 16 * 512);
  EXPECT_EQ(all.ranks[0].kv_bytes, all.pages * kPageBytes);
  // All that is there, and of the host's memory as well.
  EXPECT_NEAR(all.ranks[0].memory_bytes,
              all.ranks[0].weight_bytes + all.ranks[0].kv_bytes + ((80 + 24) << 20), 1 << 20);
  EXPECT_EQ(all.ranks[0].host_bytes, all.ranks[0].memory_bytes);
  EXPECT_THAT(Reasons(all), HasSubstr("16 sequences of 8192 tokens have room at the same time."));
  // 8.03e9 parameters in bf16; 256 rows of 65,536 floats, and 32 of 4,096 and the vocabulary.
  EXPECT_THAT(Reasons(all), HasSubstr(": weights 14.96 GiB, KV 32.00 GiB, buffers 80.2 MiB, "
                                      "programs 24.0 MiB."));
  EXPECT_EQ(plan_of({{}, 100, 3}).pages, 3 * 7);

  // More sequences than have room at their full length, as asked.
  const Plan many = plan_of({{}, 0, 100});
  EXPECT_EQ(many.max_num_seqs, 100);
  EXPECT_GT(many.pages, all.pages);
  EXPECT_LT(many.pages, 100 * 512);
  ExpectFilled(many, 70 * kGiB);

  Constraints narrow{{}, 0, 100};
  narrow.kv_dtype = KvDType::kBF16;
  const Plan half = plan_of(narrow);
  EXPECT_EQ(half.kv_dtype, KvDType::kBF16);
  EXPECT_EQ(half.ranks[0].kv_bytes, half.pages * kPageBytes / 2);
  EXPECT_NEAR(half.pages, 2 * many.pages, 1);
  narrow.kv_dtype = KvDType::kInt8;
  const Plan quarter = plan_of(narrow);
  EXPECT_EQ(quarter.pages, 100 * 512);
  EXPECT_EQ(quarter.ranks[0].kv_bytes, quarter.pages * (kPageBytes / 4 / 128 * 132));
}

// A window of 1024 positions, one step's 256 rows and where a page begins: 81 pages of 16.
TEST(PlanJob, GivesWindowsThePagesThatSequencesHold) {
  const auto machine = OneNode(8, 80 * kGiB, 1);
  ModelFacts model = Llama8B();
  model.config.windows.assign(model.config.num_layers, 1024);
  const Plan all = PlanJob(machine, model, {})->plans[0];
  EXPECT_EQ(all.pages, 16 * 81);
  EXPECT_EQ(all.max_num_batched_tokens, 256);
  EXPECT_THAT(Reasons(all), HasSubstr("16 sequences of 8192 tokens have room at the same time."));
  SKEIN_EXPECT_OK(ValidatePlan(all, model.config));

  // 256 pages have no room for one sequence that keeps all of them.
  Constraints small;
  small.kv_memory.bytes_per_rank = 256 * kPageBytes;
  EXPECT_EQ(PlanJob(machine, model, small)->plans[0].pages, 256);
  EXPECT_THAT(PlanJob(machine, Llama8B(), small).status().message(),
              HasSubstr("1 sequence of 8192 tokens needs 512"));

  // So does one that no context reaches the end of.
  model.config.windows.assign(model.config.num_layers, 8192);
  EXPECT_EQ(PlanJob(machine, model, {})->plans[0].pages, 16 * 512);

  // A layer that attends to all positions keeps all pages.
  model.config.windows.assign(model.config.num_layers, 1024);
  model.config.windows.back() = 0;
  EXPECT_EQ(PlanJob(machine, model, {})->plans[0].pages, 16 * 512);
}

// Weights, caches and buffers are in a device's own memory; programs, and what is swapped out, in
// the node's.
TEST(PlanJob, CountsTheMemoryOfDevicesThatHaveTheirOwn) {
  topology::Machine machine = OneNode(8, 20 * kGiB, 2);
  for (topology::Device& device : machine.devices) {
    device.name = "accelerator";
    device.memory_bytes = 80 * kGiB;
  }
  Constraints constraints;
  SKEIN_ASSERT_OK_AND_ASSIGN(constraints.layout, ParseLayoutRequest("tp=1,pp=1"));
  const auto plan = [&] { return PlanJob(machine, Llama8B(), constraints); };
  SKEIN_ASSERT_OK_AND_ASSIGN(const Planning both, plan());
  EXPECT_EQ(both.plans[0].pages, 16 * 512);
  EXPECT_EQ(both.plans[0].ranks[1].device, machine.devices[1]);
  EXPECT_THAT(Reasons(both.plans[0]),
              HasSubstr("the device of rank 0 (accelerator), the fullest, needs 47.04 GiB of "
                        "80.00 GiB: weights 14.96 GiB, KV 32.00 GiB, buffers 80.2 MiB, programs "
                        "0 B."));

  // The smaller one decides how many pages every rank has.
  machine.devices[1].memory_bytes = 40 * kGiB;
  SKEIN_ASSERT_OK_AND_ASSIGN(const Planning less, plan());
  EXPECT_LT(less.plans[0].pages, 16 * 512);
  EXPECT_LE(less.plans[0].ranks[0].kv_bytes + (15 * kGiB), 35 * kGiB);
  EXPECT_THAT(Reasons(less.plans[0]), HasSubstr("the device of rank 1 (accelerator), the fullest"));

  constraints.swap_memory_bytes = 9 * kGiB;  // of each rank, in 17.5 GiB
  EXPECT_THAT(plan().status().message(), HasSubstr("node alpha would need 18.04 GiB"));
  constraints.swap_memory_bytes = 8 * kGiB;
  SKEIN_EXPECT_OK(plan());
  machine.devices[1].memory_bytes = 10 * kGiB;
  EXPECT_THAT(plan().status().message(),
              HasSubstr("the device of rank 1 (accelerator) would need"));
}

// A GPU's memory is what was free as its rank reported: another process may have the rest.
TEST(PlanJob, PlansGpusWithTheirContextAndWhatIsFree) {
  topology::Machine machine = OneNode(16, 64 * kGiB, 1);
  topology::Device& gpu = machine.devices[0];
  gpu.kind = DeviceKind::kCuda;
  gpu.name = "H200";
  gpu.memory_bytes = 139 * kGiB;
  const auto plan = [&] { return PlanJob(machine, Llama8B(), {{}, 0, 256}); };
  SKEIN_ASSERT_OK_AND_ASSIGN(const Planning alone, plan());
  EXPECT_THAT(
      Reasons(alone.plans[0]),
      ContainsRegex("the device of rank 0 \\(H200\\), the fullest, needs 121.* of 139.00 GiB: "
                    "weights 14.96 GiB, KV 10.*, buffers .*, context 556.0 MiB, "
                    "graphs 1.\\.. MiB, programs 0 B"));
  const RankPlan& rank = alone.plans[0].ranks[0];
  // With the buffers of 256 sequences it is all that may be taken.
  constexpr int64_t kContext = int64_t{556} << 20;
  EXPECT_LE(rank.weight_bytes + rank.kv_bytes + kContext, 139 * kGiB / 8 * 7);
  EXPECT_GT(rank.memory_bytes, rank.weight_bytes + rank.kv_bytes + kContext);
  EXPECT_LE(rank.memory_bytes, 139 * kGiB / 8 * 7);
  EXPECT_GT(rank.host_bytes, kDriverBytes + kProcessBytes);
  EXPECT_LT(rank.host_bytes, 2 * (kDriverBytes + kProcessBytes));
  EXPECT_GT(rank.weight_bytes + rank.kv_bytes + kContext, 139 * kGiB / 8 * 7 - kGiB);
  gpu.memory_bytes = 20 * kGiB;
  SKEIN_ASSERT_OK_AND_ASSIGN(const Planning beside, plan());
  EXPECT_LE(beside.plans[0].ranks[0].kv_bytes + rank.weight_bytes + kContext, 20 * kGiB / 8 * 7);
  gpu.memory_bytes = 17 * kGiB;
  EXPECT_THAT(plan().status(),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("the device of rank 0 (H200) would need"),
                             HasSubstr("and has 14.88 GiB to use (7/8 of 17.00 GiB free)"))));
}

TEST(PlanJob, CountsWhatGpusExchangeByAndWhatTheirHostsPin) {
  topology::Machine machine = OneNode(16, 64 * kGiB, 2);
  for (topology::Device& gpu : machine.devices) {
    gpu = {.kind = DeviceKind::kCuda, .name = "H200", .memory_bytes = 40 * kGiB, .nccl = true};
  }
  Constraints constraints{.max_num_seqs = 256};
  constraints.layout.tp_size = 2;
  const auto plan = [&] { return PlanJob(machine, Llama8B(), constraints); };
  SKEIN_ASSERT_OK_AND_ASSIGN(const Planning over_nccl, plan());
  EXPECT_THAT(Reasons(over_nccl.plans[0]), HasSubstr(", exchange 1.09 GiB, programs"));
  machine.devices[0].nccl = machine.devices[1].nccl = false;
  SKEIN_ASSERT_OK_AND_ASSIGN(const Planning by_host, plan());
  EXPECT_THAT(Reasons(by_host.plans[0]), Not(HasSubstr("exchange")));
  const int64_t page = over_nccl.plans[0].ranks[0].kv_bytes / over_nccl.plans[0].pages;
  EXPECT_NEAR(static_cast<double>((by_host.plans[0].pages - over_nccl.plans[0].pages) * page),
              1116 << 20, static_cast<double>(page));
  // Sums over peer memory have a buffer on each, where the two are on one host.
  machine.devices[0].nccl = machine.devices[1].nccl = true;
  machine.devices[0].peers = machine.devices[1].peers = true;
  SKEIN_ASSERT_OK_AND_ASSIGN(const Planning over_memory, plan());
  EXPECT_THAT(Reasons(over_memory.plans[0]), HasSubstr(", exchange 1.10 GiB, programs"));
  machine.nodes.push_back(machine.nodes[0]);
  machine.nodes[1].host = "beta";
  machine.devices[1].node = 1;
  SKEIN_ASSERT_OK_AND_ASSIGN(const Planning between_hosts, plan());
  EXPECT_THAT(Reasons(between_hosts.plans[0]), HasSubstr(", exchange 1.09 GiB, programs"));
  machine.nodes.pop_back();
  machine.devices[1].node = 0;
  // 110 MiB are pinned, 711 the driver's, 396 NCCL's and 18 the process's, each, of 7/8 of what is
  // free.
  machine.nodes[0].memory_bytes = (int64_t{2471} << 20) / 7 * 8 + 8;
  SKEIN_EXPECT_OK(plan());
  machine.nodes[0].memory_bytes -= 2 << 20;
  EXPECT_THAT(plan().status(), StatusIs(absl::StatusCode::kFailedPrecondition,
                                        HasSubstr("node alpha would need 2.41 GiB")));
}

TEST(PlanJob, TakesAskedKvMemory) {
  struct Case {
    const char* layout;
    const char* kv_memory;
    KvDType dtype;
    int64_t pages;
  };
  const Case cases[] = {
      {"pp=1", "8GiB", KvDType::kF32, 2048},       {"pp=1", "8GiB", KvDType::kBF16, 4096},
      {"pp=1", "8GiB", KvDType::kInt8, 7943},      {"tp=2", "8GiB", KvDType::kF32, 4096},
      {"pp=2", "8GiB", KvDType::kF32, 3855},        // the first stage has 17 of 32 layers
      {"pp=1", "2050MiB", KvDType::kF32, 512},      // just one context, whatever 16 sequences need
      {"tp=2,pp=3", "8GiB", KvDType::kF32, 10922},  // the first stage has 12 layers
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(std::string(c.layout) + ", " + c.kv_memory);
    Constraints constraints{.kv_dtype = c.dtype};
    SKEIN_ASSERT_OK_AND_ASSIGN(constraints.layout, ParseLayoutRequest(c.layout));
    SKEIN_ASSERT_OK_AND_ASSIGN(constraints.kv_memory, ParseKvMemory(c.kv_memory));
    const int32_t ranks =
        constraints.layout.tp_size.value_or(1) * constraints.layout.pp_size.value_or(1);
    SKEIN_ASSERT_OK_AND_ASSIGN(const Planning planning,
                               PlanJob(OneNode(8, 160 * kGiB, ranks), Llama8B(), constraints));
    const Plan& plan = planning.plans[0];
    SKEIN_EXPECT_OK(ValidatePlan(plan, Llama8B().config));
    EXPECT_EQ(plan.pages, c.pages);
    EXPECT_THAT(Reasons(plan), HasSubstr("GiB per rank, as asked. 16 sequences of 8192 tokens"));
  }
}

TEST(PlanJob, TakesAPartOfTheMemoryThatIsLeft) {
  // Two nodes of different size: the fuller one decides, since all ranks have as many pages.
  const auto machine = Machine({{{"big", 8, 80 * kGiB}, 1}, {{"small", 8, 40 * kGiB}, 1}});
  const auto plan_of = [&](double fraction, int64_t swap_memory_bytes) {
    Constraints constraints{.kv_memory = {.fraction = fraction},
                            .swap_memory_bytes = swap_memory_bytes};
    return PlanJob(machine, Llama8B(), constraints)->plans[0];
  };
  const Plan whole = plan_of(1, 0);
  const RankPlan& small = whole.ranks[1];
  const int64_t left = 35 * kGiB - small.weight_bytes;
  EXPECT_LE(small.kv_bytes, left);
  EXPECT_GT(small.kv_bytes, left - kSlackBytes);
  EXPECT_EQ(whole.ranks[0].kv_bytes, small.kv_bytes);
  EXPECT_EQ(whole.swap_pages, 0);
  EXPECT_NEAR(plan_of(0.5, 0).pages, whole.pages / 2, 1);
  EXPECT_NEAR(plan_of(0.25, 0).pages, whole.pages / 4, 1);
  EXPECT_THAT(Reasons(plan_of(0.25, 0)), HasSubstr("0.25 of the memory that is left, as asked."));
  // What is swapped to is taken off first.
  const Plan swapping = plan_of(1, 4 * kGiB + 5);
  EXPECT_EQ(swapping.swap_pages, 1024);
  EXPECT_EQ(swapping.pages, whole.pages - 1024);
  EXPECT_NEAR(plan_of(0.5, 4 * kGiB).pages, swapping.pages / 2, 1);
}

TEST(PlanJob, RefusesKvMemoryThatCannotBe) {
  struct Case {
    const char* kv_memory;
    int64_t swap_memory_bytes;
    std::vector<std::string> words;
  };
  const Case cases[] = {
      {"1GiB",
       0,
       {"KV caches of 1.00 GiB per rank have 256 pages of 16 tokens",
        "1 sequence of 8192 tokens needs 512, 2.00 GiB per rank"}},
      {"0.01", 0, {"KV caches of 0.01 of the memory that is left have 1", "needs 512"}},
      {"1B", 0, {"have 0 pages"}},
      {"100GiB",
       0,
       {"node alpha would need 11", "for 25600 pages, 100.00 GiB per rank and has 70.00 GiB",
        "pages would fit, 54."}},
      {"", 1 << 20, {"swap memory of 1.0 MiB per rank has no room for one page of 4.0 MiB"}},
      {"0.5",
       100 * kGiB,
       {"for 1 sequence of 8192 tokens and 25600 pages to swap to", "not even a short context"}},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.kv_memory);
    Constraints constraints{.swap_memory_bytes = c.swap_memory_bytes};
    SKEIN_ASSERT_OK_AND_ASSIGN(constraints.kv_memory, ParseKvMemory(c.kv_memory));
    const absl::Status status = PlanJob(OneNode(8, 80 * kGiB, 1), Llama8B(), constraints).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    for (const std::string& word : c.words) {
      EXPECT_THAT(std::string(status.message()), HasSubstr(word));
    }
  }
}

TEST(PlanJob, RefusesWhatMemoryCannotHold) {
  struct Case {
    const char* asked;
    topology::Machine machine;
    std::vector<std::string> words;
  };
  const Case cases[] = {
      {"",
       OneNode(8, 8 * kGiB, 8),
       {"no layout works for llama3-8b on 8 ranks", "node alpha would need ", "8.00 GiB free",
        "not even a short context would fit"}},
      {"tp=1,pp=1",
       OneNode(8, 24 * kGiB, 4),
       {"layout tp=1,pp=1 does not work for llama3-8b on 4 ranks",
        "\n  tp=1,pp=1,dp=4: node alpha would need ",
        "Nearest that work: tp=4,pp=1,dp=1; tp=2,pp=2,dp=1; tp=1,pp=4,dp=1"}},
      {"dp=2",
       Machine({{{"big", 8, 64 * kGiB}, 1}, {{"tiny", 8, 2 * kGiB}, 1}}),
       {"node tiny would need "}},
      {"", OneNode(8, 18 * kGiB, 2), {"one sequence with a context of "}},
  };
  for (const Case& c : cases) {
    Constraints constraints;
    SKEIN_ASSERT_OK_AND_ASSIGN(constraints.layout, ParseLayoutRequest(c.asked));
    const absl::Status status = PlanJob(c.machine, Llama8B(), constraints).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    for (const std::string& word : c.words) {
      EXPECT_THAT(std::string(status.message()), HasSubstr(word));
    }
  }
}

// What a refusal says would fit does.
TEST(PlanJob, SuggestedContextFits) {
  const auto machine = OneNode(8, 18 * kGiB, 2);
  const std::string message(PlanJob(machine, Llama8B(), {}).status().message());
  const std::string words = "one sequence with a context of ";
  const size_t at = message.find(words);
  ASSERT_NE(at, std::string::npos) << message;
  const int64_t context = std::stoll(message.substr(at + words.size()));
  SKEIN_EXPECT_OK(PlanJob(machine, Llama8B(), {{}, context, 0}));
  EXPECT_THAT(PlanJob(machine, Llama8B(), {{}, context + 16, 0}).status(),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("would fit")));
}

}  // namespace
}  // namespace skein::plan
