#include "topology/formats/pci.h"

#include <cstddef>
#include <vector>

#include "gtest/gtest.h"

namespace skein::topology {
namespace {

TEST(NicKindOfClassTest, TellsTwo) {
  EXPECT_EQ(NicKindOfClass(0x020700), NicKind::kInfiniBand);
  EXPECT_EQ(NicKindOfClass(0x020710), NicKind::kInfiniBand);
  EXPECT_EQ(NicKindOfClass(0x020000), NicKind::kEthernet);
  EXPECT_EQ(NicKindOfClass(0x028000), NicKind::kUnknown);
  EXPECT_EQ(NicKindOfClass(0), NicKind::kUnknown);
}

TEST(PathBetweenTest, IsByTheNearestThatBothHave) {
  const struct {
    TreePlace a, b;
    Path path;
  } cases[] = {
      {{0, 0, {1}}, {0, 0, {1}}, Path::kSwitch},
      {{0, 0, {1, 2}}, {0, 0, {1, 2}}, Path::kSwitch},
      {{0, 0, {1, 2}}, {0, 0, {1, 3}}, Path::kSwitches},
      {{0, 0, {1, 2}}, {0, 0, {1}}, Path::kSwitches},
      {{0, 0, {1, 2, 4}}, {0, 0, {1, 2, 5}}, Path::kSwitches},
      {{0, 0, {1}}, {0, 0, {2}}, Path::kBridge},
      {{0, 0, {1, 3}}, {0, 0, {2, 3}}, Path::kBridge},
      {{0, 0, {}}, {0, 0, {}}, Path::kBridge},
      {{0, -1, {}}, {0, -1, {2}}, Path::kBridge},
      {{0, 0, {1}}, {1, 0, {1}}, Path::kNode},
      {{0, 0, {}}, {1, 1, {}}, Path::kSystem},
      {{0, -1, {}}, {1, -1, {}}, Path::kSystem},
      {{-1, 0, {}}, {-1, 0, {}}, Path::kNode},
      {{-1, -1, {}}, {-1, -1, {}}, Path::kSystem},
      {{-1, 0, {}}, {0, 0, {1}}, Path::kNode},
  };
  std::vector<TreePlace> places;
  for (const auto& c : cases) {
    SCOPED_TRACE(&c - cases);
    EXPECT_EQ(PathBetween(c.a, c.b), c.path);
    EXPECT_EQ(PathBetween(c.b, c.a), c.path);
    places.push_back(c.a);
  }
  const auto connections = ConnectionsBetween(places);
  ASSERT_EQ(connections.size(), places.size());
  for (size_t i = 0; i < places.size(); ++i) {
    ASSERT_EQ(connections[i].size(), places.size());
    EXPECT_EQ(connections[i][i], Connection{});
    EXPECT_EQ(connections[i][0], connections[0][i]);
  }
  EXPECT_EQ(connections[0][1].path, Path::kSwitches);
}

}  // namespace
}  // namespace skein::topology
