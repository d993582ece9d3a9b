#include "topology/draw/shape.h"

#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "topology/draw/test_topologies.h"

namespace skein::topology::draw {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(PlacesOf, GroupsWhatSharesASwitch) {
  const Host host = Dgx1V().hosts[0];
  EXPECT_THAT(PlacesOf(host),
              ElementsAre(Place{0, {{{0, 1}, {0}, Path::kSwitch}, {{2, 3}, {1}, Path::kSwitch}}},
                          Place{1, {{{4, 5}, {2}, Path::kSwitch}, {{6, 7}, {3}, Path::kSwitch}}}));
  // Several switches are one group, too, and known as such.
  Host several = PlainHost(2, 0);
  Connect(several, 0, 1, {Path::kSwitches});
  EXPECT_EQ(PlacesOf(several)[0].groups[0], (PcieGroup{{0, 1}, {}, Path::kSwitches}));
}

TEST(PlacesOf, PutsNicsNearTheirGpus) {
  Host host = PlainHost(2, 3);  // GPU 0 and NIC 0 on node 0, the others on node 1
  EXPECT_THAT(PlacesOf(host), ElementsAre(Place{0, {{{0}, {}}, {{}, {0}}, {{}, {1}}}},
                                          Place{1, {{{1}, {}}, {{}, {2}}}}));
  // One that is beyond the link between NUMA nodes from each is of no known one.
  Connect(host, 0, 2, {Path::kSystem});
  Connect(host, 0, 3, {Path::kSystem});
  EXPECT_THAT(PlacesOf(host), ElementsAre(Place{0, {{{0}, {}}}}, Place{1, {{{1}, {}}, {{}, {2}}}},
                                          Place{-1, {{{}, {0}}, {{}, {1}}}}));
}

TEST(PlacesOf, HasNodesWithoutDevicesAndUnknownOnes) {
  Host host = PlainHost(1, 0);
  EXPECT_THAT(PlacesOf(host), ElementsAre(Place{0, {{{0}, {}}}}, Place{1, {}}));
  host.interconnect.gpus[0].numa_node = -1;
  EXPECT_THAT(PlacesOf(host), ElementsAre(Place{0, {}}, Place{1, {}}, Place{-1, {{{0}, {}}}}));
  host.numa_nodes.pop_back();  // there is only one
  EXPECT_THAT(PlacesOf(host), ElementsAre(Place{0, {{{0}, {}}}}));
  host.interconnect.gpus[0].numa_node = 7;  // nobody told of it before
  EXPECT_THAT(PlacesOf(host), ElementsAre(Place{0, {}}, Place{7, {{{0}, {}}}}));
  EXPECT_THAT(PlacesOf(Host{}), IsEmpty());
}

TEST(NvlinkMeshesOf, TellWhetherAllAreAlike) {
  EXPECT_THAT(NvlinkMeshesOf(Switched(4).interconnect), ElementsAre(NvlinkMesh{{0, 1, 2, 3}, 18}));
  EXPECT_THAT(NvlinkMeshesOf(Dgx1V().hosts[0].interconnect),
              ElementsAre(NvlinkMesh{{0, 1, 2, 3, 4, 5, 6, 7}, 0}));
  EXPECT_THAT(NvlinkMeshesOf(Pcie4().hosts[0].interconnect), IsEmpty());
  Host host = PlainHost(5, 0);
  Connect(host, 0, 3, {Path::kNvlink, 4});
  Connect(host, 1, 2, {Path::kNvlink, 2});
  Connect(host, 2, 4, {Path::kNvlink, 2});  // 1 and 4 have none
  EXPECT_THAT(NvlinkMeshesOf(host.interconnect),
              ElementsAre(NvlinkMesh{{0, 3}, 4}, NvlinkMesh{{1, 2, 4}, 0}));
}

TEST(Alike, IsBlindForNamesAndMeasuredRates) {
  const Host host = Switched(4);
  Host other = host;
  other.name = "another";
  other.core_rates.reads[0].alone_bytes_per_s *= 1.1;
  other.links[0].second.bytes_per_s *= 1.1;
  EXPECT_TRUE(Alike(host, other));
  const auto change = [&](auto changed) {
    Host one = host;
    changed(one);
    return Alike(host, one);
  };
  EXPECT_FALSE(change([](Host& one) { one.cores = 1; }));
  EXPECT_FALSE(change([](Host& one) { one.interconnect.gpus[3].model = "L4"; }));
  EXPECT_FALSE(change([](Host& one) { one.interconnect.nics[3].bytes_per_s = 1; }));
  EXPECT_FALSE(change([](Host& one) { one.interconnect.nvswitches = 0; }));
  EXPECT_FALSE(change([](Host& one) { Connect(one, 0, 1, {Path::kNvlink, 17}); }));
}

TEST(HostsToShow, LeavesAlikeOnesOut) {
  EXPECT_EQ(HostsToShow(DgxH100(1)).size(), 1u);
  EXPECT_EQ(HostsToShow(DgxH100(8)).size(), 8u);
  const std::vector<ShownHost> nine = HostsToShow(DgxH100(9));
  EXPECT_THAT(nine, ElementsAre(ShownHost{0}, ShownHost{1},
                                ShownHost{.left_out = {2, 3, 4, 5, 6, 7}}, ShownHost{8}));
  // Of each kind.
  Topology mixed = Alike(Switched(2), 10);
  for (const int host : {0, 4, 7}) mixed.hosts[host].cores = 1;
  EXPECT_THAT(HostsToShow(mixed),
              ElementsAre(ShownHost{0}, ShownHost{4}, ShownHost{7}, ShownHost{1}, ShownHost{2},
                          ShownHost{.left_out = {3, 5, 6, 8}}, ShownHost{9}));
}

TEST(HostsToShow, HasALimit) {
  Topology unlike = CpuHosts(100);
  for (int host = 0; host < 100; ++host) unlike.hosts[host].cores = host + 1;
  const std::vector<ShownHost> shown = HostsToShow(unlike);
  ASSERT_EQ(shown.size(), 33u);
  EXPECT_EQ(shown[31].host, 31);
  EXPECT_EQ(shown[32].left_out.size(), 68u);
  EXPECT_FALSE(shown[32].left_out_alike);
}

}  // namespace
}  // namespace skein::topology::draw
