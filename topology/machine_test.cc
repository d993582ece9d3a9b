#include "topology/machine.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace skein::topology {
namespace {

using ::testing::ElementsAre;

std::vector<int32_t> NodesOfRanks(const Machine& machine) {
  std::vector<int32_t> nodes;
  for (const Device& device : machine.devices) nodes.push_back(device.node);
  return nodes;
}

TEST(MachineFromRanks, GroupsRanksByHostInOrderOfTheFirstRank) {
  const Node zeta{"zeta", 8, 100}, alpha{"alpha", 2, 50};
  const Machine machine = MachineFromRanks({{zeta, {}}, {alpha, {}}, {alpha, {}}, {zeta, {}}});
  EXPECT_THAT(machine.nodes, ElementsAre(zeta, alpha));
  EXPECT_THAT(NodesOfRanks(machine), ElementsAre(0, 1, 1, 0));
}

TEST(MachineFromRanks, TakesTheLeastMemoryAndTheMostCores) {
  const Machine machine = MachineFromRanks({{{"a", 2, 90}, {}},
                                            {{"b", 7, 10}, {}},
                                            {{"a", 4, 100}, {}},
                                            {{"a", 1, 80}, {}},
                                            {{"a", 3, 85}, {}}});
  EXPECT_THAT(machine.nodes, ElementsAre(Node{"a", 4, 80}, Node{"b", 7, 10}));
}

TEST(MachineFromRanks, KeepsEveryRanksDevice) {
  const Device slow{.name = "slow", .memory_bytes = 7}, fast{.name = "fast"};
  const Machine machine =
      MachineFromRanks({{{"a", 2, 90}, slow}, {{"b", 2, 90}, fast}, {{"a", 2, 90}, fast}});
  ASSERT_EQ(machine.devices.size(), 3u);
  EXPECT_EQ(machine.devices[0], slow);
  EXPECT_EQ(machine.devices[1].name, "fast");
  EXPECT_EQ(machine.devices[2].name, "fast");
  EXPECT_EQ(machine.devices[1].node, 1);
}

TEST(MachineFromRanks, NoRanksAreNoMachine) { EXPECT_EQ(MachineFromRanks({}), Machine{}); }

}  // namespace
}  // namespace skein::topology
