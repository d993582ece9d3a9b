#include <time.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/test_util.h"
#include "gtest/gtest.h"
#include "tests/mpi/mpi_test_main.h"

namespace skein::comm {
namespace {

TEST(MpiProgressTest, ALargeMessageArrivesWhileItsSenderComputes) {
  auto group = TestRuntime().Split(0, 0, "pair");
  SKEIN_ASSERT_OK(group);
  (*group)->set_timeout(absl::Seconds(20));
  std::vector<std::byte> data(size_t{4} << 20, std::byte{7});
  // The receiver tells by a file: the sender has no other way to know without MPI.
  const std::string arrived = absl::StrCat(std::getenv("TEST_TMPDIR"), "/arrived");
  if ((*group)->rank() == 1) {
    data.assign(data.size(), std::byte{0});
    SKEIN_ASSERT_OK((*group)->Receive(HostView(absl::MakeSpan(data)), 0, kHostStream));
    EXPECT_EQ(data.back(), std::byte{7});
    std::ofstream(arrived) << "yes";
    return;
  }
  SKEIN_ASSERT_OK((*group)->Send(HostView(data), 1, kHostStream));
  const absl::Time deadline = absl::Now() + absl::Seconds(10);
  while (!std::filesystem::exists(arrived) && absl::Now() < deadline) {
    absl::SleepFor(absl::Milliseconds(1));  // computes
    SKEIN_ASSERT_OK((*group)->Progress());
  }
  EXPECT_TRUE(std::filesystem::exists(arrived)) << "it needed more than Progress";
}

// The median of how late messages come to who has waited for so long that it sleeps, by naps of up
// to 3 ms; on rank 1, else 0.
absl::Duration Lateness(Communicator& pair, size_t bytes) {
  const auto now_ns = [] {
    timespec now = {};
    clock_gettime(CLOCK_MONOTONIC, &now);  // the same for all processes
    return int64_t{1'000'000'000} * now.tv_sec + now.tv_nsec;
  };
  std::vector<std::byte> data(bytes);
  std::vector<absl::Duration> late;
  for (int i = 0; i < 15; ++i) {
    if (pair.rank() == 0) {
      absl::SleepFor(absl::Milliseconds(40) + i * absl::Microseconds(330));
      const int64_t sent = now_ns();
      std::memcpy(data.data(), &sent, sizeof(sent));
      SKEIN_EXPECT_OK(pair.Send(HostView(data), 1, kHostStream));
      SKEIN_EXPECT_OK(pair.Flush(1));
    } else {
      SKEIN_EXPECT_OK(pair.Receive(HostView(absl::MakeSpan(data)), 0, kHostStream));
      int64_t sent = 0;
      std::memcpy(&sent, data.data(), sizeof(sent));
      late.push_back(absl::Nanoseconds(now_ns() - sent));
    }
  }
  std::sort(late.begin(), late.end());
  return late.empty() ? absl::ZeroDuration() : late[late.size() / 2];
}

// By naps alone half of the messages would come later than 1.5 ms: those of one piece, and those
// that MPI sends in several.
TEST(MpiProgressTest, WhoSleepsIsWokenByAMessage) {
  auto pair = TestRuntime().Split(0, 0, "pair");
  SKEIN_ASSERT_OK(pair);
  (*pair)->set_timeout(absl::Seconds(20));
  for (const size_t bytes : {size_t{8}, size_t{16} << 10}) {
    absl::Duration best = absl::InfiniteDuration();  // other work of the machine delays all
    for (int run = 0; run < 3; ++run) best = std::min(best, Lateness(**pair, bytes));
    EXPECT_LT(best, absl::Milliseconds(1)) << bytes;
  }
}

// Both wait in turn, so that neither computes nor sleeps between the pieces of a message: some 0.2
// s for all, and 1 to 8 where the sender naps.
TEST(MpiProgressTest, LargeMessagesComeAsFastAsBothPoll) {
  auto group = TestRuntime().Split(0, 0, "pair");
  SKEIN_ASSERT_OK(group);
  (*group)->set_timeout(absl::Seconds(20));
  const int other = 1 - (*group)->rank();
  std::vector<std::byte> data(size_t{15} << 20);
  const absl::Time begin = absl::Now();
  for (int i = 0; i < 27; ++i) {
    if (other == 1) {
      SKEIN_ASSERT_OK((*group)->Receive(HostView(absl::MakeSpan(data)), other, kHostStream));
    }
    SKEIN_ASSERT_OK((*group)->Send(HostView(data), other, kHostStream));
    if (other == 0) {
      SKEIN_ASSERT_OK((*group)->Receive(HostView(absl::MakeSpan(data)), other, kHostStream));
    }
  }
  EXPECT_LT(absl::Now() - begin, absl::Milliseconds(900));
}

}  // namespace
}  // namespace skein::comm
