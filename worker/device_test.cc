#include "worker/device.h"

#include <string>
#include <vector>

#include "base/test_util.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace skein::worker {
namespace {

using ::testing::HasSubstr;

TEST(NameSliceTest, SlicesAreNamedByTheirUuids) {
  const std::string digits = "0123456789abcdef0123456789abcdef";
  const std::string named = "NVIDIA H200 MIG 1g.18gb, MIG-01234567-89ab-cdef-0123-456789abcdef";
  const absl::Status silent = absl::UnimplementedError("there is no NVML");
  const struct {
    const char* name;
    absl::StatusOr<topology::GpuState> nvml;
    bool mig;
  } cases[] = {{"NVIDIA H200", topology::GpuState{}, false},
               {"NVIDIA H200", silent, false},
               {"NVIDIA H200 MIG 1g.18gb", topology::GpuState{.mig = true}, true},
               {"NVIDIA H200 MIG 1g.18gb", silent, true}};
  for (const auto& c : cases) {
    RankDevice device = {.device = {.name = c.name}, .uuid = digits};
    NameSlice(c.nvml, device);
    EXPECT_EQ(device.mig, c.mig);
    EXPECT_EQ(device.device.name, c.mig ? named : c.name);
  }
}

TEST(NameUsersTest, WhoHasMuchOfTheMemoryIsNamed) {
  topology::GpuState state = {.free_bytes = 126, .total_bytes = 140, .processes = {{.pid = 7}}};
  EXPECT_EQ(NameUsers(state), "");
  EXPECT_EQ(NameUsers(absl::UnimplementedError("there is no NVML")), "");
  state.free_bytes = 125;
  EXPECT_THAT(NameUsers(state), HasSubstr("125 B of 140 B are free; a process (pid 7)"));
}

TEST(ShareOfGpusTest, EachRankHasAGpuOrSharesOne) {
  const SeenGpus one = {"A"};
  const SeenGpus four = {"A", "B", "C", "D"};
  const auto all = [](int ranks, const SeenGpus& gpus) {
    return std::vector<SeenGpus>(ranks, gpus);
  };
  const struct {
    bool oversubscribe;
    int local_rank;
    std::vector<SeenGpus> seen;
    int gpu, sharers;  // -1: refused
  } cases[] = {
      {false, 0, all(1, one), 0, 1},
      {false, 1, all(2, four), 1, 1},
      {false, 3, all(4, four), 3, 1},
      {false, 1, all(2, one), -1, -1},
      {false, 4, all(8, four), -1, -1},
      {false, 0, all(1, {}), -1, -1},
      {true, 1, all(2, one), 0, 2},
      {true, 7, all(8, four), 3, 2},
      {true, 4, all(5, four), 0, 2},
      {true, 1, all(5, four), 1, 1},
      {true, 0, all(2, four), 0, 1},
      {true, 0, all(1, {}), -1, -1},
      // A launcher shows each rank one, and all of them call theirs number 0.
      {false, 0, {{"A"}, {"B"}}, 0, 1},
      {false, 1, {{"A"}, {"B"}}, 0, 1},
      {false, 1, {{"A"}, {"B"}, {"B"}}, -1, -1},
      {false, 0, {{"A"}, {"B"}, {"B"}}, 0, 1},
      {true, 2, {{"A"}, {"B"}, {"B"}}, 0, 2},
      // Or each has an order of its own; some have none.
      {false, 1, {{"A", "B"}, {"A", "B"}}, 1, 1},
      {false, 1, {{"A", "B"}, {"B", "A"}}, 0, 1},
      {false, 2, {{"A", "B"}, {}, {"A", "B"}}, 1, 1},
      {false, 1, {{"A", "B"}, {}, {"A", "B"}}, -1, -1},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(testing::Message()
                 << "rank " << c.local_rank << " of " << c.seen.size() << ", case " << &c - cases);
    const absl::StatusOr<GpuShare> share =
        ShareOfGpus({.oversubscribe = c.oversubscribe, .local_rank = c.local_rank, .seen = c.seen});
    if (c.gpu < 0) {
      EXPECT_THAT(share.status(), StatusIs(absl::StatusCode::kFailedPrecondition,
                                           HasSubstr("--oversubscribe-devices")));
      continue;
    }
    SKEIN_ASSERT_OK(share.status());
    EXPECT_EQ(share->gpu, c.gpu);
    EXPECT_EQ(share->sharers, c.sharers);
  }
  EXPECT_THAT(
      ShareOfGpus({.local_rank = 2, .seen = {{"A"}, {"B"}, {"B"}}}).status().message(),
      HasSubstr("rank 2 (from 0) of a host where it sees 1 GPUs, and ranks 1, 2 would have one"));
}

TEST(ThreadsWithin, NoMoreThanTheCoresThatARankIsBoundTo) {
  EXPECT_EQ(ThreadsWithin(16, 8), 8);
  EXPECT_EQ(ThreadsWithin(4, 8), 4);
  EXPECT_EQ(ThreadsWithin(4, 0), 1);
  EXPECT_EQ(ThreadsWithin(4, absl::UnimplementedError("no affinity here")), 4);
}

}  // namespace
}  // namespace skein::worker
