#include "worker/probe/host_probe.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/test_util.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/mpi/mpi_test_main.h"
#include "topology/topology.h"

namespace skein::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Rank 1 comes late to some of what both measure. Rank 0 waits for it there, and nowhere else would
// it take as long.
TEST(HostProbeTest, RanksMeasureLayersAndReadsAtTheSameTime) {
  constexpr absl::Duration kLate = absl::Seconds(2);
  constexpr std::string_view kLateFor[] = {"9 layers of 64 columns", "reads of 4"};
  comm::MpiRuntime& mpi = comm::TestRuntime();
  topology::Topology topology;
  topology.hosts = {
      {.name = "host", .cores = 2, .memory_bytes = int64_t{1} << 32, .l3_bytes = 1 << 20}};
  std::vector<std::pair<std::string, absl::Time>> said;
  const auto progress = [&](std::string_view what) {
    said.emplace_back(what, absl::Now());
    if (mpi.rank() != 1 || what.ends_with(", again")) return;
    for (const std::string_view late_for : kLateFor) {
      if (what.starts_with(late_for)) absl::SleepFor(kLate);
    }
  };
  SKEIN_ASSERT_OK(ProbeHosts(mpi, {.progress = progress}, topology));
  EXPECT_FALSE(topology.hosts[0].core_rates.products.empty());
  if (mpi.rank() != 0) return;
  for (const std::string_view late_for : kLateFor) {
    absl::Duration longest;
    for (size_t i = 0; i + 1 < said.size(); ++i) {
      if (!said[i].first.starts_with(late_for)) continue;
      longest = std::max(longest, said[i + 1].second - said[i].second);
    }
    EXPECT_GT(longest, kLate / 2) << late_for;
  }
}

// Behind those of ranks that share a core, where some do.
TEST(HostProbeTest, ReadsBehindOthersAreOfRanksThatShareCores) {
  comm::MpiRuntime& mpi = comm::TestRuntime();
  for (const bool share : {false, true}) {
    topology::Topology topology;
    topology.hosts = {{.name = "host",
                       .cores = share ? mpi.size() / 2 : mpi.size(),
                       .memory_bytes = int64_t{1} << 32,
                       .l3_bytes = 1 << 20}};
    SKEIN_ASSERT_OK(ProbeHosts(mpi, {}, topology));
    for (const topology::ReadRate& read : topology.hosts[0].core_rates.reads) {
      EXPECT_EQ(read.behind_bytes_per_s > 0, share) << read.working_set_bytes;
      EXPECT_LE(read.behind_bytes_per_s, read.together_bytes_per_s) << read.working_set_bytes;
    }
  }
}

// Of groups beside each other, of one while others wait, and of all; where each rank has a core,
// sums between products are known well enough.
TEST(HostProbeTest, SumsOfRanksThatShareCoresAreMeasuredInSteps) {
  comm::MpiRuntime& mpi = comm::TestRuntime();
  const auto measured = [&](int32_t cores) {
    topology::Topology topology;
    topology.hosts = {
        {.name = "host", .cores = cores, .memory_bytes = int64_t{1} << 32, .l3_bytes = 1 << 20}};
    std::vector<std::string> sums;
    const auto progress = [&](std::string_view what) {
      if (what.starts_with("sums of steps")) sums.emplace_back(what);
    };
    const absl::Status probed = ProbeHosts(mpi, {.progress = progress}, topology);
    EXPECT_TRUE(probed.ok()) << probed;
    return sums;
  };
  EXPECT_THAT(measured(mpi.size()), IsEmpty());
  if (mpi.size() == 2) {
    EXPECT_THAT(measured(1), ElementsAre("sums of steps of 2 ranks"));
  } else {
    EXPECT_THAT(measured(2),
                ElementsAre("sums of steps of 2 ranks", "sums of steps of 2 ranks alone",
                            "sums of steps of 4 ranks"));
  }
}

}  // namespace
}  // namespace skein::worker
