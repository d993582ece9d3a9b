#include "worker/probe/host_links.h"

#include <string>
#include <vector>

#include "absl/time/time.h"
#include "gtest/gtest.h"

namespace skein::worker {
namespace {

using topology::Connection;
using topology::LinkRate;
using topology::Origin;
using topology::Path;

LinkRate Measured(double bytes_per_s, double us = 10, double spread = 0) {
  return {Origin::kMeasured, absl::Microseconds(us), bytes_per_s, spread};
}

topology::Host HostOf(const std::vector<std::vector<Connection>>& connections) {
  topology::Host host;
  host.interconnect.gpus.resize(connections.size());
  host.interconnect.connections = connections;
  return host;
}

TEST(LinkOfMessagesTest, IsTheLeastMessagesLatencyAndTheLargestOnesRate) {
  const topology::ExchangeCurve curve = {.times = {{1024, absl::Microseconds(10)},
                                                   {1000, absl::Microseconds(20)},
                                                   {5000, absl::Microseconds(40)}},
                                         .spread = 0.25};
  EXPECT_EQ(LinkOfMessages(curve), Measured(4000 / 20e-6, 10, 0.25));
}

TEST(SetLinksTest, OnCoresIsTheMedianPairs) {
  topology::Host host;
  SetLinks(std::vector<PairRate>{{0, 1, Measured(5e9, 10, 0.1)}, {2, 3, Measured(4e9, 10, 0.3)}},
           host);
  ASSERT_EQ(host.links.size(), 1u);
  EXPECT_EQ(host.links[0].first, Path::kSelf);
  EXPECT_EQ(host.links[0].second, Measured(5e9, 10, 0.3));  // the worst of their spreads
  // Of two that share a core, one may be far slower: no GPUs are.
  SetLinks(std::vector<PairRate>{{0, 3, Measured(5e9)}, {1, 2, Measured(1e9)}}, host = {});
  EXPECT_TRUE(host.interconnect.slow_pairs.empty());
  host.name = "host";
  EXPECT_TRUE(topology::CheckHost("host", host).ok());
}

// Paths are apart, NVLinks are by the link, and a pair that is slow stays known.
TEST(SetLinksTest, SlowPairsStandBesideTheirPath) {
  const Connection self, two{Path::kNvlink, 2}, one{Path::kNvlink, 1}, pcie{Path::kNode};
  topology::Host host = HostOf({{self, two, one, pcie},
                                {two, self, pcie, one},
                                {one, pcie, self, two},
                                {pcie, one, two, self}});
  SetLinks(std::vector<PairRate>{{2, 3, Measured(25e9), 0},  // half of what its NVLinks should
                                 {0, 1, Measured(50e9), 0},
                                 {0, 2, Measured(24e9), 1},
                                 {1, 3, Measured(26e9, 24), 1},  // late
                                 {0, 3, Measured(10e9), 2},
                                 {1, 2, Measured(9e9), 2}},
           host);
  ASSERT_EQ(host.links.size(), 2u);
  EXPECT_EQ(host.links[0].first, Path::kNvlink);
  EXPECT_EQ(host.links[0].second, Measured(25e9));
  EXPECT_EQ(host.links[1].first, Path::kNode);
  EXPECT_EQ(host.links[1].second, Measured(10e9));
  const std::vector<topology::SlowPair> slow = {{1, 3, Measured(26e9, 24)}, {2, 3, Measured(25e9)}};
  EXPECT_EQ(host.interconnect.slow_pairs, slow);
}

// Four pairs of a round pass one link between sockets, where one of another round has it alone.
TEST(SetLinksTest, PairsThatShareAWayAreNotSlow) {
  const Connection self, far{Path::kSystem};
  std::vector<std::vector<Connection>> connections(8, std::vector<Connection>(8, far));
  for (size_t i = 0; i < 8; ++i) connections[i][i] = self;
  topology::Host host = HostOf(connections);
  std::vector<PairRate> pairs = {
      {0, 4, Measured(5e9), 0},  {1, 5, Measured(5e9), 0},  {2, 6, Measured(6e9), 0},
      {3, 7, Measured(5e9), 0},  {0, 5, Measured(20e9), 1}, {1, 4, Measured(20e9), 2},
      {2, 5, Measured(20e9), 3}, {3, 4, Measured(20e9), 4}, {3, 6, Measured(19e9), 5}};
  SetLinks(pairs, host);
  EXPECT_TRUE(host.interconnect.slow_pairs.empty());
  pairs[1].rate.bytes_per_s = 1e9;  // far slower than those of its round
  host.links.clear();
  SetLinks(pairs, host);
  ASSERT_EQ(host.interconnect.slow_pairs.size(), 1u);
  EXPECT_EQ(host.interconnect.slow_pairs[0].second, 5);
}

}  // namespace
}  // namespace skein::worker
