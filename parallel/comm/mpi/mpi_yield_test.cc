#include <sched.h>

#include <algorithm>
#include <cstddef>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/test_util.h"
#include "gtest/gtest.h"
#include "tests/mpi/mpi_test_main.h"

namespace skein::comm {
namespace {

bool KeepToOneCore() {
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) return false;
  int cpu = 0;
  while (!CPU_ISSET(cpu, &allowed)) ++cpu;
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(cpu, &one);
  return sched_setaffinity(0, sizeof(one), &one) == 0;
}

// Open MPI is told not to yield. A rank that did as it is told would keep the core until it sleeps:
// there and back would take a millisecond, and takes some 10 us.
TEST(MpiYieldTest, RanksOnOneCoreAnswerEachOtherAtOnce) {
  auto pair = TestRuntime().Split(0, 0, "pair");
  SKEIN_ASSERT_OK(pair);
  (*pair)->set_timeout(absl::Seconds(20));
  ASSERT_TRUE(KeepToOneCore());
  const int other = 1 - (*pair)->rank();
  std::vector<std::byte> data(8);
  absl::Duration best = absl::InfiniteDuration();  // other work of the machine delays some
  for (int i = 0; i < 200; ++i) {
    const absl::Time begin = absl::Now();
    if (other == 1) SKEIN_ASSERT_OK((*pair)->Send(HostView(data), other, kHostStream));
    SKEIN_ASSERT_OK((*pair)->Receive(HostView(absl::MakeSpan(data)), other, kHostStream));
    if (other == 0) SKEIN_ASSERT_OK((*pair)->Send(HostView(data), other, kHostStream));
    best = std::min(best, absl::Now() - begin);
  }
  EXPECT_LT(best, absl::Microseconds(300));
}

}  // namespace
}  // namespace skein::comm
