#include <time.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/test_util.h"
#include "gtest/gtest.h"
#include "parallel/comm/communicator_suite.h"
#include "parallel/comm/mpi/mpi_runtime.h"
#include "tests/mpi/mpi_test_main.h"

namespace skein::comm {

void ForEachGroup(const std::function<void(Communicator&)>& body) {
  auto group = TestRuntime().Split(0, 0, absl::StrCat("group of ", TestRuntime().size()));
  SKEIN_ASSERT_OK(group);
  (*group)->set_timeout(absl::Seconds(20));
  body(**group);
}

namespace {

TEST(MpiRuntime, KnowsItsHost) {
  MpiRuntime& runtime = TestRuntime();
  // The test runs on one host.
  for (int rank = 0; rank < runtime.size(); ++rank) EXPECT_EQ(runtime.host_of(rank), 0);
  EXPECT_EQ(runtime.local_rank(), runtime.rank());
}

TEST(MpiRuntime, SplitsByColorAndOrdersByKey) {
  MpiRuntime& runtime = TestRuntime();
  const int size = runtime.size();
  const int rank = runtime.rank();
  // Rank 1 stays out; even and odd ranks form a group each, in reverse order.
  const int color = rank == 1 ? -1 : rank % 2;
  auto group = runtime.Split(color, -rank, absl::StrCat("color ", color));
  SKEIN_ASSERT_OK(group);
  if (color < 0) {
    EXPECT_EQ(*group, nullptr);
    return;
  }
  std::vector<int> expected;
  for (int other = size - 1; other >= 0; --other) {
    if (other != 1 && other % 2 == color) expected.push_back(other);
  }
  ASSERT_EQ((*group)->size(), static_cast<int>(expected.size()));
  EXPECT_EQ(expected[(*group)->rank()], rank);
  EXPECT_EQ((*group)->name(), absl::StrCat("color ", color));
  std::vector<int> gathered(expected.size());
  SKEIN_ASSERT_OK((*group)->AllGather(ConstView{&rank, DType::kI32, 1, 1},
                                      HostView(absl::MakeSpan(gathered)), kHostStream));
  EXPECT_EQ(gathered, expected);
}

// The groups of tensor and pipeline parallel overlap; calls of one never reach the other.
TEST(MpiRuntime, GroupsThatOverlapKeepApart) {
  MpiRuntime& runtime = TestRuntime();
  auto all = runtime.Split(0, 0, "all");
  auto pairs = runtime.Split(runtime.rank() / 2, 0, "pair");
  auto again = runtime.Split(0, 0, "again");
  SKEIN_ASSERT_OK(all);
  SKEIN_ASSERT_OK(pairs);
  SKEIN_ASSERT_OK(again);
  for (int round = 0; round < 20; ++round) {
    float one = 1, two = 2, three = 3;
    SKEIN_ASSERT_OK((*all)->AllReduce(HostView(absl::MakeSpan(&one, 1)), kHostStream));
    SKEIN_ASSERT_OK((*pairs)->AllReduce(HostView(absl::MakeSpan(&two, 1)), kHostStream));
    SKEIN_ASSERT_OK((*again)->AllReduce(HostView(absl::MakeSpan(&three, 1)), kHostStream));
    EXPECT_EQ(one, 1.0f * runtime.size());
    EXPECT_EQ(two, 2.0f * (*pairs)->size());
    EXPECT_EQ(three, 3.0f * runtime.size());
  }
}

// So that a rank which waits can be told from one that is stuck.
TEST(MpiPeersTest, ACallThatWaitsBeatsThePulse) {
  auto group = TestRuntime().Split(0, 0, "pulse");
  SKEIN_ASSERT_OK(group);
  if (TestRuntime().rank() != 0) return;
  OperationTracker tracker;
  OperationTracker::Group* const line = tracker.AddGroup("pulse", {0, 1, 2, 3, 4, 5, 6, 7}, 0);
  (*group)->Track(line);
  (*group)->set_timeout(absl::Milliseconds(100));
  const int64_t begin = Pulse::NowNs();
  std::byte byte;
  EXPECT_TRUE(absl::IsDeadlineExceeded(
      (*group)->Receive(HostView(absl::MakeSpan(&byte, 1)), 1, kHostStream)));
  EXPECT_GE(line->pulse().last_ns(), begin);
  EXPECT_LE(line->pulse().last_ns(), Pulse::NowNs());
}

absl::Duration CpuTime() {
  timespec time = {};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return absl::DurationFromTimespec(time);
}

// Ranks that wait leave their cores to those that compute.
TEST(MpiPeersTest, AWaitDoesNotSpin) {
  constexpr absl::Duration kLate = absl::Seconds(1);
  auto group = TestRuntime().Split(0, 0, "late");
  SKEIN_ASSERT_OK(group);
  (*group)->set_timeout(absl::Seconds(20));
  // Says that a rank is about to wait.
  const auto sign = [](int rank) { return absl::StrCat(testing::TempDir(), "/waits-", rank); };
  std::filesystem::remove(sign((*group)->rank()));
  SKEIN_ASSERT_OK((*group)->Barrier(kHostStream));
  if ((*group)->rank() == 0) {
    const absl::Time deadline = absl::Now() + absl::Seconds(10);
    for (int rank = 1; rank < (*group)->size(); ++rank) {
      while (!std::filesystem::exists(sign(rank)) && absl::Now() < deadline) {
        absl::SleepFor(absl::Milliseconds(1));
      }
    }
    absl::SleepFor(kLate);
    SKEIN_ASSERT_OK((*group)->Barrier(kHostStream));
    return;
  }
  const absl::Duration before = CpuTime();
  const absl::Time start = absl::Now();
  std::ofstream(sign((*group)->rank())) << "yes";
  SKEIN_ASSERT_OK((*group)->Barrier(kHostStream));
  EXPECT_GE(absl::Now() - start, kLate);
  EXPECT_LT(CpuTime() - before, kLate / 5);  // polls, on a busy machine dearer ones
}

}  // namespace
}  // namespace skein::comm
