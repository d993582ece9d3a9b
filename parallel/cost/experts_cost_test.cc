// What experts cost: bytes of those that are read, and sums of what each adds.
#include "absl/time/time.h"
#include "base/test_util.h"
#include "gtest/gtest.h"
#include "model/config/test_models.h"
#include "parallel/cost/replica_cost.h"
#include "parallel/cost/replicas_for_tests.h"
#include "topology/presets/presets.h"

namespace skein::cost {
namespace {

using model::Llama8B;
using topology::MakePreset;
using topology::Topology;

// 8 experts of which a row has two, of the shape of a published mixture of 46.7e9 parameters, of
// which 12.9e9 are a row's.
model::ModelConfig Mixture() {
  model::ModelConfig model = Llama8B();
  model.vocab_size = 32000;
  model.experts = {.count = 8, .chosen = 2, .intermediate_size = 14336};
  return model;
}

// The table that is looked up aside, 0.13e9, twice a parameter: 12.75e9 of them for one row, and
// all 46.57e9 where 64 rows choose.
TEST(ExpertsCostTest, OfExpertsThoseAreReadThatRowsChoose) {
  const auto step_ms = [](int32_t sequences) {
    const auto cost =
        PredictReplica(*MakePreset("dgx-h100"), Mixture(), Even(1, 1, sequences), {512, 256, 1});
    SKEIN_EXPECT_OK(cost.status());
    return absl::ToDoubleMilliseconds(cost->step);
  };
  const auto expected_ms = [](double parameters, double sequences) {
    return (2 * parameters + sequences * 640 * 131072) / 3350e9 * 1e3 + 0.05;
  };
  EXPECT_NEAR(step_ms(1), expected_ms(12.75e9, 1), 0.01 * expected_ms(12.75e9, 1));
  EXPECT_NEAR(step_ms(64), expected_ms(46.57e9, 64), 0.01 * expected_ms(46.57e9, 64));
  // Two rows choose 3.5 of 8 on the average.
  const double two = 1.47e9 + 3.5 / 8 * 45.10e9;
  EXPECT_NEAR(step_ms(2), expected_ms(two, 2), 0.01 * expected_ms(two, 2));
}

// Behind attention a row is summed, behind experts what each of its two adds: three times a row's
// bytes of a layer, where a dense one has two.
TEST(ExpertsCostTest, ShardsSumWhatEachExpertAdds) {
  Topology topology = *MakePreset("dgx-h100");
  topology.hosts[0].exchanges = {
      {topology::Exchange::kAllReduce,
       2,
       false,
       {{16384, absl::Microseconds(20)}, {32768, absl::Microseconds(40)}}}};
  const auto exchange_us = [&](const model::ModelConfig& model) {
    const auto cost = PredictReplica(topology, model, Even(2, 1, 1), {512, 256, 1});
    SKEIN_EXPECT_OK(cost.status());
    return cost->exchange_share * absl::ToDoubleMicroseconds(cost->step);
  };
  EXPECT_NEAR(exchange_us(Mixture()) - exchange_us(Llama8B()), 32 * 20, 1);
}

}  // namespace
}  // namespace skein::cost
