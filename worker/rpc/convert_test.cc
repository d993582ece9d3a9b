#include "worker/rpc/convert.h"

#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace skein::worker {
namespace {

using ::testing::ElementsAre;

namespace pb = ::skein::cluster::v1;

TEST(ConvertTest, AHeartbeatKeepsItsFields) {
  comm::Progress progress = {.step = 41, .deadline = absl::Seconds(30), .entered = {{"tp", 7}}};
  EXPECT_FALSE(ToProto(progress).has_operation());
  progress.operation = {.group = "tp",
                        .call = {.operation = comm::Operation::kAllReduce, .number = 7},
                        .others = {3, 5},
                        .elapsed = absl::Seconds(12),
                        .still = absl::Milliseconds(2500)};
  const pb::Heartbeat got = ToProto(progress);
  EXPECT_EQ(got.step(), 41);
  EXPECT_EQ(got.entered().at("tp"), 7);
  EXPECT_EQ(got.operation().group(), "tp");
  EXPECT_EQ(got.operation().operation(), "all-reduce");
  EXPECT_EQ(got.operation().number(), 7);
  EXPECT_EQ(got.operation().peer(), -1);
  EXPECT_THAT(got.operation().others(), ElementsAre(3, 5));
  EXPECT_EQ(got.operation().seconds(), 12);
  EXPECT_EQ(got.operation().still_seconds(), 2.5);
  EXPECT_EQ(got.operation().deadline_seconds(), 30);
}

}  // namespace
}  // namespace skein::worker
