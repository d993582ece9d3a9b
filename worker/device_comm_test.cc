#include "worker/device_comm.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/test_util.h"
#include "gtest/gtest.h"

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

}  // namespace
}  // namespace skein::worker
