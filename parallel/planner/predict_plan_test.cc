#include "parallel/planner/predict_plan.h"

#include "absl/time/time.h"
#include "base/test_util.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "parallel/planner/planner.h"
#include "parallel/planner/planner_test_util.h"
#include "topology/machine.h"

namespace skein::plan {
namespace {

using ::testing::HasSubstr;

// One rank on one core, which reads 10 GB/s and multiplies in no time.
class PredictStepTest : public ::testing::Test {
 protected:
  absl::Duration Step(const StepMeans& means) {
    const absl::StatusOr<absl::Duration> step = PredictStep(
        machine_, topology::TopologyOf(machine_), model_.config, plan_, /*dp_rank=*/0, means);
    SKEIN_EXPECT_OK(step.status());
    return step.value_or(absl::ZeroDuration());
  }
  absl::Duration Step(double sequences, double context) {
    return Step({.decodes = sequences, .context = context});
  }

  const ModelFacts model_ = Bard();
  const topology::Machine machine_ = WithLatency(OneNode(1, 8 * kGiB, 1), absl::Microseconds(1));
  const Plan plan_ = PlanJob(machine_, model_, {})->plans.front();
};

TEST_F(PredictStepTest, AStepReadsWeightsAndWhatItsSequencesHold) {
  const double seconds = absl::ToDoubleSeconds(Step(4, 100));
  const double weights = static_cast<double>(plan_.ranks[0].weight_bytes) / 10e9;
  EXPECT_GT(seconds, 0.9 * weights);  // an embedding is looked up, not read
  EXPECT_LT(seconds, 1.5 * weights);
  // Keys and values in f32.
  const model::ModelConfig& of = model_.config;
  const auto token = static_cast<double>(of.num_layers * of.num_kv_heads * of.head_dim * 2 * 4);
  EXPECT_NEAR(absl::ToDoubleSeconds(Step(4, 300) - Step(4, 100)), 4 * 200 * token / 10e9, 1e-8);
}

TEST_F(PredictStepTest, AsManySequencesRunAsPagesHold) {
  Plan plan = plan_;
  plan.page_size = 16;
  plan.pages = 160;
  plan.max_num_batched_tokens = 64;
  model::ModelConfig model = model_.config;
  const auto sequences_of = [&] {
    return ReplicaOfPlan(machine_, topology::TopologyOf(machine_), model, plan, 0, {700, 100, 16})
        .sequences;
  };
  EXPECT_EQ(sequences_of(), 3);  // of 50 pages
  model.windows.assign(model.num_layers, 65);
  EXPECT_EQ(sequences_of(), 16);  // 64 positions and a step's rows: 9 pages at the most
}

TEST_F(PredictStepTest, MeansAreBetweenWholeNumbers) {
  EXPECT_GT(Step(3, 50), Step(2, 50));
  EXPECT_LE(absl::AbsDuration(Step(2.5, 50) - (Step(2, 50) + Step(3, 50)) / 2),
            absl::Nanoseconds(1));
  EXPECT_EQ(Step(0.5, 50), Step(1, 50));
}

TEST_F(PredictStepTest, ThePlansLimitsHold) {
  const topology::Topology topology = topology::TopologyOf(machine_);
  const auto asks = [&](const StepMeans& means) {
    return PredictStep(machine_, topology, model_.config, plan_, 0, means).status();
  };
  const auto asked = [&](double sequences, double context) {
    return asks({.decodes = sequences, .context = context});
  };
  const double most = plan_.max_num_seqs;
  const auto longest = static_cast<double>(plan_.context_length);
  SKEIN_EXPECT_OK(asked(most, longest));
  EXPECT_THAT(asked(most + 0.6, longest),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("the plan is of no ")));
  EXPECT_THAT(asked(1, longest + 1),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("the plan is of no ")));
  const double rows = plan_.max_num_batched_tokens;
  SKEIN_EXPECT_OK(asks({.prompts = most, .prompt_rows = rows, .prompt_context = longest}));
  for (const StepMeans& means :
       {StepMeans{.prompts = 1, .prompt_rows = rows + 1},
        StepMeans{.prompts = most + 1, .prompt_rows = rows},
        StepMeans{.decodes = most, .prompts = 1, .prompt_rows = 2},
        StepMeans{.prompts = 1, .prompt_rows = 2, .prompt_context = longest + 1}}) {
    EXPECT_THAT(asks(means),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("the plan is of no ")));
  }
}

// What a prompt has takes no time here but for its keys and values; it is read with the weights.
TEST_F(PredictStepTest, PromptsAreComputedBesideDecodes) {
  const StepMeans beside = {
      .decodes = 4, .context = 100, .prompts = 2, .prompt_rows = 64, .prompt_context = 50};
  const model::ModelConfig& of = model_.config;
  const auto token = static_cast<double>(of.num_layers * of.num_kv_heads * of.head_dim * 2 * 4);
  EXPECT_GT(Step(beside), Step(4, 100));
  StepMeans longer = beside;
  longer.prompt_context += 100;
  EXPECT_NEAR(absl::ToDoubleSeconds(Step(longer) - Step(beside)), 2 * 100 * token / 10e9, 1e-8);
  // Means are between whole numbers.
  StepMeans more = beside, half = beside;
  more.decodes = 5;
  half.decodes = 4.5;
  EXPECT_LE(absl::AbsDuration(Step(half) - (Step(beside) + Step(more)) / 2), absl::Nanoseconds(1));
  half.decodes = 0;
  EXPECT_LT(Step(half), Step(beside));
}

// Replicas without a request leave their core to the others.
TEST(ReplicaOfPlanTest, IdleReplicasTakeNoCores) {
  const ModelFacts model = Bard();
  const topology::Machine machine = WithLatency(OneNode(1, 8 * kGiB, 2), absl::Microseconds(1));
  const Plan plan = PlanJob(machine, model, {.layout = {.tp_size = 1, .pp_size = 1, .dp_size = 2}})
                        ->plans.front();
  const auto share = [&](int64_t concurrency) {
    return ReplicaOfPlan(machine, topology::TopologyOf(machine), model.config, plan, 0,
                         {.prompt_tokens = 8, .output_tokens = 8, .concurrency = concurrency})
        .stages[0]
        .share;
  };
  EXPECT_EQ(share(1).of_a_core, 1);
  EXPECT_EQ(share(1).sets, 1);
  EXPECT_EQ(share(2).of_a_core, 0.5);
  EXPECT_EQ(share(2).sets, 2);
}

TEST(ReplicaOfPlanTest, DeterministicShardsAddFloats) {
  const ModelFacts model = Llama8B();
  topology::Machine machine = OneNode(8, 64 * kGiB, 4);
  for (topology::Device& device : machine.devices) {
    device.kind = DeviceKind::kCuda;
    device.memory_bytes = 80 * kGiB;
    device.nccl = true;
  }
  const auto replica = [&](int32_t tp, bool deterministic) {
    const auto planning = PlanJob(machine, model,
                                  {.layout = {.tp_size = tp, .pp_size = 1, .dp_size = 4 / tp},
                                   .deterministic = deterministic});
    SKEIN_EXPECT_OK(planning.status());
    return ReplicaOfPlan(machine, topology::TopologyOf(machine), model.config,
                         planning->plans.front(), 0, {});
  };
  EXPECT_EQ(replica(4, false).sums, DType::kBF16);
  EXPECT_FALSE(replica(4, false).sums_by_hosts);
  EXPECT_EQ(replica(4, true).sums, DType::kF32);
  EXPECT_TRUE(replica(4, true).sums_by_hosts);
  EXPECT_EQ(replica(2, true).sums, DType::kF32);
  EXPECT_FALSE(replica(2, true).sums_by_hosts);
}

TEST(ReplicaOfPlanTest, HopsAreOfThePlan) {
  const ModelFacts model = Bard();
  const topology::Machine machine = WithLatency(OneNode(2, 8 * kGiB, 2), absl::Microseconds(1));
  const auto hops = [&](const Constraints& constraints) {
    const Plan plan = PlanJob(machine, model, constraints)->plans.front();
    return ReplicaOfPlan(machine, topology::TopologyOf(machine), model.config, plan, 0, {}).hops;
  };
  EXPECT_EQ(hops({.layout = {.pp_size = 2}}), DType::kF32);
  EXPECT_EQ(hops({.layout = {.pp_size = 2}, .hop_dtype = DType::kBF16}), DType::kBF16);
}

// As the scheduler cuts them: two for each of several stages.
TEST(ReplicaOfPlanTest, PromptsAreCutForStages) {
  const ModelFacts model = Bard();
  const topology::Machine machine = WithLatency(OneNode(2, 8 * kGiB, 2), absl::Microseconds(1));
  for (const int32_t pp : {1, 2}) {
    const Plan plan =
        PlanJob(machine, model, {.layout = {.tp_size = 1, .pp_size = pp}})->plans.front();
    EXPECT_EQ(ReplicaOfPlan(machine, topology::TopologyOf(machine), model.config, plan, 0, {})
                  .prompt_pieces,
              pp == 1 ? 1 : 4);
  }
}

// Micro-batches of unlike means, of stages whose pages are fewer than what all sequences may have.
TEST(PredictStepOfStagesTest, MeansAreBetweenWholeNumbers) {
  const ModelFacts model = Bard();
  const topology::Machine machine = WithLatency(OneNode(2, 8 * kGiB, 2), absl::Microseconds(1));
  Plan plan = PlanJob(machine, model, {.layout = {.pp_size = 2}})->plans.front();
  plan.pages = plan.max_num_seqs;
  const topology::Topology topology = topology::TopologyOf(machine);
  const auto step = [&](double sequences) {
    return *PredictStep(machine, topology, model.config, plan, 0,
                        {.decodes = sequences, .context = 50});
  };
  EXPECT_GT(step(8), step(4));
  EXPECT_LE(absl::AbsDuration(step(4.5) - (step(4) + step(5)) / 2), absl::Nanoseconds(1));
}

TEST(PredictStepOfStagesTest, ShareByShareWithWhatWasBefore) {
  const ModelFacts model = Bard();
  const topology::Machine machine = WithLatency(OneNode(2, 8 * kGiB, 2), absl::Microseconds(1));
  const Plan plan = PlanJob(machine, model, {.layout = {.pp_size = 2}})->plans.front();
  const topology::Topology topology = topology::TopologyOf(machine);
  const auto step = [&](double behind_nothing, double behind_decodes) {
    return *PredictStep(machine, topology, model.config, plan, 0,
                        {.decodes = 2,
                         .context = 50,
                         .prompts = 1,
                         .prompt_rows = 256,
                         .prompt_context = 128,
                         .behind_nothing = behind_nothing,
                         .behind_decodes = behind_decodes});
  };
  EXPECT_GT(step(1, 0), step(0, 1));
  EXPECT_GT(step(0, 1), step(0, 0));
  EXPECT_LE(absl::AbsDuration(step(0.5, 0.25) -
                              (0.5 * step(1, 0) + 0.25 * step(0, 1) + 0.25 * step(0, 0))),
            absl::Nanoseconds(1));
}

// A token of a request that is alone takes a step.
TEST_F(PredictStepTest, PredictionsOfPlansAgree) {
  const cost::Workload alone = {.prompt_tokens = 64, .output_tokens = 32, .concurrency = 1};
  const topology::Topology topology = topology::TopologyOf(machine_);
  SKEIN_ASSERT_OK_AND_ASSIGN(
      const Standing standing,
      PredictPlan(machine_, topology, HostKinds(topology), model_.config, plan_, alone));
  EXPECT_EQ(Step(1, 80), standing.cost.tpot);
}

// The worst of all hosts is told.
TEST(PredictionOfTest, SpreadIsThatOfWhatWasMeasured) {
  topology::Topology topology;
  topology.hosts.resize(2);
  for (topology::Host& host : topology.hosts) host.core_rates.origin = topology::Origin::kMeasured;
  topology.fabric.link.origin = topology::Origin::kMeasured;
  topology.hosts[0].core_rates.spread = 0.03;
  topology.hosts[1].core_rates.spread = 0.07;
  const Prediction measured = PredictionOf(topology, {}, {});
  EXPECT_TRUE(measured.measured);
  EXPECT_EQ(measured.spread, 0.07);
  topology.hosts[0].core_rates.origin = topology::Origin::kModelled;
  EXPECT_FALSE(PredictionOf(topology, {}, {}).measured);
  EXPECT_EQ(PredictionOf(topology, {}, {}).spread, 0);
  // Of each GPU, where ranks compute on these.
  for (topology::Host& host : topology.hosts) {
    host.interconnect.gpus.resize(2);
    for (topology::Gpu& gpu : host.interconnect.gpus) {
      gpu.rates = {.origin = topology::Origin::kMeasured, .spread = 0.01};
    }
  }
  topology.hosts[1].interconnect.gpus[1].rates.spread = 0.02;
  EXPECT_EQ(PredictionOf(topology, {}, {}).spread, 0.02);
  topology.hosts[1].interconnect.gpus[1].rates.origin = topology::Origin::kModelled;
  EXPECT_FALSE(PredictionOf(topology, {}, {}).measured);
}

// What passes between hosts counts as much as what they are.
TEST(EvidenceOfTest, ANetworkThatNobodyMeasuredIsAssumed) {
  topology::Topology hosts = topology::TopologyOf(OneNode(1, 8 * kGiB, 1));
  hosts.hosts[0].core_rates.origin = topology::Origin::kMeasured;
  hosts.fabric.link.origin = topology::Origin::kModelled;
  EXPECT_TRUE(EvidenceOf(hosts).measured);
  hosts.hosts.push_back(hosts.hosts[0]);
  EXPECT_FALSE(EvidenceOf(hosts).measured);
  hosts.fabric.link.origin = topology::Origin::kMeasured;
  EXPECT_TRUE(EvidenceOf(hosts).measured);
}

}  // namespace
}  // namespace skein::plan
