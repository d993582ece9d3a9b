#include "worker/find_device.h"

#include <memory>
#include <string>
#include <thread>
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
  const int size = static_cast<int>(devices.size());
  const auto world = comm::MakeInProcessGroup(size, "world");
  std::vector<absl::Status> told(size, absl::UnknownError(""));
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < size; ++rank) {
    ranks.emplace_back([&, rank] { told[rank] = AgreeOnKind(*world[rank], devices[rank]); });
  }
  for (std::thread& rank : ranks) rank.join();
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
