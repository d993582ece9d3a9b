#include "parallel/cost/replica_cost.h"

#include <string>
#include <utility>

#include "base/test_util.h"
#include "gtest/gtest.h"
#include "model/config/test_models.h"
#include "parallel/cost/layer_work.h"
#include "parallel/cost/replicas_for_tests.h"
#include "topology/presets/presets.h"

namespace skein::cost {
namespace {

using model::Llama8B;
using topology::MakePreset;
using topology::Topology;

ReplicaCost Predict(const std::string& preset, const Replica& replica, const Workload& workload) {
  const absl::StatusOr<ReplicaCost> cost =
      PredictReplica(*MakePreset(preset), Llama8B(), replica, workload);
  EXPECT_TRUE(cost.ok()) << cost.status();
  return cost.value_or(ReplicaCost{});
}

// The weights by the model's own count of parameters, one table of the two aside, as 8.03e9
// parameters of a published 8B are: one stage holds them all.
TEST(ReplicaCostTest, WeightsAreThoseOfTheModel) {
  const model::ModelConfig model = Llama8B();
  const int64_t table = model.vocab_size * model.hidden_size;
  const int64_t norms = (2 * model.num_layers + 1) * model.hidden_size;
  EXPECT_EQ(LayerWeightBytes(model, 1) * model.num_layers + OutputWeightBytes(model, 1),
            2 * (model.ParameterCount() - table - norms));
  for (const int32_t tp : {2, 4, 8}) {
    EXPECT_EQ(LayerWeightBytes(model, tp) * tp, LayerWeightBytes(model, 1));
    EXPECT_EQ(OutputWeightBytes(model, tp) * tp, OutputWeightBytes(model, 1));
  }
  // KV heads are repeated beyond 8 shards.
  EXPECT_GT(LayerWeightBytes(model, 16) * 16, LayerWeightBytes(model, 1));
}

// 15.0 GB of weights, and 640 tokens of 128 KiB a sequence, over 3.35 TB/s, and 50 us a step.
TEST(ReplicaCostTest, ADecodeReadsWeightsAndContexts) {
  const Workload workload = {512, 256, 1};
  const double weights = 15.01e9, kv = 640 * 131072.0;
  const auto expected_ms = [&](double sequences) {
    return (weights + sequences * kv) / 3350e9 * 1e3 + 0.05;
  };
  const ReplicaCost one = Predict("dgx-h100", Even(1, 1, 1), workload);
  EXPECT_NEAR(absl::ToDoubleMilliseconds(one.step), expected_ms(1), 0.01 * expected_ms(1));
  EXPECT_EQ(one.tpot, one.step);  // nobody else
  EXPECT_EQ(one.bubble, 0);
  EXPECT_EQ(one.exchange_share, 0);
  const ReplicaCost many = Predict("dgx-h100", Even(1, 1, 64), workload);
  EXPECT_NEAR(absl::ToDoubleMilliseconds(many.step), expected_ms(64), 0.03 * expected_ms(64));
  EXPECT_GT(many.tpot, many.step);
  // All that is given out, by what each sequence waits.
  EXPECT_NEAR(many.output_tokens_per_s, 64 / absl::ToDoubleSeconds(many.tpot),
              0.05 * many.output_tokens_per_s);
}

// With 512 rows weights are multiplied with for longer than they are read, 7.8 ms beside 4.5. Keys
// and values are read by other kernels, at no time when these multiply: 12.8 ms more.
TEST(ReplicaCostTest, ContextsAreReadBehindProducts) {
  const ReplicaCost cost = Predict("dgx-h100", Even(1, 1, 512), {512, 256, 512});
  const double products_ms = 512 * 15.01e9 / 989e12 * 1e3;
  const double contexts_ms = 512 * 640 * 131072.0 / 3350e9 * 1e3;
  const double expected_ms = products_ms + contexts_ms + 0.05;
  EXPECT_NEAR(absl::ToDoubleMilliseconds(cost.step), expected_ms, 0.02 * expected_ms);
}

// As above, but half of the layers read 128 tokens instead of 640.
TEST(ReplicaCostTest, WindowsBoundWhatIsRead) {
  model::ModelConfig model = Llama8B();
  for (int64_t layer = 0; layer < model.num_layers; ++layer) {
    model.windows.push_back(layer % 2 == 0 ? 128 : 0);
  }
  SKEIN_ASSERT_OK_AND_ASSIGN(const ReplicaCost cost, PredictReplica(*MakePreset("dgx-h100"), model,
                                                                    Even(1, 1, 64), {512, 256, 1}));
  const double expected_ms = (15.01e9 + 64 * (640 + 128) / 2 * 131072.0) / 3350e9 * 1e3 + 0.05;
  EXPECT_NEAR(absl::ToDoubleMilliseconds(cost.step), expected_ms, 0.03 * expected_ms);
}

// 4.5 and 6.5625 bits of an element in the layers, 8.5 in the output: read as they are stored, and
// multiplied with as fast as their types are.
TEST(ReplicaCostTest, QuantisedTypesHaveTheirBytesAndRates) {
  model::ModelConfig model = Llama8B();
  model.stored.matrices["lm_head.weight"] = DType::kQ8_0;
  model.stored.layers = {{DType::kQ4_K, 0.25}, {DType::kQ6_K, 0.75}};
  model.stored.output = {{DType::kQ8_0}};
  const double output = 128256 * 4096.0, layers = 15.01e9 / 2 - output;
  const double bytes = layers * (0.25 * 4.5 + 0.75 * 6.5625) / 8 + output * 8.5 / 8;
  EXPECT_NEAR(static_cast<double>(LayerWeightBytes(model, 1) * 32 + OutputWeightBytes(model, 1)),
              bytes, 0.001 * bytes);

  Topology topology = *MakePreset("dgx-h100");
  const auto step_ms = [&] {
    const auto cost = PredictReplica(topology, model, Even(1, 1, 1), {512, 256, 1});
    EXPECT_TRUE(cost.ok()) << cost.status();
    return absl::ToDoubleMilliseconds(cost->step);
  };
  const double read_ms = (bytes + 640 * 131072.0) / 3350e9 * 1e3 + 0.05;
  EXPECT_NEAR(step_ms(), read_ms, 0.01 * read_ms);

  // So slow that products take longer than reads; attention is read behind them.
  auto& products = topology.hosts[0].interconnect.gpus[0].rates.products;
  for (const auto& [dtype, rate] :
       {std::pair{DType::kQ4_K, 1e12}, {DType::kQ6_K, 2e12}, {DType::kQ8_0, 4e12}}) {
    products.push_back({dtype, 0, 1, rate});
  }
  const double multiplied_ms = (2 * layers * (0.25 / 1e12 + 0.75 / 2e12) + 2 * output / 4e12) * 1e3;
  const double expected_ms = multiplied_ms + 640 * 131072.0 / 3350e9 * 1e3 + 0.05;
  EXPECT_NEAR(step_ms(), expected_ms, 0.01 * expected_ms);
}

// For other prompts as a queue has them, for steps that were ordered before and one of its own, and
// for a place.
TEST(ReplicaCostTest, APromptWaitsForOthers) {
  const Workload work = {2048, 64, 8};
  const ReplicaCost alone = Predict("dgx-h100", Even(1, 1, 1), work);
  EXPECT_EQ(alone.ttft, alone.prompt);
  Replica replica = Even(1, 1, 8);
  replica.max_micro_batch_rows = 2048;
  const ReplicaCost eight = Predict("dgx-h100", replica, work);
  const absl::Duration round = 8 * eight.prompt + 64 * eight.step;
  const double busy = absl::FDivDuration(7 * eight.prompt, round);
  ASSERT_GT(busy, 0.2);
  const absl::Duration others = busy / (1 - busy) / 2 * eight.prompt;
  EXPECT_NEAR(absl::FDivDuration(eight.ttft, eight.prompt + others + 2.5 * eight.step), 1, 1e-6);
  replica.max_micro_batch_rows = 1024;  // two steps
  const ReplicaCost chunked = Predict("dgx-h100", replica, work);
  EXPECT_GT(chunked.ttft - chunked.prompt, eight.ttft - eight.prompt + 0.9 * eight.step);
  replica.max_micro_batch_rows = 2048;
  replica.waiting = 4;
  const ReplicaCost queued = Predict("dgx-h100", replica, work);
  EXPECT_NEAR(absl::FDivDuration(queued.ttft - eight.ttft, round / 2), 1, 1e-6);
  EXPECT_EQ(queued.output_tokens_per_s, eight.output_tokens_per_s);
}

// 2 x 7.5e9 operations a token, over 989 TFLOP/s.
TEST(ReplicaCostTest, APromptMultiplies) {
  const ReplicaCost cost = Predict("dgx-h100", Even(1, 1, 1), {2048, 16, 1});
  const double operations = 2048.0 * 2 * (15.01e9 / 2 - 128256 * 4096.0);
  const double attention = 4.0 * 4096 * 1024 * 2048 * 32;
  const double ms = (operations + attention) / 989e12 * 1e3;
  EXPECT_GT(absl::ToDoubleMilliseconds(cost.prompt), ms);
  EXPECT_LT(absl::ToDoubleMilliseconds(cost.prompt), 1.1 * ms + 0.5);
}

TEST(ReplicaCostTest, ShardsShareReadingAndExchange) {
  const Workload workload = {512, 256, 1};
  const ReplicaCost one = Predict("dgx-h100", Even(1, 1, 1), workload);
  const ReplicaCost two = Predict("dgx-h100", Even(2, 1, 1), workload);
  const ReplicaCost eight = Predict("dgx-h100", Even(8, 1, 1), workload);
  EXPECT_LT(two.step, one.step);
  // 64 sums of 3 us, and one gather.
  const double exchange_us = two.exchange_share * absl::ToDoubleMicroseconds(two.step);
  EXPECT_NEAR(exchange_us, 65 * 3.0, 6);
  EXPECT_GT(two.step, one.step / 2);
  EXPECT_GT(eight.exchange_share, two.exchange_share);
  // Over PCIe they exchange for longer.
  const ReplicaCost pcie = Predict("pcie-4", Even(2, 1, 64), workload);
  EXPECT_GT(pcie.exchange_share, Predict("dgx-h100", Even(2, 1, 64), workload).exchange_share);
}

TEST(ReplicaCostTest, StagesWorkAtTheSameTimeOnManySequencesOnly) {
  const Workload workload = {512, 256, 1};
  const ReplicaCost alone = Predict("dgx-h100", Even(1, 4, 1), workload);
  EXPECT_NEAR(alone.bubble, 0.75, 0.02);
  const ReplicaCost one_stage = Predict("dgx-h100", Even(1, 1, 1), workload);
  EXPECT_GE(alone.step, one_stage.step);
  const ReplicaCost many = Predict("dgx-h100", Even(1, 4, 64), workload);
  EXPECT_LT(many.bubble, 0.3);
  // Four micro-batches read a quarter of the weights each, and contexts but once.
  const ReplicaCost together = Predict("dgx-h100", Even(1, 1, 64), workload);
  EXPECT_LT(many.step, together.step);
  EXPECT_GT(many.output_tokens_per_s, together.output_tokens_per_s);
}

// A token goes on to the next stage, and what it drew back to the first.
TEST(ReplicaCostTest, HopsTakeTime) {
  Topology two = *MakePreset("dgx-h100", 2);
  Replica replica = Even(1, 2, 1);
  replica.stages[1].sites = {{1, 0}};
  const auto cost = [&](absl::Duration latency) {
    two.fabric.link.latency = latency;
    return PredictReplica(two, Llama8B(), replica, {512, 256, 1}).value_or(ReplicaCost{});
  };
  const ReplicaCost near = cost(absl::ZeroDuration()), far = cost(absl::Milliseconds(5));
  EXPECT_NEAR(absl::ToDoubleMilliseconds(far.step - near.step), 10, 0.1);
  EXPECT_NEAR(absl::ToDoubleMilliseconds(far.prompt - near.prompt), 5, 0.1);
  // A prompt's 512 rows of 4,096 values at 10 MB/s: half of the bytes, half of the time.
  two.fabric.link.bytes_per_s = 1e7;
  const ReplicaCost halves = cost(absl::ZeroDuration());
  replica.hops = DType::kF32;
  const ReplicaCost whole = cost(absl::ZeroDuration());
  EXPECT_NEAR(absl::ToDoubleMilliseconds(whole.prompt - halves.prompt), 512 * 4096 * 2 / 1e7 * 1e3,
              1);
  replica.hops = DType::kBF16;
  two.fabric = MakePreset("dgx-h100", 2)->fabric;
  // Tokens come back as it was measured, whatever a message takes.
  for (topology::Host& host : two.hosts) {
    host.exchanges = {{topology::Exchange::kTokenReturn, 2, true, {{4, absl::Milliseconds(7)}}}};
  }
  const ReplicaCost late = cost(absl::ZeroDuration());
  EXPECT_NEAR(absl::ToDoubleMilliseconds(late.step - near.step), 7, 0.1);
  EXPECT_EQ(late.prompt, near.prompt);
  // With a micro-batch for each stage those that receive are awake.
  const auto by_messages = [&](double asleep_ms, double awake_ms) {
    for (topology::Host& host : two.hosts) {
      host.exchanges = {
          {topology::Exchange::kSendReceive, 2, true, {{1, absl::Milliseconds(asleep_ms)}}},
          {topology::Exchange::kSendToAwake, 2, true, {{1, absl::Milliseconds(awake_ms)}}}};
    }
    return absl::ToDoubleMilliseconds(cost(absl::ZeroDuration()).step);
  };
  EXPECT_NEAR(by_messages(9, 1), by_messages(9, 3), 1e-9);
  EXPECT_NEAR(by_messages(9, 1) - by_messages(4, 1), 2 * 5, 0.1);
  replica = Even(1, 2, 2);
  replica.stages[1].sites = {{1, 0}};
  replica.micro_batches = 2;
  EXPECT_NEAR(by_messages(9, 1), by_messages(4, 1), 1e-9);
  EXPECT_NEAR(by_messages(9, 30) - by_messages(9, 20), 2 * 10, 0.1);
}

// A rank that waits for less than comm::kSpin is awake, with fewer micro-batches than stages, too.
TEST(ReplicaCostTest, WhoWaitsBrieflyIsAwake) {
  Topology two = *MakePreset("dgx-h100", 2);
  Replica replica = Even(1, 2, 1);
  replica.stages[0].layers = {0, 1};
  replica.stages[1] = {.layers = {1, 2}, .sites = {{1, 0}}};
  model::ModelConfig small = Llama8B();
  small.num_layers = 2;
  const auto cost = [&](double asleep_ms, double awake_ms) {
    for (topology::Host& host : two.hosts) {
      host.exchanges = {
          {topology::Exchange::kSendReceive, 2, true, {{1, absl::Milliseconds(asleep_ms)}}},
          {topology::Exchange::kSendToAwake, 2, true, {{1, absl::Milliseconds(awake_ms)}}}};
    }
    return PredictReplica(two, small, replica, {512, 256, 1}).value_or(ReplicaCost{});
  };
  EXPECT_EQ(cost(9, 0.1).step, cost(4, 0.1).step);
  EXPECT_NEAR(absl::ToDoubleMilliseconds(cost(9, 0.2).step - cost(9, 0.1).step), 2 * 0.1, 0.01);
  // Messages that take so long themselves let it fall asleep.
  EXPECT_NEAR(absl::ToDoubleMilliseconds(cost(9, 3).step - cost(4, 3).step), 2 * 5, 0.01);
  // A prompt finds all asleep.
  EXPECT_NEAR(absl::ToDoubleMilliseconds(cost(9, 0.1).prompt - cost(4, 0.1).prompt), 5, 0.01);
}

// Stages work on the chunks of one prompt at the same time.
TEST(ReplicaCostTest, ChunksOfAPromptFollowEachOther) {
  Replica replica = Even(1, 4, 1);
  const Workload workload = {4096, 16, 1};
  replica.max_micro_batch_rows = 4096;
  const absl::Duration whole = Predict("dgx-h100", replica, workload).prompt;
  replica.max_micro_batch_rows = 512;  // 8 of them in 4 stages: 11 of 32 parts
  const absl::Duration chunked = Predict("dgx-h100", replica, workload).prompt;
  EXPECT_NEAR(absl::FDivDuration(chunked, whole), 11.0 / 32, 0.06);
  // So they do where a step is cut.
  replica.max_micro_batch_rows = 4096;
  replica.prompt_pieces = 8;
  EXPECT_NEAR(absl::FDivDuration(Predict("dgx-h100", replica, workload).prompt, chunked), 1, 0.02);
  // Pieces of less than 16 rows would read weights for next to nothing.
  EXPECT_EQ(Predict("dgx-h100", replica, {64, 16, 1}).prompt, [&] {
    Replica cut = replica;
    cut.max_micro_batch_rows = 16;
    return Predict("dgx-h100", cut, {64, 16, 1}).prompt;
  }());
}

// A layer costs what it costs to begin, whatever is in it.
TEST(ReplicaCostTest, LayersAreBegun) {
  const Replica replica = Even(1, 1, 1);
  Topology box = *topology::MakePreset("dgx-h100");
  const auto step = [&] {
    return PredictReplica(box, Llama8B(), replica, {512, 256, 1}).value_or(ReplicaCost{}).step;
  };
  const absl::Duration before = step();
  for (topology::Gpu& gpu : box.hosts[0].interconnect.gpus) {
    gpu.rates.overheads.front().layer = absl::Microseconds(7);
  }
  EXPECT_EQ(step() - before, Llama8B().num_layers * absl::Microseconds(7));
}

// What steps and layers cost as such is that of a micro-batch's rows.
TEST(ReplicaCostTest, OverheadsAreOfTheRows) {
  Topology box = *topology::MakePreset("dgx-h100");
  const auto step = [&](int32_t rows, topology::Overhead most) {
    most.rows = 64;
    for (topology::Gpu& gpu : box.hosts[0].interconnect.gpus) {
      gpu.rates.overheads = {{.rows = 1}, most};
    }
    const cost::Workload workload = {512, 256, rows};
    return PredictReplica(box, Llama8B(), Even(1, 1, rows), workload).value_or(ReplicaCost{}).step;
  };
  constexpr absl::Duration kStep = absl::Microseconds(5), kLayer = absl::Microseconds(2);
  EXPECT_EQ(step(64, {.step = kStep}) - step(64, {}), kStep);
  EXPECT_EQ(step(64, {.layer = kLayer}) - step(64, {}), Llama8B().num_layers * kLayer);
  EXPECT_EQ(step(1, {.step = kStep, .layer = kLayer}), step(1, {}));
}

// Decodes' contexts take as long as attention was measured to, by their bytes and by operations.
// Prompts, whose rows share theirs, do not.
TEST(ReplicaCostTest, ContextsAreReadAsAttentionWasMeasured) {
  Topology box = *topology::MakePreset("dgx-h100");
  topology::DeviceRates& cores = box.hosts[0].core_rates;
  cores.reads = {{int64_t{1} << 30, 4e15, 4e15}, {int64_t{1} << 31, 1e15, 1e15}};
  cores.products = {{DType::kBF16, 0, 1, 1e18}};
  const auto cost = [&](const Replica& replica, const topology::AttentionRate& rate) {
    cores.attention = {rate};
    for (topology::Gpu& gpu : box.hosts[0].interconnect.gpus) gpu.rates.attention = {rate};
    return PredictReplica(box, Llama8B(), replica, {512, 256, 64}).value_or(ReplicaCost{});
  };
  // 64 contexts of 640 tokens in 32 layers of 8 heads of 128, keys and values of 2 bytes.
  const double bytes = 64.0 * 640 * 32 * 2 * 8 * 128 * 2;
  const double operations = 64.0 * 640 * 32 * 4 * 32 * 128;
  const auto seconds = [](absl::Duration time) { return absl::ToDoubleSeconds(time); };
  Replica replica = Even(1, 1, 64);
  const ReplicaCost fast = cost(replica, {1, 1e11, 0}), slow = cost(replica, {1, 1e10, 0});
  EXPECT_NEAR(seconds(slow.step - fast.step), bytes / 1e10 - bytes / 1e11, 1e-5);
  EXPECT_EQ(slow.prompt, fast.prompt);
  EXPECT_NEAR(seconds(cost(replica, {1, 1e11, 1e12}).step - fast.step), operations / 1e12, 1e-5);
  replica.stages[0].sites = {{0, -1}};
  const ReplicaCost of_cores = cost(replica, {1, 1e11, 1e12});
  EXPECT_NEAR(seconds(cost(replica, {1, 1e11, 1e11}).step - of_cores.step),
              operations / 1e11 - operations / 1e12, 1e-5);
  // A row has 8 heads' tasks: more threads than these idle.
  const auto of_row = [&](int32_t threads) {
    Replica one = Even(1, 1, 1);
    one.stages[0].sites = {{0, -1}};
    one.stages[0].share.threads = threads;
    cores.attention = {{1, 1e9}};
    return PredictReplica(box, Llama8B(), one, {512, 256, 1}).value_or(ReplicaCost{}).step;
  };
  EXPECT_NEAR(seconds(of_row(4) - of_row(8)), bytes / 64 / 1e9 * (1.0 / 4 - 1.0 / 8), 1e-5);
  EXPECT_NEAR(seconds(of_row(8)), seconds(of_row(16)), 1e-5);
  // It was measured beside others: alone it is as much faster as reads are.
  cores.attention = {{1, 1e11, 1e12, 1 << 20}, {1, 1e10, 1e12, int64_t{1} << 32}};
  const auto step = [&] {
    return seconds(
        PredictReplica(box, Llama8B(), replica, {512, 256, 64}).value_or(ReplicaCost{}).step);
  };
  cores.reads = {{int64_t{1} << 31, 3e17, 1e17}};
  const double alone = step();
  replica.stages[0].share.together = true;
  EXPECT_NEAR(step() - alone, bytes / 1e10 * (1 - 1.0 / 3), 1e-5);
}

// Each micro-batch reads the weights.
TEST(ReplicaCostTest, MicroBatchesCostReads) {
  Replica replica = Even(1, 2, 64);
  const Workload workload = {512, 256, 64};
  const ReplicaCost two = Predict("dgx-h100", replica, workload);
  replica.micro_batches = 8;
  const ReplicaCost eight = Predict("dgx-h100", replica, workload);
  EXPECT_GT(eight.step, 2 * two.step);
}

// Cores: the working set's rate, shared.

}  // namespace
}  // namespace skein::cost
