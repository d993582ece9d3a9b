#include "worker/device_comm.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/test_util.h"
#include "gtest/gtest.h"
#include "parallel/comm/inprocess/inprocess.h"

namespace skein::worker {
namespace {

using Votes = std::vector<DeviceCommVote>;

TEST(ParseDeviceComm, KnowsFourWords) {
  EXPECT_EQ(*ParseDeviceComm("auto"), DeviceComm::kAuto);
  EXPECT_EQ(*ParseDeviceComm("nccl"), DeviceComm::kNccl);
  EXPECT_EQ(*ParseDeviceComm("peers"), DeviceComm::kPeers);
  EXPECT_EQ(*ParseDeviceComm("host"), DeviceComm::kHost);
  EXPECT_THAT(ParseDeviceComm("mpi"), StatusIs(absl::StatusCode::kInvalidArgument,
                                               "must be auto, nccl, peers or host, not 'mpi'"));
}

TEST(WhyNoSums, MoreThanTwoShardsOfADeterministicJobAddByTheHosts) {
  for (const int shards : {1, 2, 4, 8}) {
    for (const DeviceComm asked : {DeviceComm::kAuto, DeviceComm::kNccl, DeviceComm::kHost}) {
      EXPECT_EQ(*WhyNoSums(asked, false, shards), "");
      const absl::StatusOr<std::string> why = WhyNoSums(asked, true, shards);
      if (shards <= 2 || asked != DeviceComm::kNccl) {
        SKEIN_ASSERT_OK(why);
        EXPECT_EQ(why->empty(), shards <= 2);
      } else {
        EXPECT_THAT(why, StatusIs(absl::StatusCode::kFailedPrecondition,
                                  ::testing::HasSubstr("--device-comm=nccl, but --deterministic")));
      }
    }
  }
}

TEST(WhyNotNccl, EachRankNeedsAGpuAndTheLibrary) {
  const Votes own = {{.uuid = "a"}, {.uuid = "b"}, {.uuid = "c"}};
  Votes shared = own;
  shared[1].uuid = "a";
  Votes lacking = own;
  lacking[2].no_nccl = "there is no NCCL";
  struct Case {
    Votes votes;
    std::string why;
    bool also_if_asked;
  };
  for (const Case& c : {Case{own, "", true}, Case{shared, "ranks 0 and 1 share a GPU", false},
                        Case{lacking, "rank 2: there is no NCCL", true}}) {
    SKEIN_ASSERT_OK_AND_ASSIGN(const std::string why, WhyNotNccl(DeviceComm::kAuto, c.votes));
    EXPECT_EQ(why, c.why);
    for (const auto& [must, name] :
         {std::pair(DeviceComm::kNccl, "nccl"), std::pair(DeviceComm::kPeers, "peers")}) {
      const auto asked = WhyNotNccl(must, c.votes);
      if (c.why.empty() || !c.also_if_asked) {
        SKEIN_ASSERT_OK(asked);
        EXPECT_EQ(*asked, "");
      } else {
        EXPECT_THAT(asked, StatusIs(absl::StatusCode::kFailedPrecondition,
                                    absl::StrCat("--device-comm=", name, ", but ", c.why)));
      }
    }
  }
}

TEST(WhyRefused, AGroupThatNcclRefusesGoesByTheHostsUnlessNcclIsAskedFor) {
  const absl::Status refused = absl::FailedPreconditionError("NCCL for 'tp': rank 1 on b: no");
  for (const DeviceComm asked : {DeviceComm::kAuto, DeviceComm::kNccl, DeviceComm::kPeers}) {
    SKEIN_ASSERT_OK(WhyRefused(asked, absl::OkStatus()));
    EXPECT_EQ(*WhyRefused(asked, absl::OkStatus()), "");
    EXPECT_THAT(WhyRefused(asked, absl::DeadlineExceededError("late")),
                StatusIs(absl::StatusCode::kDeadlineExceeded, "late"));
  }
  SKEIN_ASSERT_OK(WhyRefused(DeviceComm::kAuto, refused));
  EXPECT_EQ(*WhyRefused(DeviceComm::kAuto, refused), "NCCL for 'tp': rank 1 on b: no");
  EXPECT_THAT(WhyRefused(DeviceComm::kNccl, refused),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       "--device-comm=nccl, but NCCL for 'tp': rank 1 on b: no"));
}

// One rank's NCCL is missing or too old: all ranks hear it in the same call, and nobody waits.
TEST(AgreeOnNcclTest, ALoneRankWithoutNcclIsNamedToAll) {
  std::vector<absl::StatusOr<std::string>> agreed(3, absl::UnknownError(""));
  comm::OnRanks(3, [&](comm::Communicator& world) {
    world.set_timeout(absl::Seconds(60));
    const int rank = world.rank();
    const RankDevice gpu = {.device = {.kind = DeviceKind::kCuda, .name = "H200"},
                            .uuid = absl::StrCat(rank)};
    agreed[rank] = AgreeOnNccl(world, DeviceComm::kAuto, gpu, [rank] {
      return rank == 1 ? absl::FailedPreconditionError("NCCL is of version 2.27.7")
                       : absl::OkStatus();
    });
  });
  for (const auto& why : agreed) {
    SKEIN_ASSERT_OK(why);
    EXPECT_EQ(*why, "rank 1: NCCL is of version 2.27.7");
  }
}

TEST(AgreeOnNcclTest, SlicesExchangeByTheHostsMemory) {
  const auto agree = [](DeviceComm asked) {
    std::vector<absl::StatusOr<std::string>> agreed(2, absl::UnknownError(""));
    comm::OnRanks(2, [&](comm::Communicator& world) {
      const int rank = world.rank();
      const RankDevice slice = {
          .device = {.kind = DeviceKind::kCuda, .name = absl::StrCat("H200 MIG, MIG-", rank)},
          .uuid = absl::StrCat(rank),
          .mig = true};
      agreed[rank] = AgreeOnNccl(world, asked, slice);
    });
    return agreed;
  };
  for (const auto& why : agree(DeviceComm::kAuto)) {
    SKEIN_ASSERT_OK(why);
    EXPECT_EQ(*why, "rank 0: NCCL reaches no slice of a GPU (H200 MIG, MIG-0)");
  }
  for (const auto& why : agree(DeviceComm::kNccl)) {
    EXPECT_THAT(why,
                StatusIs(absl::StatusCode::kFailedPrecondition,
                         "--device-comm=nccl, but rank 0: NCCL reaches no slice of a GPU (H200 "
                         "MIG, MIG-0)"));
  }
}

TEST(DescribePeerSums, TellsTheLimitOrWhyThereIsNone) {
  comm::PeerTransport made = {.most_bytes = 1 << 19};
  EXPECT_EQ(DescribePeerSums("tp", made),
            "sums of 'tp' up to 512.0 KiB go over peer memory, larger ones over NCCL");
  made.one_shot_bytes = 1 << 17;
  made.times = {{.bytes = 1 << 19, .over_memory = 6e-6, .over_rest = 9.5e-6}};
  EXPECT_EQ(DescribePeerSums("tp", made),
            "sums of 'tp' up to 512.0 KiB go over peer memory, larger ones over NCCL (in one shot "
            "to 128.0 KiB), by what each took: 512.0 KiB 6.0 and 9.5 us");
  made.why_not = "rank 1 of the group: CUDA IPC is refused here";
  EXPECT_EQ(DescribePeerSums("tp", made),
            "sums of 'tp' go over NCCL, not over peer memory: rank 1 of the group: CUDA IPC is "
            "refused here");
}

}  // namespace
}  // namespace skein::worker
