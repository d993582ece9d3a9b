#include "worker/probe/mean_rates.h"

#include <cstddef>

#include "absl/time/time.h"
#include "base/dtype.h"
#include "gtest/gtest.h"
#include "topology/rates.h"

namespace skein::worker {
namespace {

using topology::DeviceRates;

TEST(MeanRatesTest, IsOfEveryPoint) {
  constexpr absl::Duration kStep = absl::Microseconds(2), kLayer = absl::Microseconds(6);
  const DeviceRates first = {.origin = topology::Origin::kMeasured,
                             .reads = {{1 << 20, 9, 4, 2, 0.25}, {1 << 22, 3, 6}},
                             .products = {{DType::kF32, 1 << 20, 1, 10}},
                             .overheads = {{1, kStep, kLayer}},
                             .spread = 0.1,
                             .attention = {{8, 100, 30, 1 << 20}},
                             .passed_values_per_s = 50};
  const DeviceRates second = {.origin = topology::Origin::kMeasured,
                              .reads = {{1 << 20, 1, 12, 6, 1}, {1 << 22, 1, 3}},
                              .products = {{DType::kF32, 1 << 20, 1, 40}},
                              .overheads = {{1, 2 * kStep, 2 * kLayer}},
                              .spread = 0.4,
                              .attention = {{8, 300, 0, 1 << 20}}};
  const DeviceRates mean = {.origin = topology::Origin::kMeasured,
                            .reads = {{1 << 20, 9, 6, 3, 0.4375}, {1 << 22, 4, 4}},
                            .products = {{DType::kF32, 1 << 20, 1, 16}},
                            .overheads = {{1, 1.5 * kStep, 1.5 * kLayer}},
                            .spread = 0.4,
                            .attention = {{8, 150, 60, 1 << 20}}};
  const DeviceRates got = MeanRates({first, second});
  EXPECT_EQ(got.origin, mean.origin);
  ASSERT_EQ(got.reads.size(), mean.reads.size());
  ASSERT_EQ(got.products.size(), 1);
  EXPECT_EQ(got.products[0].rows, 1);
  ASSERT_EQ(got.attention.size(), 1);
  EXPECT_EQ(got.attention[0].rows, 8);
  EXPECT_EQ(got.overheads, mean.overheads);
  EXPECT_EQ(got.spread, mean.spread);
  for (size_t i = 0; i < mean.reads.size(); ++i) {
    EXPECT_EQ(got.reads[i].working_set_bytes, mean.reads[i].working_set_bytes);
    EXPECT_DOUBLE_EQ(got.reads[i].alone_bytes_per_s, mean.reads[i].alone_bytes_per_s);
    EXPECT_DOUBLE_EQ(got.reads[i].together_bytes_per_s, mean.reads[i].together_bytes_per_s);
    EXPECT_DOUBLE_EQ(got.reads[i].behind_bytes_per_s, mean.reads[i].behind_bytes_per_s);
    // A quarter of three parts that are missed, all of one.
    EXPECT_DOUBLE_EQ(got.reads[i].missed_again, mean.reads[i].missed_again);
  }
  EXPECT_DOUBLE_EQ(got.products[0].operations_per_s, mean.products[0].operations_per_s);
  EXPECT_DOUBLE_EQ(got.attention[0].bytes_per_s, mean.attention[0].bytes_per_s);
  // Arithmetic that took no time of its own on one of them takes half of the other's.
  EXPECT_DOUBLE_EQ(got.attention[0].operations_per_s, mean.attention[0].operations_per_s);
  // And what ranks hand on, likewise.
  EXPECT_DOUBLE_EQ(got.passed_values_per_s, 100);
  EXPECT_EQ(MeanRates({second}).passed_values_per_s, 0);
  EXPECT_DOUBLE_EQ(MeanRates({first}).products[0].operations_per_s, 10);
  // A rank that has measured less says nothing.
  DeviceRates less = second;
  less.attention.clear();
  EXPECT_DOUBLE_EQ(MeanRates({first, less}).attention[0].bytes_per_s, 100);
}

}  // namespace
}  // namespace skein::worker
