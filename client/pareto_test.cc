#include "client/pareto.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "base/test_util.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "model/config/test_models.h"
#include "parallel/planner/search.h"
#include "topology/presets/presets.h"

namespace skein::client {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

TEST(ParetoTest, TheFrontIsWhatNobodyBeats) {
  const OperatingPoint quick = {"tp=8", 1, 100, 10};
  const OperatingPoint middle = {"tp=4", 8, 60, 40};
  const OperatingPoint full = {"tp=1", 64, 5, 90};
  const OperatingPoint worse = {"tp=2", 8, 60, 39};
  const OperatingPoint same = {"pp=2", 8, 60, 40};
  const OperatingPoint slow = {"pp=8", 64, 4, 90};
  EXPECT_THAT(ParetoFront({slow, full, worse, middle, same, quick}),
              ElementsAre(quick, middle, full));
  EXPECT_THAT(ParetoFront({}), IsEmpty());
}

class PresetTest : public ::testing::Test {
 protected:
  void SetUp() override {
    SKEIN_ASSERT_OK_AND_ASSIGN(const topology::Topology topology, topology::MakePreset("pcie-4"));
    plan::SearchTask task;
    task.workload.concurrency = 32;
    SKEIN_ASSERT_OK_AND_ASSIGN(points_, OperatingPoints(topology, model::Llama8B(), task));
  }
  std::vector<OperatingPoint> points_;
};

TEST_F(PresetTest, LoadsAreTriedUpToFourTimesTheTasks) {
  int64_t most = 0;
  int64_t least = 1 << 20;
  for (const OperatingPoint& point : points_) {
    most = std::max(most, point.concurrency);
    least = std::min(least, point.concurrency);
    // A device gives no more than its share of what all streams together could take.
    EXPECT_LE(point.tokens_per_s_device,
              1.01 * static_cast<double>(point.concurrency) * point.tokens_per_s_stream)
        << point.layout << " at " << point.concurrency;
  }
  EXPECT_EQ(least, 1);
  EXPECT_EQ(most, 128);
}

TEST(ParetoTest, LayoutsBeyondTheLimitsAreLeftOut) {
  SKEIN_ASSERT_OK_AND_ASSIGN(const topology::Topology topology, topology::MakePreset("pcie-4"));
  plan::SearchTask task;
  task.workload.concurrency = 8;
  task.tpot_limit = absl::Milliseconds(10);
  SKEIN_ASSERT_OK_AND_ASSIGN(const std::vector<OperatingPoint> within,
                             OperatingPoints(topology, model::Llama8B(), task));
  ASSERT_FALSE(within.empty());
  for (const OperatingPoint& point : within) EXPECT_GE(point.tokens_per_s_stream, 100);
  task.tpot_limit.reset();
  EXPECT_GT(OperatingPoints(topology, model::Llama8B(), task)->size(), within.size());
}

// Every point is on the front or beaten by one that is.
TEST_F(PresetTest, TheFrontBeatsAllOthers) {
  const std::vector<OperatingPoint> front = ParetoFront(points_);
  ASSERT_GT(front.size(), 3U);
  EXPECT_EQ(front.front().concurrency, 1);
  EXPECT_EQ(front.back().concurrency, 128);
  for (const OperatingPoint& point : points_) {
    EXPECT_TRUE(std::any_of(front.begin(), front.end(), [&](const OperatingPoint& of) {
      return of.tokens_per_s_stream >= point.tokens_per_s_stream &&
             of.tokens_per_s_device >= point.tokens_per_s_device;
    })) << point.layout;
  }
  for (const OperatingPoint& of : front) {
    for (const OperatingPoint& point : points_) {
      EXPECT_FALSE(point.tokens_per_s_stream > of.tokens_per_s_stream &&
                   point.tokens_per_s_device > of.tokens_per_s_device);
    }
  }
}

TEST_F(PresetTest, ThePictureHasEachPointAndNamesTheFront) {
  const std::string svg = ParetoSvg(points_, "a < b");
  size_t circles = 0;
  for (size_t at = 0; (at = svg.find("<circle ", at)) != std::string::npos; ++at) ++circles;
  const std::vector<OperatingPoint> front = ParetoFront(points_);
  EXPECT_EQ(circles, points_.size() + front.size());
  EXPECT_THAT(svg, HasSubstr("a &lt; b</text>"));
  EXPECT_THAT(svg, HasSubstr(front.front().layout + "</text>"));
  EXPECT_THAT(svg, HasSubstr(front.back().layout + ", 128 at once: "));
  EXPECT_THAT(svg, Not(HasSubstr("nan")));
}

}  // namespace
}  // namespace skein::client
