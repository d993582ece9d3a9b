#include "parallel/planner/replica_search.h"

#include <string>
#include <vector>

#include "base/test_util.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "model/config/test_models.h"
#include "topology/presets/presets.h"

namespace skein::plan {
namespace {

using topology::MakePreset;
using topology::Topology;

const model::ModelConfig& Model() {
  static const auto& model = *new model::ModelConfig(model::Llama8B());
  return model;
}

// `model` outlives the task.
ReplicaTask TaskOn(const Topology& topology, const model::ModelConfig& model = Model(),
                   const cost::Workload& workload = {512, 256, 1}) {
  ReplicaTask task{topology, model, workload};
  task.device = DeviceKind::kCuda;
  task.context_length = 768;
  task.max_num_seqs = 256;
  task.max_micro_batch_rows = 2048;
  task.activations = DType::kBF16;
  task.kv_dtype = kernels::KvDType::kBF16;
  return task;
}

JudgedReplica Judge(ReplicaSearch& search, const std::vector<Group>& stages, int32_t sequences) {
  absl::StatusOr<JudgedReplica> judged = search.Judge(stages, sequences, {});
  EXPECT_TRUE(judged.ok()) << judged.status();
  return judged.ok() ? *std::move(judged) : JudgedReplica{.replica = {.stages = {{}, {}}}};
}

// 1.05 GB of the output beside layers of 0.44 GB: some two and a half of these.
TEST(ReplicaSearchTest, TheLastStageHasTheOutputToo) {
  const Topology topology = *MakePreset("dgx-h100");
  ReplicaSearch search(TaskOn(topology));
  const JudgedReplica judged = Judge(search, {{{0, 0}}, {{0, 1}}}, 8);
  EXPECT_EQ(judged.replica.stages[0].layers.size(), 17);
  EXPECT_EQ(judged.replica.stages[1].layers.size(), 15);
}

TEST(ReplicaSearchTest, MoreMicroBatchesHideSlowHops) {
  Topology near = *MakePreset("dgx-h100", 2);
  ReplicaSearch fast(TaskOn(near));
  EXPECT_EQ(Judge(fast, {{{0, 0}}, {{1, 0}}}, 8).replica.micro_batches, 2);
  EXPECT_EQ(Judge(fast, {{{0, 0}}, {{1, 0}}}, 1).replica.micro_batches, 1);
  Topology far = near;
  far.fabric.link.latency = absl::Milliseconds(3);
  ReplicaSearch slow(TaskOn(far));
  EXPECT_EQ(Judge(slow, {{{0, 0}}, {{1, 0}}}, 8).replica.micro_batches, 3);
  // Arithmetic binds so many rows: smaller micro-batches take less time each.
  far.fabric.link.latency = absl::Milliseconds(30);
  ReplicaTask task = TaskOn(far, Model(), {64, 64, 1});
  task.context_length = 128;
  task.max_num_seqs = 4096;
  ReplicaSearch many(task);
  EXPECT_GT(Judge(many, {{{0, 0}}, {{1, 0}}}, 4096).replica.micro_batches, 3);
}

// Stages work on four pieces of a prompt of 6,000 tokens at once: in 5 of 8 times what one stage
// takes for all layers, and each reads its weights four times.
TEST(ReplicaSearchTest, StagesWorkOnPiecesOfAPrompt) {
  const Topology topology = *MakePreset("dgx-h100");
  ReplicaTask task = TaskOn(topology, Model(), {6000, 100, 1});
  task.context_length = 8192;
  ReplicaSearch search(task);
  const absl::Duration one = Judge(search, {{{0, 0}}}, 1).cost.prompt;
  const absl::Duration two = Judge(search, {{{0, 0}}, {{0, 1}}}, 1).cost.prompt;
  EXPECT_NEAR(absl::FDivDuration(two, one), 5.0 / 8, 0.06);
}

// 7,000 tokens, or a window of 512 and a step's 2,048 rows: 438 pages and 161.
TEST(ReplicaSearchTest, WindowsLeaveRoomForMoreSequences) {
  const Topology topology = *MakePreset("dgx-h100");
  model::ModelConfig model = Model();
  const auto sequences_of = [&] {
    ReplicaTask task = TaskOn(topology, model, {6000, 1000, 1});
    task.context_length = 8192;
    ReplicaSearch search(task);
    return Judge(search, {{{0, 0}}}, 256).replica.sequences;
  };
  const int32_t all = sequences_of();
  EXPECT_GT(all, 20);
  model.windows.assign(model.num_layers, 512);
  EXPECT_NEAR(sequences_of(), all * 438 / 161, 4);
}

TEST(ReplicaSearchTest, HostsThatDifferAreJudgedEach) {
  Topology two = *MakePreset("dgx-h100", 3);
  for (topology::Gpu& gpu : two.hosts[1].interconnect.gpus) {
    gpu.rates.reads[0].alone_bytes_per_s /= 2;
  }
  ReplicaSearch search(TaskOn(two));
  const JudgedReplica fast = Judge(search, {{{0, 3}}}, 4);
  const JudgedReplica slow = Judge(search, {{{1, 3}}}, 4);
  const JudgedReplica again = Judge(search, {{{2, 3}}}, 4);
  EXPECT_GT(slow.cost.step, 1.8 * fast.cost.step);
  EXPECT_EQ(again.cost.step, fast.cost.step);
  EXPECT_EQ(again.replica.stages[0].sites, (Group{{2, 3}}));
}

// What each decode reads of 640 tokens: 128 KiB a token in bf16, half and a scale in int8.
TEST(ReplicaSearchTest, KeysAndValuesAreReadInTheirDType) {
  const Topology topology = *MakePreset("dgx-h100");
  const auto step = [&](kernels::KvDType dtype, int32_t sequences) {
    ReplicaTask task = TaskOn(topology);
    task.kv_dtype = dtype;
    ReplicaSearch search(task);
    return absl::ToDoubleSeconds(Judge(search, {{{0, 0}}}, sequences).cost.step);
  };
  const auto per_sequence = [&](kernels::KvDType dtype) {
    return (step(dtype, 129) - step(dtype, 1)) / 128 * 3350e9;
  };
  const double passed = 4.7e6;  // what rows of activations take through memory, as in either
  EXPECT_NEAR(per_sequence(kernels::KvDType::kBF16), 640 * 131072 + passed, 2e6);
  EXPECT_NEAR(per_sequence(kernels::KvDType::kInt8), 640 * 65536 * (1 + 4.0 / 128) + passed, 2e6);
}

}  // namespace
}  // namespace skein::plan
