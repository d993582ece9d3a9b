#include "worker/probe/mean_rates.h"

#include <vector>

#include "absl/time/time.h"
#include "gtest/gtest.h"

namespace skein::worker {
namespace {

using topology::DeviceRates;

TEST(MeanRatesTest, IsOfEveryPoint) {
  constexpr absl::Duration kStep = absl::Microseconds(2), kLayer = absl::Microseconds(6);
  const DeviceRates first = {.origin = topology::Origin::kMeasured,
                             .reads = {{1 << 20, 9, 5}, {1 << 22, 3, 6}},
                             .products = {{DType::kF32, 1 << 20, 1, 10}},
                             .overheads = {{1, kStep, kLayer}},
                             .spread = 0.1,
                             .attention = {{8, 100, 30, 1 << 20}}};
  const DeviceRates second = {.origin = topology::Origin::kMeasured,
                              .reads = {{1 << 20, 1, 7}, {1 << 22, 1, 4}},
                              .products = {{DType::kF32, 1 << 20, 1, 20}},
                              .overheads = {{1, 2 * kStep, 2 * kLayer}},
                              .spread = 0.4,
                              .attention = {{8, 300, 0, 1 << 20}}};
  const DeviceRates mean = {.origin = topology::Origin::kMeasured,
                            .reads = {{1 << 20, 9, 6}, {1 << 22, 5, 5}},
                            .products = {{DType::kF32, 1 << 20, 1, 15}},
                            .overheads = {{1, 1.5 * kStep, 1.5 * kLayer}},
                            .spread = 0.4,
                            .attention = {{8, 200, 15, 1 << 20}}};
  EXPECT_EQ(MeanRates({first, second}), mean);
  EXPECT_EQ(MeanRates({first}).attention, first.attention);
}

}  // namespace
}  // namespace skein::worker
