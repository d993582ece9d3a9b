// What replicas cost on cores: caches, and cores that ranks share.
#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "model/config/test_models.h"
#include "parallel/cost/layer_work.h"
#include "parallel/cost/replica_cost.h"
#include "parallel/cost/replicas_for_tests.h"
#include "topology/topology.h"

namespace skein::cost {
namespace {

using model::Llama8B;
using topology::Topology;

// Without rates.
Topology TwoCores() {
  Topology box;
  box.hosts = {{.name = "box", .cores = 2, .memory_bytes = int64_t{1} << 36}};
  return box;
}

// As Even has it, on the host's cores.
Replica OnCores(int32_t pp, int32_t sequences) {
  Replica replica = Even(/*tp=*/1, pp, sequences);
  for (Stage& stage : replica.stages) stage.sites = {{0, -1}};
  return replica;
}

TEST(CoresCostTest, CoresHaveCachesAndShares) {
  Topology box = TwoCores();
  topology::DeviceRates& rates = box.hosts[0].core_rates;
  rates.reads = {{1 << 24, 50e9, 40e9}, {1 << 25, 10e9, 6e9}};
  rates.products = {{DType::kF32, 0, 1, 1e15}};
  Replica replica = OnCores(/*pp=*/1, /*sequences=*/1);
  replica.activations = DType::kF32;
  const auto step = [&](const CoreShare& share) {
    for (Stage& stage : replica.stages) stage.share = share;
    return absl::ToDoubleSeconds(
        PredictReplica(box, Llama8B(), replica, {512, 256, 1}).value_or(ReplicaCost{}).step);
  };
  const double alone = step({});
  EXPECT_NEAR(alone, 15.2e9 / 10e9, 0.02 * alone);
  EXPECT_NEAR(step({.threads = 2, .together = true}), alone * 10 / 12, 1e-3);
  EXPECT_NEAR(step({.threads = 1, .of_a_core = 0.5, .together = true}), alone * 10 / 3, 1e-3);
  // Who waits for nobody has its core's cache for itself, while it has the core.
  rates.reads = {{int64_t{1} << 33, 50e9, 40e9}, {int64_t{1} << 34, 10e9, 6e9}};
  EXPECT_EQ(step({.sets = 2}), step({}));
  // Two sets of stages in turn are beyond a cache that holds one.
  box.hosts[0].links = {
      {topology::Path::kSelf, {topology::Origin::kMeasured, absl::ZeroDuration(), 1e12}}};
  replica = OnCores(/*pp=*/2, /*sequences=*/1);
  replica.activations = DType::kF32;
  EXPECT_GT(step({.sets = 2}), 4 * step({}));
}

// Cores that ranks share give each of them less of everything.
TEST(CoresCostTest, LayersOfSharedCoresTakeLongerToBeginAndToPassValues) {
  // 8 rows of 4,096, those of 32 heads and 8 pairs of keys and values twice, and 3 of 14,336.
  EXPECT_DOUBLE_EQ(PassedValues(Llama8B(), 1), 88064);
  EXPECT_DOUBLE_EQ(PassedValues(Llama8B(), 2), 8 * 4096 + 6144 + 3 * 7168);
  Topology box = TwoCores();
  topology::DeviceRates& rates = box.hosts[0].core_rates;
  rates.reads = {{1 << 24, 1e15, 1e15}};
  rates.products = {{DType::kF32, 0, 1, 1e18}, {DType::kF32, 0, 64, 1e18}};
  Replica replica = OnCores(/*pp=*/1, /*sequences=*/1);
  const auto step_ms = [&](int32_t rows, double of_a_core) {
    replica.sequences = rows;
    replica.stages[0].share.of_a_core = of_a_core;
    return absl::ToDoubleMilliseconds(
        PredictReplica(box, Llama8B(), replica, {1, 1, 1}).value_or(ReplicaCost{}).step);
  };
  const double nothing = step_ms(1, 1), nothing_of_many = step_ms(8, 1);
  EXPECT_LT(nothing_of_many, 0.1);
  rates.passed_values_per_s = 88064 * 1e3;  // a row of a layer takes 1 ms
  EXPECT_NEAR(step_ms(1, 1) - nothing, 32, 1e-3);
  EXPECT_NEAR(step_ms(8, 1) - nothing_of_many, 8 * 32, 1e-3);
  EXPECT_NEAR(step_ms(8, 0.5), 2 * step_ms(8, 1), 0.1);
  rates.passed_values_per_s = 0;
  rates.overheads = {{1, absl::Milliseconds(5), absl::Milliseconds(2)}};
  EXPECT_NEAR(step_ms(1, 0.5), 2 * (5 + 32 * 2), 0.1);
}

// Four stages have two cores; layers take 1 ms of one.
TEST(CoresCostTest, StagesLeaveEachOtherTheCoresThatTheyDoNotNeed) {
  Topology box = TwoCores();
  topology::DeviceRates& rates = box.hosts[0].core_rates;
  rates.reads = {{1 << 24, 1e15, 1e15}};
  rates.products = {{DType::kF32, 0, 1, 1e18}};
  rates.overheads = {{1, absl::ZeroDuration(), absl::Milliseconds(1)}};
  box.hosts[0].links = {
      {topology::Path::kSelf, {topology::Origin::kMeasured, absl::ZeroDuration(), 1e12}}};
  Replica replica = OnCores(/*pp=*/4, /*sequences=*/4);
  for (Stage& stage : replica.stages) stage.share = {.of_a_core = 0.5, .together = true};
  const auto step_ms = [&](const std::vector<int64_t>& layers) {
    for (size_t i = 0; i < layers.size(); ++i) replica.stages[i].layers = {0, layers[i]};
    return absl::ToDoubleMilliseconds(
        PredictReplica(box, Llama8B(), replica, {1, 1, 4}).value_or(ReplicaCost{}).step);
  };
  EXPECT_NEAR(step_ms({8, 8, 8, 8}), 4 * 16, 0.1);
  // Both cores are busy all the time with 32 layers of 4 micro-batches.
  EXPECT_NEAR(step_ms({6, 6, 6, 14}), 4 * 16, 0.1);
  // A thread has one core at most.
  EXPECT_NEAR(step_ms({2, 2, 2, 26}), 4 * 26, 0.1);
  // Stages on another host have cores of their own.
  box.hosts.push_back(box.hosts[0]);
  box.fabric.link = {topology::Origin::kMeasured, absl::ZeroDuration(), 1e12};
  replica.stages[3].sites = {{1, -1}};
  replica.stages[3].share.of_a_core = 1;
  EXPECT_NEAR(step_ms({6, 6, 6, 14}), 4 * 14, 0.1);
  replica.stages[3].share.of_a_core = 0.5;
  EXPECT_NEAR(step_ms({6, 6, 6, 14}), 4 * 28, 0.1);
}

// Neighbours of four stages share two cores; layers take 1 ms of one, or 0.1.
TEST(CoresCostTest, StagesThatShareACoreMeetThereWhereTheyTakeLongerThanATurn) {
  Topology box = TwoCores();
  topology::DeviceRates& rates = box.hosts[0].core_rates;
  rates.reads = {{1 << 24, 1e15, 1e15}};
  rates.products = {{DType::kF32, 0, 1, 1e18}};
  box.hosts[0].links = {
      {topology::Path::kSelf, {topology::Origin::kMeasured, absl::Microseconds(10), 1e12}}};
  const auto predict = [&](int32_t sequences, absl::Duration layer, double sets) {
    rates.overheads = {{1, absl::ZeroDuration(), layer}};
    Replica replica = OnCores(/*pp=*/4, sequences);
    for (Stage& stage : replica.stages) {
      stage.share = {.of_a_core = std::min(1.0, 2.0 / sequences), .together = true, .sets = sets};
    }
    return PredictReplica(box, Llama8B(), replica, {1, 1, sequences}).value_or(ReplicaCost{});
  };
  const auto step_ms = [&](int32_t sequences, absl::Duration layer, double sets) {
    return absl::ToDoubleMilliseconds(predict(sequences, layer, sets).step);
  };
  const absl::Duration ms = absl::Milliseconds(1);
  EXPECT_NEAR(step_ms(1, ms, 2), 32, 0.1);
  EXPECT_NEAR(step_ms(2, ms, 2), 48, 0.1);  // two of four stages take twice as long
  EXPECT_NEAR(predict(2, ms, 2).bubble, 1 - 64.0 / (2 * 48), 0.01);
  EXPECT_NEAR(step_ms(4, ms, 2), 64, 0.1);
  EXPECT_NEAR(step_ms(2, ms / 10, 2), 3.2, 0.1);
  EXPECT_NEAR(step_ms(4, ms / 10, 2), 6.4, 0.1);
  // With a core for each.
  EXPECT_NEAR(step_ms(2, ms, 1), 32, 0.1);
}

// In turns of 4 ms, two ranks read 15.0 GB in 1.5 ms, and in 3 ms what the other one has put out
// of caches.
TEST(CoresCostTest, TurnsBeginWithWhatOthersHavePutOutOfCaches) {
  Topology box = TwoCores();
  topology::DeviceRates& rates = box.hosts[0].core_rates;
  rates.reads = {{int64_t{1} << 34, 1e13, 1e13}, {(int64_t{1} << 34) + 1, 5e12, 5e12}};
  rates.products = {{DType::kF32, 0, 1, 1e18}};
  Replica replica = OnCores(/*pp=*/1, /*sequences=*/1);
  const auto step_ms = [&](double of_a_core, double sets) {
    replica.stages[0].share = {.of_a_core = of_a_core, .together = true, .sets = sets};
    return absl::ToDoubleMilliseconds(
        PredictReplica(box, Llama8B(), replica, {1, 1, 1}).value_or(ReplicaCost{}).step);
  };
  const double own = step_ms(1, 1);
  EXPECT_NEAR(own, 1.5, 0.01);
  EXPECT_NEAR(step_ms(0.5, 2), 2 * 4 / (1 + (4 - 2 * own) / own), 0.01);
  EXPECT_NEAR(step_ms(0.5, 1), 2 * own, 1e-6);
  EXPECT_NEAR(step_ms(1, 2), own, 1e-6);
  // Sets that take longer than a turn are read from beyond caches, and no more than that.
  for (topology::ReadRate& read : rates.reads) {
    read.alone_bytes_per_s /= 100;
    read.together_bytes_per_s /= 100;
  }
  EXPECT_NEAR(step_ms(0.5, 2), 2 * 2 * step_ms(1, 1), 0.01 * step_ms(1, 1));
}

// 15.0 GB are read in 0.5 ms where they are in caches, in 1.5 ms behind others, and come back with
// some passes.
TEST(CoresCostTest, SetsComeBackWithAsManyPassesAsWereMeasured) {
  Topology box = TwoCores();
  topology::DeviceRates& rates = box.hosts[0].core_rates;
  rates.products = {{DType::kF32, 0, 1, 1e18}};
  Replica replica = OnCores(/*pp=*/1, /*sequences=*/1);
  const auto step_ms = [&](double missed_again, double of_a_core) {
    rates.reads = {{int64_t{1} << 34, 3e13, 3e13, 1e13, missed_again}};
    replica.stages[0].share = {.of_a_core = of_a_core, .together = true, .sets = 2};
    return absl::ToDoubleMilliseconds(
        PredictReplica(box, Llama8B(), replica, {1, 1, 1}).value_or(ReplicaCost{}).step);
  };
  EXPECT_NEAR(step_ms(0, 0.5), 2 * 4 / (1 + 2.5 / 0.5), 0.01);
  EXPECT_NEAR(step_ms(0.5, 0.5), 2 * 4 / (4 + 0.125 / 0.5625), 0.01);  // 1.5, 1, 0.75, 0.625 ms
  EXPECT_NEAR(step_ms(1, 0.5), 2 * 1.5, 0.01);
  EXPECT_NEAR(step_ms(1, 1), 0.5, 0.01);  // on a core of its own
}

// Products that were measured beside others are read faster alone; arithmetic takes as long.
TEST(CoresCostTest, LoneRanksReadFaster) {
  Topology box = TwoCores();
  topology::DeviceRates& rates = box.hosts[0].core_rates;
  rates.reads = {{1 << 24, 10e9, 5e9}};
  Replica replica = OnCores(/*pp=*/1, /*sequences=*/1);
  const auto step = [&](double operations_per_s, bool together, double in_cache = 1e15) {
    rates.products = {{DType::kF32, 1 << 20, 1, in_cache}, {DType::kF32, 0, 1, operations_per_s}};
    replica.stages[0].share.together = together;
    return absl::ToDoubleSeconds(
        PredictReplica(box, Llama8B(), replica, {512, 256, 1}).value_or(ReplicaCost{}).step);
  };
  EXPECT_NEAR(step(1e15, true), 2 * step(1e15, false), 0.01);
  const double reads = step(1e15, true);         // as slow as reads beside others
  const double bound = 2 * 7.5e9 / (2 * reads);  // twice as slow
  EXPECT_NEAR(step(bound, true) - step(bound, false), reads / 2, 0.02 * reads);
  // What takes as long in a cache is no read.
  EXPECT_NEAR(step(bound, true, bound), step(bound, false, bound), 1e-9);
}

}  // namespace
}  // namespace skein::cost
