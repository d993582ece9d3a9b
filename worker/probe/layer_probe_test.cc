#include "worker/probe/layer_probe.h"

#include <string>
#include <string_view>
#include <vector>

#include "absl/time/time.h"
#include "base/test_util.h"
#include "gtest/gtest.h"
#include "kernels/cpu/cpu_backend.h"
#include "topology/topology.h"
#include "worker/bench/bench_device.h"

namespace skein::worker {
namespace {

TEST(LayerProbeTest, MeetsOthersBeforeEachPointAndTellsRatesThatAPlannerTakes) {
  BenchDevice device{.threads = 2};
  SKEIN_ASSERT_OK_AND_ASSIGN(device.backend, kernels::MakeCpuBackend({.threads = 2}));
  int meetings = 0;
  std::vector<std::string> said;
  SKEIN_ASSERT_OK_AND_ASSIGN(
      const topology::DeviceRates rates,
      ProbeLayers(device,
                  {.cache_bytes = 1 << 20,
                   .hooks = {.progress = [&](std::string_view what) { said.emplace_back(what); },
                             .meet = [&] { ++meetings; }}}));
  // In three rounds: overheads of 2 models, 2 steps of narrow layers, 3 of 5 rows of 3 shapes in
  // bf16, 2 of 4 rows in 7 quantised types, 3 of 4 of large products. Once: the other rows; 4 rows
  // of 2 shapes in two other dtypes.
  EXPECT_EQ(meetings,
            3 * (2 + 2 + 3 * 3 + 7 * 2 + 3) + 3 * (5 - 3) + 7 * (4 - 2) + (4 - 3) + 2 * 2 * 4);
  EXPECT_EQ(rates.products.size(), (3 * 5 + 5) + 2 * (2 * 4 + 5) + 7 * 4);
  EXPECT_GE(said.size(), 10);
  ASSERT_EQ(rates.overheads.size(), 1);
  EXPECT_GT(rates.overheads[0].layer, absl::ZeroDuration());
  // In the order, and with the amounts, that a topology has.
  topology::Topology topology;
  topology.hosts = {{.name = "host", .cores = 2, .memory_bytes = 1 << 30, .core_rates = rates}};
  SKEIN_EXPECT_OK(topology::CheckTopology(topology));
}

}  // namespace
}  // namespace skein::worker
