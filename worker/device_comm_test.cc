#include "worker/device_comm.h"

#include <string>
#include <vector>

#include "base/test_util.h"
#include "gtest/gtest.h"

namespace skein::worker {
namespace {

using Votes = std::vector<DeviceCommVote>;

TEST(ParseDeviceComm, KnowsThreeWords) {
  EXPECT_EQ(*ParseDeviceComm("auto"), DeviceComm::kAuto);
  EXPECT_EQ(*ParseDeviceComm("nccl"), DeviceComm::kNccl);
  EXPECT_EQ(*ParseDeviceComm("host"), DeviceComm::kHost);
  EXPECT_THAT(ParseDeviceComm("mpi"), StatusIs(absl::StatusCode::kInvalidArgument,
                                               "must be auto, nccl or host, not 'mpi'"));
}

TEST(WhyNotNccl, EachRankNeedsAGpuAndTheLibrary) {
  const Votes own = {{.host = 0, .gpu = 0}, {.host = 0, .gpu = 1}, {.host = 2, .gpu = 0}};
  Votes shared = own;
  shared[1].gpu = 0;
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
    const auto asked = WhyNotNccl(DeviceComm::kNccl, c.votes);
    if (c.why.empty() || !c.also_if_asked) {
      SKEIN_ASSERT_OK(asked);
      EXPECT_EQ(*asked, "");
    } else {
      EXPECT_THAT(asked, StatusIs(absl::StatusCode::kFailedPrecondition,
                                  "--device-comm=nccl, but " + c.why));
    }
  }
}

}  // namespace
}  // namespace skein::worker
