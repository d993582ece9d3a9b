#include "parallel/planner/placement.h"

#include <vector>

#include "gtest/gtest.h"
#include "topology/presets/presets.h"

namespace skein::plan {
namespace {

using topology::Topology;

TEST(PlacementTest, EachTwoOfAnIslandAreNear) {
  const Topology cube = *topology::MakePreset("dgx-1v");
  const auto of = [](std::vector<int32_t> gpus) {
    Group group;
    for (const int32_t gpu : gpus) group.push_back({0, gpu});
    return group;
  };
  EXPECT_TRUE(IsIsland(cube, of({0, 1, 2, 3})));
  EXPECT_TRUE(IsIsland(cube, of({0, 4})));
  EXPECT_FALSE(IsIsland(cube, of({0, 1, 4})));  // 1 and 4 are far from each other
  EXPECT_FALSE(IsIsland(cube, of({0, 1, 2, 3, 4})));
  EXPECT_FALSE(IsIsland(*topology::MakePreset("dgx-h100", 2), {{0, 0}, {1, 0}}));
  EXPECT_TRUE(IsIsland(cube, {{0, -1}, {0, -1}}));
}

}  // namespace
}  // namespace skein::plan
