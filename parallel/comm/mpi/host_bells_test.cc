#include "parallel/comm/mpi/host_bells.h"

#include <functional>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/test_util.h"
#include "gtest/gtest.h"
#include "parallel/comm/inprocess/inprocess.h"

namespace skein::comm {
namespace {

// As ranks of hosts, each with its bells.
void OnHosts(const std::vector<int>& host_of_rank,
             const std::function<void(Communicator&, const HostBells&)>& body) {
  auto ranks = MakeInProcessGroup(static_cast<int>(host_of_rank.size()), "world");
  std::vector<std::thread> threads;
  for (auto& rank : ranks) {
    threads.emplace_back([&host_of_rank, &body, &rank] {
      SKEIN_ASSERT_OK_AND_ASSIGN(const HostBells bells, HostBells::Connect(*rank, host_of_rank));
      body(*rank, bells);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(HostBellsTest, WhoIsRungWakes) {
  OnHosts({0, 0, 0}, [](Communicator& world, const HostBells& bells) {
    ASSERT_NE(bells.own(), nullptr);
    const uint32_t heard = bells.own()->Count();
    SKEIN_ASSERT_OK(world.Barrier(kHostStream));
    if (world.rank() == 0) {
      absl::SleepFor(absl::Milliseconds(50));
      bells.Ring(2);
      return;
    }
    const absl::Time begin = absl::Now();
    const absl::Duration limit = world.rank() == 2 ? absl::Seconds(20) : absl::Milliseconds(200);
    while (bells.own()->Count() == heard && absl::Now() - begin < limit) {
      bells.own()->Wait(heard, limit);
    }
    EXPECT_EQ(bells.own()->Count(), heard + (world.rank() == 2 ? 1 : 0));
    EXPECT_LT(absl::Now() - begin, absl::Seconds(10));
  });
}

TEST(HostBellsTest, HostsHaveBellsOfTheirOwn) {
  OnHosts({0, 1, 0, 1, 2}, [](Communicator& world, const HostBells& bells) {
    const uint32_t heard = bells.own() == nullptr ? 0 : bells.own()->Count();
    SKEIN_ASSERT_OK(world.Barrier(kHostStream));
    // Each rings all; who is alone has no bell to ring or to hear.
    for (int rank = 0; rank < world.size(); ++rank) bells.Ring(rank);
    SKEIN_ASSERT_OK(world.Barrier(kHostStream));
    if (world.rank() == 4) {
      EXPECT_EQ(bells.own(), nullptr);
    } else {
      EXPECT_EQ(bells.own()->Count(), heard + 2);  // its neighbour's and its own
    }
  });
}

TEST(HostBellsTest, WithoutBellsRingingDoesNothing) {
  const HostBells bells;
  EXPECT_EQ(bells.own(), nullptr);
  bells.Ring(3);
}

}  // namespace
}  // namespace skein::comm
