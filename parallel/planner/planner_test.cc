#include "parallel/planner/planner.h"

#include <cmath>
#include <string>
#include <vector>

#include "base/test_util.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "parallel/planner/planner_test_util.h"

namespace skein::plan {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

TEST(PlanJob, IsDeterministic) {
  const auto machine = Machine({{{"a", 8, 32 * kGiB}, 7}, {{"b", 3, 16 * kGiB}, 5}});
  SKEIN_ASSERT_OK_AND_ASSIGN(const Planning one, PlanJob(machine, Bard(), {}));
  SKEIN_ASSERT_OK_AND_ASSIGN(const Planning two, PlanJob(machine, Bard(), {}));
  EXPECT_EQ(one.plans, two.plans);
  ExpectSound(one, Bard(), 12);
}

TEST(PlanJob, AskedLayoutOverrides) {
  struct Case {
    const char* asked;
    Layout want;
  };
  const Case cases[] = {
      // Eight replicas on two cores would put each other's weights out of caches.
      {"tp=1", {1, 2, 4}},           {"tp=4", {4, 1, 2}},      {"pp=8", {1, 8, 1}},
      {"tp=2,pp=2", {2, 2, 2}},      {"tp=4,pp=2", {4, 2, 1}}, {"tp=1,pp=4", {1, 4, 2}},
      {"tp=2,pp=2,dp=2", {2, 2, 2}}, {"tp=2,dp=1", {2, 4, 1}}, {"pp=1,dp=8", {1, 1, 8}},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.asked);
    SKEIN_ASSERT_OK_AND_ASSIGN(const LayoutRequest request, ParseLayoutRequest(c.asked));
    SKEIN_ASSERT_OK_AND_ASSIGN(const Planning planning,
                               PlanJob(OneNode(2, 64 * kGiB, 8), Bard(), {request}));
    ExpectSound(planning, Bard(), 8);
    EXPECT_EQ(planning.plans[0].layout, c.want) << planning.plans[0].layout.ToString();
    EXPECT_THAT(Reasons(planning.plans[0]), HasSubstr(std::string(c.asked) + " was asked for"));
  }
}

TEST(PlanJob, RefusesWhatDoesNotDivideAndNamesTheNearest) {
  struct Case {
    const char* asked;
    int32_t ranks;
    std::vector<std::string> words;
  };
  const Case cases[] = {
      {"tp=5", 5, {"tp=5", "4 heads", "5 shards", "tp=1,pp=5,dp=1", "tp=1,pp=1,dp=5"}},
      {"tp=8", 8, {"4 heads", "8 shards", "Nearest that work: tp=4,pp=1,dp=2; tp=4,pp=2,dp=1"}},
      {"pp=9", 9, {"9 stages of 8 layers", "tp=1,pp=3,dp=3"}},
      {"pp=9",
       8,
       {"9 stages of 8 layers", "pp=9 needs at least 9 ranks; the job has 8", "tp=1,pp=8,dp=1"}},
      {"tp=3,pp=9", 27, {"3 shards", "9 stages of 8 layers"}},
      {"tp=2,pp=2,dp=3", 8, {"needs 12 ranks; the job has 8", "tp=2,pp=2,dp=2"}},
      {"tp=2,pp=2,dp=1", 8, {"needs 4 ranks; the job has 8", "tp=2,pp=2,dp=2"}},
      {"tp=2,pp=1,dp=1", 3, {"needs 2 ranks; the job has 3", "tp=1,pp=1,dp=3"}},
      {"tp=1024,pp=1024,dp=1024", 2, {"needs 1073741824 ranks", "Nearest that work: "}},
  };
  for (const Case& c : cases) {
    SKEIN_ASSERT_OK_AND_ASSIGN(const LayoutRequest request, ParseLayoutRequest(c.asked));
    const absl::Status status = PlanJob(OneNode(2, 64 * kGiB, c.ranks), Bard(), {request}).status();
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kFailedPrecondition,
                                 StartsWith("layout " + std::string(c.asked) +
                                            " does not work for bard on ")));
    for (const std::string& word : c.words) {
      EXPECT_THAT(std::string(status.message()), HasSubstr(word));
    }
  }
}

// With experts apart what one shard would have of each one does not matter.
TEST(PlanJob, ExpertsApartAreJudgedAsSuch) {
  ModelFacts model = Bard();
  model.config.experts = {.count = 4, .chosen = 2, .intermediate_size = 97};
  const LayoutRequest apart = {.tp_size = 2, .ep_size = 2};
  const auto machine = OneNode(2, 64 * kGiB, 2);
  SKEIN_ASSERT_OK_AND_ASSIGN(const Planning planning, PlanJob(machine, model, {apart}));
  EXPECT_EQ(planning.plans.front().layout, (Layout{2, 1, 1, 2}));
  EXPECT_THAT(Reasons(planning.plans.front()), HasSubstr("tp=2,ep=2 was asked for"));
  SKEIN_EXPECT_OK(ValidatePlan(planning.plans.front(), model.config));
  const auto refused = PlanJob(machine, model, {LayoutRequest{.tp_size = 2}}).status();
  EXPECT_THAT(std::string(refused.message()), HasSubstr("an expert's inner dimension of 97"));
  const auto dense = PlanJob(machine, Bard(), {LayoutRequest{.ep_size = 2}}).status();
  EXPECT_THAT(std::string(dense.message()), HasSubstr("ep=2: the model has no experts"));
}

TEST(PlanJob, OddShardsSayThatTheySumInTheirOwnOrder) {
  ModelFacts model = Bard();
  model.config.num_heads = 6;
  model.config.num_kv_heads = 6;
  for (const int32_t ranks : {3, 6}) {
    SKEIN_ASSERT_OK_AND_ASSIGN(const Planning planning,
                               PlanJob(OneNode(8, 64 * kGiB, ranks), model, {{ranks, {}, {}}}));
    EXPECT_EQ(planning.plans[0].layout.tp_size, ranks);
    EXPECT_THAT(Reasons(planning.plans[0]), HasSubstr("may differ in the last bits"));
  }
  SKEIN_ASSERT_OK_AND_ASSIGN(const Planning planning,
                             PlanJob(OneNode(8, 64 * kGiB, 2), model, {{2, {}, {}}}));
  EXPECT_THAT(Reasons(planning.plans[0]), Not(HasSubstr("last bits")));
}

TEST(PlanJob, KeepsShardsOfAStageOnOneNodeUnlessAsked) {
  const auto machine = Machine({{{"a", 4, 64 * kGiB}, 2}, {{"b", 4, 64 * kGiB}, 2}});
  SKEIN_ASSERT_OK_AND_ASSIGN(const Planning planning, PlanJob(machine, Bard(), {}));
  EXPECT_EQ(planning.plans[0].layout, (Layout{1, 1, 4}));  // as on one node
  for (const Plan& plan : planning.plans) {
    for (const RankPlan& rank : plan.ranks) {
      const int32_t first = plan.PlaceOf(rank.dp_rank, rank.pp_rank, /*tp_rank=*/0);
      EXPECT_EQ(rank.device.node, plan.ranks[first].device.node) << plan.layout.ToString();
    }
  }
  // Where shards are asked for, they are those of a node.
  SKEIN_ASSERT_OK_AND_ASSIGN(const Planning pairs, PlanJob(machine, Bard(), {{2, 1, {}}}));
  EXPECT_EQ(pairs.plans[0].layout, (Layout{2, 1, 2}));
  EXPECT_EQ(pairs.plans[0].ranks[1].device.node, 0);
  EXPECT_EQ(pairs.plans[0].ranks[2].device.node, 1);
  EXPECT_THAT(planning.rejected,
              Contains(AllOf(testing::Field(&RejectedLayout::layout, Layout{4, 1, 1}),
                             testing::Field(&RejectedLayout::reason, HasSubstr("a and b")))));

  SKEIN_ASSERT_OK_AND_ASSIGN(const Planning asked, PlanJob(machine, Bard(), {{4, {}, {}}}));
  EXPECT_EQ(asked.plans[0].layout, (Layout{4, 1, 1}));
  EXPECT_THAT(Reasons(asked.plans[0]), HasSubstr("spread over nodes a and b, as asked"));
  // Where pp and dp leave tp no choice, it was asked for.
  SKEIN_ASSERT_OK_AND_ASSIGN(const Planning implied, PlanJob(machine, Bard(), {{{}, 1, 1}}));
  EXPECT_EQ(implied.plans[0].layout, (Layout{4, 1, 1}));
}

TEST(PlanJob, UnequalNodesGetTheirOwnThreadsAndMemory) {
  const auto machine = Machine({{{"big", 12, 64 * kGiB}, 2}, {{"small", 2, 8 * kGiB}, 2}});
  SKEIN_ASSERT_OK_AND_ASSIGN(const Planning planning, PlanJob(machine, Bard(), {{2, {}, {}}}));
  const Plan& plan = planning.plans[0];
  EXPECT_EQ(plan.layout, (Layout{2, 1, 2}));
  EXPECT_EQ(plan.ranks[0].threads, 6);
  EXPECT_EQ(plan.ranks[3].threads, 1);
  EXPECT_THAT(Reasons(plan), AllOf(HasSubstr("Node big has 12 cores for 2 ranks: 6 threads each"),
                                   HasSubstr("Node small has 2 cores for 2 ranks: 1 thread each"),
                                   HasSubstr("node small, the fullest")));
}

TEST(PlanJob, SaysWhereMemoryAsksForStages) {
  // 16 GiB of weights a copy: two copies fit into 64 GiB, four do not.
  SKEIN_ASSERT_OK_AND_ASSIGN(const Planning planning,
                             PlanJob(OneNode(1, 64 * kGiB, 4), Llama8B(), {{1, {}, 2}}));
  const Plan& plan = planning.plans[0];
  EXPECT_EQ(plan.layout, (Layout{1, 2, 2}));
  EXPECT_THAT(Reasons(plan), HasSubstr("memory asks for stages. With tp=1,pp=1,dp=4 node alpha"));
  EXPECT_EQ(plan.micro_batches, 2);
  EXPECT_EQ(plan.max_num_seqs, 16);
  EXPECT_LT(plan.pages * plan.page_size, 16 * plan.context_length);
  EXPECT_THAT(Reasons(plan), HasSubstr("memory has no room for more. 16 sequences of 8192 tokens "
                                       "need 8192 if all grow"));
  ExpectFilled(plan, 56 * kGiB);
}

TEST(PlanJob, StepsHaveAMicroBatchForEveryStage) {
  struct Case {
    const char* layout;
    int32_t sequences;
    int64_t asked;
    int64_t max_num_batched_tokens;
    int32_t rows, want_sequences;
  };
  const Case cases[] = {
      {"pp=1", 0, 0, 256, 256, 16},
      {"pp=4", 0, 0, 1024, 256, 16},
      {"pp=1", 1000, 0, 1000, 1000, 1000},
      {"pp=2", 1000, 0, 1000, 500, 1000},
      {"pp=1", 0, 64, 64, 64, 16},
      {"pp=3", 0, 100, 100, 34, 16},
      {"pp=2", 0, 5, 5, 3, 5},
      {"pp=1", 7, 7, 7, 7, 7},
      {"pp=8", 0, 4096, 4096, 512, 16},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(testing::Message() << c.layout << ", steps of " << c.asked);
    Constraints constraints{.max_num_seqs = c.sequences, .max_num_batched_tokens = c.asked};
    SKEIN_ASSERT_OK_AND_ASSIGN(constraints.layout, ParseLayoutRequest(c.layout));
    const int32_t ranks = *constraints.layout.pp_size;
    SKEIN_ASSERT_OK_AND_ASSIGN(const Planning planning,
                               PlanJob(OneNode(8, 64 * kGiB, ranks), Bard(), constraints));
    const Plan& plan = planning.plans[0];
    SKEIN_EXPECT_OK(ValidatePlan(plan, Bard().config));
    EXPECT_EQ(plan.max_num_batched_tokens, c.max_num_batched_tokens);
    EXPECT_EQ(plan.max_micro_batch_rows, c.rows);
    EXPECT_EQ(plan.max_num_seqs, c.want_sequences);
  }
}

// Bard reads the weights of a stage in some 0.1 to 1 ms. More micro-batches pay where hops take
// longer, and only where they make the largest of them smaller.
TEST(PlanJob, SlowHopsAskForMoreMicroBatches) {
  struct Case {
    const char* layout;
    int32_t sequences;
    int32_t fast, slow;
    const char* reason;  // of the slow one
  };
  const Case cases[] = {
      {"pp=1", 16, 1, 1, ""},
      {"pp=2", 16, 2, 3,
       "3 micro-batches of decodes, one more than stages, to hide their hops: a step would take "},
      {"pp=4", 20, 4, 5, "5 micro-batches of decodes, one more than stages, to hide their hops"},
      {"pp=8", 72, 8, 9, "9 micro-batches of decodes, one more than stages, to hide their hops"},
      {"pp=4", 16, 4, 4, "4 micro-batches of decodes, one for each stage"},  // of 4, or of 4 and 3
      {"pp=4", 5, 4, 5, "5 micro-batches"},
      {"pp=4", 4, 4, 4, "one for each stage, so that all stages work at the same time."},
      {"pp=4", 3, 3, 3, "with 3 of them some of the 4 stages idle"},
      {"pp=8", 1, 1, 1, "with 1 of them some of the 8 stages idle"},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(testing::Message() << c.layout << ", " << c.sequences << " sequences");
    Constraints constraints{.max_num_seqs = c.sequences};
    SKEIN_ASSERT_OK_AND_ASSIGN(constraints.layout, ParseLayoutRequest(c.layout));
    const int32_t ranks =
        constraints.layout.tp_size.value_or(1) * constraints.layout.pp_size.value_or(1);
    constraints.goal.workload.concurrency = c.sequences;
    const topology::Machine machine = OneNode(8, 64 * kGiB, ranks);
    SKEIN_ASSERT_OK_AND_ASSIGN(
        const Planning fast,
        PlanJob(WithLatency(machine, absl::Nanoseconds(100)), Bard(), constraints));
    SKEIN_ASSERT_OK_AND_ASSIGN(
        const Planning slow,
        PlanJob(WithLatency(machine, absl::Milliseconds(10)), Bard(), constraints));
    ExpectSound(fast, Bard(), ranks);
    ExpectSound(slow, Bard(), ranks);
    EXPECT_EQ(fast.plans[0].micro_batches, c.fast);
    EXPECT_EQ(slow.plans[0].micro_batches, c.slow);
    EXPECT_THAT(Reasons(slow.plans[0]), HasSubstr(c.reason));
    // They take no memory, and leave steps as long as they were.
    Plan same = slow.plans[0];
    same.micro_batches = fast.plans[0].micro_batches;
    same.reasons = fast.plans[0].reasons;
    same.prediction = fast.plans[0].prediction;
    EXPECT_EQ(same, fast.plans[0]);
  }
}

TEST(PlanJob, HopsBetweenHostsGoOverTheFabric) {
  Constraints constraints;
  SKEIN_ASSERT_OK_AND_ASSIGN(constraints.layout, ParseLayoutRequest("pp=2"));
  auto machine = WithLatency(Machine({{{"a", 4, 64 * kGiB}, 1}, {{"b", 4, 64 * kGiB}, 1}}),
                             absl::Nanoseconds(100));
  const auto micro_batches = [&](absl::Duration latency) {
    machine.topology.fabric.link = {.latency = latency, .bytes_per_s = 1e10};
    return PlanJob(machine, Bard(), constraints)->plans[0].micro_batches;
  };
  EXPECT_EQ(micro_batches(absl::Nanoseconds(100)), 2);
  EXPECT_EQ(micro_batches(absl::Milliseconds(10)), 3);
}

TEST(PlanJob, TakesAskedSequencesAndContext) {
  SKEIN_ASSERT_OK_AND_ASSIGN(const Planning planning,
                             PlanJob(OneNode(2, 64 * kGiB, 2), Bard(), {{}, 100, 300}));
  const Plan& plan = planning.plans[0];
  EXPECT_EQ(plan.context_length, 100);
  EXPECT_EQ(plan.max_num_seqs, 300);
  EXPECT_EQ(plan.pages, 300 * 7);
  EXPECT_EQ(plan.max_micro_batch_rows, 300);  // a step takes every sequence
}

TEST(PlanJob, RefusesSenselessInput) {
  topology::Machine stray = OneNode(2, kGiB, 1);
  stray.devices[0].node = 1;
  struct Case {
    topology::Machine machine;
    Constraints constraints;
    const char* words;
  };
  const Case cases[] = {
      {{}, {}, "a job of 0 ranks"},
      {OneNode(2, kGiB, 1025), {}, "a job of 1025 ranks"},
      {stray, {}, "node 1 of a machine with 1"},
      {OneNode(0, kGiB, 1), {}, "0 cores"},
      {OneNode(2, -1, 1), {}, "-1 bytes"},
      {OneNode(2, kGiB, 1), {{}, 1025, 0}, "bard takes 1 to 1024"},
      {OneNode(2, kGiB, 1), {{}, -1, 0}, "a context of -1"},
      {OneNode(2, kGiB, 1), {{}, 0, -1}, "-1 sequences"},
      {OneNode(2, kGiB, 1), {{}, 0, 5000}, "5000 sequences"},
      {OneNode(2, kGiB, 1), {.kv_memory = {-0.1, 0}}, "a KV memory of -0.1"},
      {OneNode(2, kGiB, 1), {.kv_memory = {1.1, 0}}, "a KV memory of 1.1"},
      {OneNode(2, kGiB, 1), {.kv_memory = {NAN, 0}}, "a KV memory of nan"},
      {OneNode(2, kGiB, 1), {.kv_memory = {0.5, 5}}, "a KV memory of 0.5 of a node and 5 bytes"},
      {OneNode(2, kGiB, 1), {.kv_memory = {0, -1}}, "-1 bytes"},
      {OneNode(2, kGiB, 1), {.kv_memory = {0, kMaxRankBytes + 1}}, "one of a fraction and bytes"},
      {OneNode(2, kGiB, 1), {.swap_memory_bytes = -1}, "a swap memory of -1"},
      {OneNode(2, kGiB, 1), {.max_num_batched_tokens = -1}, "steps of -1"},
      {OneNode(2, kGiB, 1),
       {.goal = {.workload = {.prompt_tokens = 0}}},
       "1 requests at once, of 0 and 256 tokens"},
      {OneNode(2, kGiB, 1),
       {.goal = {.workload = {.output_tokens = int64_t{1} << 31}}},
       "of 512 and 2147483648 tokens"},
      {OneNode(2, kGiB, 1), {.max_num_batched_tokens = 1 << 21}, "steps of 2097152"},
      {OneNode(2, kGiB, 1),
       {.max_num_seqs = 9, .max_num_batched_tokens = 8},
       "each of 9 sequences needs one"},
  };
  for (const Case& c : cases) {
    EXPECT_THAT(PlanJob(c.machine, Bard(), c.constraints).status(),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(c.words)));
  }
}

TEST(PlanJob, HopsHaveTheDTypeThatIsAsked) {
  const topology::Machine machine = OneNode(8, 64 * kGiB, 2);
  const auto plan = [&](DType dtype, int32_t pp_size) {
    return PlanJob(machine, Bard(), {.layout = {.pp_size = pp_size}, .hop_dtype = dtype})
        ->plans.front();
  };
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    EXPECT_EQ(plan(dtype, 2).hop_dtype, dtype);
    EXPECT_THAT(plan(dtype, 2).reasons, Contains(HasSubstr("last bits")));
    EXPECT_THAT(plan(dtype, 1).reasons, Not(Contains(HasSubstr("last bits"))));
  }
  EXPECT_EQ(plan(DType::kF32, 2).hop_dtype, DType::kF32);
  EXPECT_THAT(plan(DType::kF32, 2).reasons, Not(Contains(HasSubstr("last bits"))));
}

TEST(PlanJob, PlansForGpus) {
  topology::Machine machine = OneNode(8, 64 * kGiB, 2);
  for (topology::Device& device : machine.devices) {
    device.kind = DeviceKind::kCuda;
    device.memory_bytes = 16 * kGiB;
  }
  SKEIN_ASSERT_OK_AND_ASSIGN(const Planning planning, PlanJob(machine, Bard(), {}));
  EXPECT_EQ(planning.plans.front().kv_dtype, KvDType::kBF16);
  EXPECT_EQ(planning.plans.front().hop_dtype, DType::kBF16);
  // A step of a GPU has room for prompts beside many streams.
  EXPECT_EQ(planning.plans.front().max_num_seqs, 256);
  EXPECT_EQ(planning.plans.front().max_num_batched_tokens, 2048);
  EXPECT_EQ(PlanJob(machine, Bard(), {.max_num_batched_tokens = 100})->plans[0].max_num_seqs, 100);
  // They round nothing more than the devices do anyway.
  EXPECT_THAT(planning.plans.front().reasons, Not(Contains(HasSubstr("last bits"))));
  SKEIN_ASSERT_OK_AND_ASSIGN(const Planning narrow,
                             PlanJob(machine, Bard(), {.kv_dtype = KvDType::kInt8}));
  EXPECT_EQ(narrow.plans.front().kv_dtype, KvDType::kInt8);
  EXPECT_THAT(PlanJob(machine, Bard(), {.kv_dtype = KvDType::kF32}).status(),
              StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("--kv-dtype=f32")));
  EXPECT_THAT(PlanJob(machine, Bard(), {.hop_dtype = DType::kF16}).status(),
              StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("--hop-dtype=f16")));
  // A model of f16 is computed in f16.
  ModelFacts half = Bard();
  half.config.dtype = DType::kF16;
  SKEIN_ASSERT_OK_AND_ASSIGN(const Planning of_half, PlanJob(machine, half, {}));
  EXPECT_EQ(of_half.plans.front().kv_dtype, KvDType::kF16);
  EXPECT_EQ(of_half.plans.front().hop_dtype, DType::kF16);
  EXPECT_EQ(PlanJob(machine, half, {.kv_dtype = KvDType::kInt8})->plans[0].kv_dtype,
            KvDType::kInt8);
  EXPECT_THAT(PlanJob(machine, half, {.kv_dtype = KvDType::kBF16}).status(),
              StatusIs(absl::StatusCode::kUnimplemented,
                       AllOf(HasSubstr("--kv-dtype=bf16"), HasSubstr("its weights are F16"))));
  EXPECT_THAT(PlanJob(machine, Bard(), {.kv_dtype = KvDType::kF16}).status(),
              StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("--kv-dtype=f16")));
  machine.devices[0].kind = DeviceKind::kCpu;
  EXPECT_THAT(PlanJob(machine, Bard(), {}).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("devices of one kind")));
}

TEST(PlanJob, PlansDeterministicJobs) {
  topology::Machine machine = OneNode(8, 64 * kGiB, 3);
  ModelFacts model = Bard();
  model.config.num_heads = model.config.num_kv_heads = 6;
  model.config.head_dim = 64;
  EXPECT_EQ(PlanJob(machine, model, {{3, {}, {}}})->plans[0].layout.tp_size, 3);
  EXPECT_FALSE(PlanJob(machine, model, {})->plans[0].deterministic);
  SKEIN_ASSERT_OK_AND_ASSIGN(const Planning planning,
                             PlanJob(machine, model, {.deterministic = true}));
  EXPECT_TRUE(planning.plans[0].deterministic);
  EXPECT_EQ(planning.plans[0].layout.tp_size, 1);
  EXPECT_THAT(PlanJob(machine, model, {.layout = {.tp_size = 3}, .deterministic = true}).status(),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("--deterministic asks")));

  // Hops that round would show where a pipeline is cut.
  EXPECT_THAT(
      PlanJob(machine, model, {.hop_dtype = DType::kBF16, .deterministic = true}).status(),
      StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("--hop-dtype=bf16 rounds")));

  // On GPUs columns are added in 8 blocks of 16, or of multiples.
  model.config.intermediate_size = 1000;
  SKEIN_EXPECT_OK(PlanJob(machine, model, {.deterministic = true}).status());
  for (topology::Device& device : machine.devices) {
    device.kind = DeviceKind::kCuda;
    device.memory_bytes = 16 * kGiB;
  }
  EXPECT_THAT(PlanJob(machine, model, {.deterministic = true}).status(),
              StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("1000 columns")));
  SKEIN_EXPECT_OK(PlanJob(machine, model, {}).status());
}

TEST(PlanJob, MoreThanTwoDeterministicGpusAddOnlyWhereTheyAreAskedTo) {
  topology::Machine machine = OneNode(8, 64 * kGiB, 4);
  for (topology::Device& device : machine.devices) {
    device.kind = DeviceKind::kCuda;
    device.memory_bytes = 16 * kGiB;
  }
  const auto tp = [&](const Constraints& constraints) {
    return PlanJob(machine, Llama8B(), constraints)->plans[0].layout.tp_size;
  };
  // One stream of a large model gains by each shard, over NVLink.
  topology::Host& host = machine.topology.hosts.emplace_back();
  host.interconnect.gpus.resize(4);
  for (size_t i = 0; i < 4; ++i) {
    host.interconnect.connections.emplace_back(
        4, topology::Connection{topology::Path::kNvlink, 12})[i] = {};
  }
  const Goal one_stream = {.workload = {.concurrency = 1}, .objective = Objective::kLatency};
  EXPECT_EQ(tp({.context_length = 1024, .goal = one_stream}), 4);
  EXPECT_EQ(tp({.context_length = 1024, .deterministic = true, .goal = one_stream}), 2);
  EXPECT_EQ(tp({.layout = {.tp_size = 4}, .deterministic = true}), 4);
}

}  // namespace
}  // namespace skein::plan
