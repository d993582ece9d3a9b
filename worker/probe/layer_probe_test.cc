#include "worker/probe/layer_probe.h"

#include <cstddef>
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
  size_t meetings = 0;
  std::vector<std::string> said;
  SKEIN_ASSERT_OK_AND_ASSIGN(
      const topology::DeviceRates rates,
      ProbeLayers(device,
                  {.cache_bytes = 1 << 20,
                   .hooks = {.progress = [&](std::string_view what) { said.emplace_back(what); },
                             .meet = [&] { ++meetings; }}}));
  EXPECT_GE(meetings, rates.products.size());
  EXPECT_GE(said.size(), 10);
  ASSERT_EQ(rates.overheads.size(), 1);
  EXPECT_GT(rates.overheads[0].layer, absl::ZeroDuration());
  EXPECT_GE(rates.passed_values_per_s, 0);
  // In the order, and with the amounts, that a topology has.
  topology::Topology topology;
  topology.hosts = {{.name = "host", .cores = 2, .memory_bytes = 1 << 30, .core_rates = rates}};
  SKEIN_EXPECT_OK(topology::CheckTopology(topology));
}

}  // namespace
}  // namespace skein::worker
