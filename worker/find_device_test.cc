#include "worker/find_device.h"

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/device_kind.h"
#include "base/test_util.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "parallel/comm/inprocess/inprocess.h"
#include "worker/device.h"

namespace skein::worker {
namespace {

RankDevice Of(DeviceKind kind, const std::string& no_gpu = "") {
  RankDevice device;
  device.device.kind = kind;
  device.no_gpu = no_gpu;
  return device;
}

std::vector<absl::Status> Agree(const std::vector<RankDevice>& devices) {
  std::vector<absl::Status> told(devices.size(), absl::UnknownError(""));
  comm::OnRanks(static_cast<int>(devices.size()), [&](comm::Communicator& world) {
    told[world.rank()] = AgreeOnKind(world, devices[world.rank()]);
  });
  return told;
}

TEST(AgreeOnKindTest, AllRanksComputeOnOneKind) {
  const RankDevice gpu = Of(DeviceKind::kCuda), asked = Of(DeviceKind::kCpu);
  const RankDevice without = Of(DeviceKind::kCpu, "no driver");
  for (const auto& alike : {std::vector{gpu, gpu}, {asked, without, asked}, {without}}) {
    for (const absl::Status& told : Agree(alike)) SKEIN_EXPECT_OK(told);
  }
  for (const absl::Status& told : Agree({gpu, gpu, without})) {
    EXPECT_THAT(told, StatusIs(absl::StatusCode::kFailedPrecondition,
                               "rank 0 computes on a GPU and rank 2 on CPUs (no driver): the ranks "
                               "of a job compute on devices of one kind; mend that host, or say "
                               "--device=cpu"));
  }
  for (const absl::Status& told : Agree({asked, gpu})) {
    EXPECT_THAT(told,
                StatusIs(absl::StatusCode::kFailedPrecondition,
                         ::testing::HasSubstr("rank 0 computes on CPUs and rank 1 on a GPU")));
  }
}

}  // namespace
}  // namespace skein::worker
