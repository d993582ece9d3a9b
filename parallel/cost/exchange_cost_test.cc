#include "parallel/cost/exchange_cost.h"

#include <vector>

#include "base/test_util.h"
#include "gtest/gtest.h"
#include "topology/presets/presets.h"

namespace skein::cost {
namespace {

using topology::Exchange;
using topology::MakePreset;
using topology::Topology;

double Us(absl::Duration duration) { return absl::ToDoubleMicroseconds(duration); }

TEST(ExchangeCostTest, LinksByTheirPath) {
  const Topology dgx1 = *MakePreset("dgx-1v", 2);
  EXPECT_EQ(LinkBetween(dgx1, {0, 0}, {0, 1}).bytes_per_s, 25e9);    // NV1
  EXPECT_EQ(LinkBetween(dgx1, {0, 0}, {0, 3}).bytes_per_s, 50e9);    // NV2
  EXPECT_EQ(LinkBetween(dgx1, {0, 0}, {0, 7}).bytes_per_s, 6.25e9);  // SYS
  EXPECT_EQ(LinkBetween(dgx1, {0, 0}, {1, 0}).bytes_per_s, 12.5e9);  // EDR
  EXPECT_EQ(LinkBetween(*MakePreset("dgx-h100"), {0, 0}, {0, 7}).bytes_per_s, 450e9);
}

TEST(ExchangeCostTest, ASlowNicBindsAFastFabric) {
  Topology two = *MakePreset("pcie-4", 2, "ib-ndr");
  EXPECT_EQ(LinkBetween(two, {0, 0}, {1, 3}).bytes_per_s, 12.5e9);
  two.hosts[1].interconnect.nics[0].bytes_per_s = 1e9;
  EXPECT_EQ(LinkBetween(two, {0, 0}, {1, 3}).bytes_per_s, 1e9);
  EXPECT_EQ(LinkBetween(two, {1, 3}, {0, 0}).bytes_per_s, 1e9);
}

// A pair that was measured to be slow binds its messages, and sums over it where no ring is without
// it.
TEST(ExchangeCostTest, SlowPairsHaveTheirOwnWay) {
  Topology dgx = *MakePreset("dgx-h100");
  const std::vector<Site> two = {{0, 2}, {0, 5}};
  const absl::Duration before = AllReduceTime(dgx, two, 450'000'000);
  const topology::LinkRate slow = {topology::Origin::kMeasured, absl::Microseconds(7), 45e9};
  dgx.hosts[0].interconnect.slow_pairs = {{2, 5, slow}};
  EXPECT_EQ(LinkBetween(dgx, {0, 5}, {0, 2}), slow);
  EXPECT_EQ(LinkBetween(dgx, {0, 2}, {0, 4}).bytes_per_s, 450e9);
  EXPECT_NEAR(Us(SendTime(dgx, {0, 2}, {0, 5}, 45'000)), 7 + 1, 1e-9);
  EXPECT_GT(AllReduceTime(dgx, two, 450'000'000), 9 * before);
  // Of the first two GPUs, which are well, as a probe measured them.
  dgx.hosts[0].exchanges = {{Exchange::kAllReduce, 2, false, {{450'000'000, before}}}};
  EXPECT_EQ(AllReduceTime(dgx, std::vector<Site>{{0, 0}, {0, 1}}, 450'000'000), before);
  EXPECT_GT(AllReduceTime(dgx, two, 450'000'000), 9 * before);
}

// By hand: 3 us a hop and 450 GB/s each way.
TEST(ExchangeCostTest, SumsTakeOneShotOrARing) {
  const Topology dgx = *MakePreset("dgx-h100");
  const std::vector<Site> two = {{0, 0}, {0, 1}};
  const std::vector<Site> eight = {{0, 0}, {0, 1}, {0, 2}, {0, 3}, {0, 4}, {0, 5}, {0, 6}, {0, 7}};
  EXPECT_EQ(AllReduceTime(dgx, {two.data(), 1}, 1 << 20), absl::ZeroDuration());
  EXPECT_NEAR(Us(AllReduceTime(dgx, two, 45'000)), 3 + 0.1, 1e-3);
  EXPECT_NEAR(Us(AllReduceTime(dgx, eight, 45'000)), 3 + 0.7, 1e-3);
  // 2 x 3 hops there and back, 7/4 of the bytes.
  EXPECT_NEAR(Us(AllReduceTime(dgx, eight, 450'000'000)), 18 + 1750, 1e-3);
  EXPECT_NEAR(Us(AllGatherTime(dgx, eight, 450'000'000)), 9 + 875, 1e-3);
}

// By hand: 10 us and 50 GB/s a copy, and two messages; between hosts 10 us and 50 GB/s, too.
TEST(ExchangeCostTest, SumsByHostsAreCopiedThereAndBack) {
  Topology dgx = *MakePreset("dgx-h100");
  const std::vector<Site> four = {{0, 0}, {0, 1}, {0, 2}, {0, 3}};
  EXPECT_EQ(HostSumTime(dgx, {four.data(), 1}, 1 << 20), absl::ZeroDuration());
  EXPECT_NEAR(Us(HostSumTime(dgx, four, 50'000'000)), 2 * (10 + 1000) + 2 * 10 + 1500, 1e-3);
  dgx.hosts[0].interconnect.gpus[3].to_host.bytes_per_s = 25e9;  // the slowest binds
  EXPECT_NEAR(Us(HostSumTime(dgx, four, 50'000'000)), 2 * (10 + 2000) + 2 * 10 + 3000, 1e-3);
  const Topology slow = *MakePreset("dgx-h100", 2, "ethernet-10g");
  const std::vector<Site> across = {{0, 0}, {0, 1}, {1, 0}, {1, 1}};
  EXPECT_NEAR(Us(HostSumTime(slow, across, 5'000'000)), 2 * (10 + 100) + 2 * 30 + 6000, 1e-3);
  dgx.hosts[0].interconnect.gpus[2].to_host = {};
  EXPECT_EQ(HostSumTime(dgx, four, 1 << 20), AllReduceTime(dgx, four, 1 << 20));
}

TEST(ExchangeCostTest, TheSlowestLinkBindsARing) {
  const Topology bridged = *MakePreset("pcie-4-bridged");
  const std::vector<Site> four = {{0, 0}, {0, 1}, {0, 2}, {0, 3}};
  const std::vector<Site> pair = {{0, 0}, {0, 1}};
  constexpr int64_t kBytes = 100'000'000;
  EXPECT_NEAR(Us(AllReduceTime(bridged, four, kBytes)), 4 * 10 + 1.5e8 / 12.5e9 * 1e6, 1e-3);
  EXPECT_LT(AllReduceTime(bridged, pair, kBytes), AllReduceTime(bridged, four, kBytes) / 10);
}

// A cube mesh has a ring of NVLinks, though not in the order of its GPUs; of two each there is
// none.
TEST(ExchangeCostTest, RingsGoOverTheFastestLinks) {
  const Topology dgx1 = *MakePreset("dgx-1v");
  std::vector<Site> all;
  for (int gpu = 0; gpu < 8; ++gpu) all.push_back({0, gpu});
  EXPECT_NEAR(Us(AllGatherTime(dgx1, all, 25'000'000'000)), 9 + 437'500, 1);
}

// GPUs 0 and 1 of a cube mesh have one NVLink, 0 and 3 two, 0 and 7 none.
TEST(ExchangeCostTest, OtherGpusThanTheMeasuredTakeWhatTheirLinksSay) {
  Topology mesh = *MakePreset("dgx-1v");
  const auto pair = [](int32_t gpu) { return std::vector<Site>{{0, 0}, {0, gpu}}; };
  const absl::Duration one = AllReduceTime(mesh, pair(1), 25'000'000);
  const absl::Duration double_link = AllReduceTime(mesh, pair(3), 25'000'000);
  const absl::Duration gathered = AllGatherTime(mesh, pair(1), 25'000'000);
  const absl::Duration gathered_far = AllGatherTime(mesh, pair(7), 25'000'000);
  for (const Exchange exchange : {Exchange::kAllReduce, Exchange::kAllGather}) {
    mesh.hosts[0].exchanges.push_back({exchange, 2, false, {{25'000'000, absl::Milliseconds(7)}}});
  }
  EXPECT_EQ(AllReduceTime(mesh, pair(1), 25'000'000), absl::Milliseconds(7));
  EXPECT_NEAR(absl::FDivDuration(AllReduceTime(mesh, pair(3), 25'000'000), absl::Milliseconds(7)),
              absl::FDivDuration(double_link, one), 1e-6);
  EXPECT_LT(double_link, one * 0.6);
  EXPECT_NEAR(absl::FDivDuration(AllGatherTime(mesh, pair(7), 25'000'000), absl::Milliseconds(7)),
              absl::FDivDuration(gathered_far, gathered), 1e-6);
  EXPECT_GT(gathered_far, gathered * 2);
}

TEST(ExchangeCostTest, CurvesThatWereMeasuredCount) {
  Topology dgx = *MakePreset("dgx-h100", 2);
  const auto us = [](double us) { return absl::Microseconds(us); };
  for (topology::Host& host : dgx.hosts) {
    host.exchanges = {
        {Exchange::kAllReduce, 2, false, {{1000, us(5)}, {2000, us(7)}, {4000, us(20)}}},
        {Exchange::kAllReduce, 2, true, {{1000, us(50)}}},
        {Exchange::kSendReceive, 2, false, {{1000, us(1)}, {2000, us(2)}}},
        {Exchange::kTokenReturn, 2, false, {{4, us(100)}, {256, us(226)}}}};
  }
  const std::vector<Site> two = {{0, 0}, {0, 1}};
  EXPECT_NEAR(Us(AllReduceTime(dgx, two, 1)), 5, 1e-9);
  EXPECT_NEAR(Us(AllReduceTime(dgx, two, 1500)), 6, 1e-9);
  EXPECT_NEAR(Us(AllReduceTime(dgx, two, 4000)), 20, 1e-9);
  EXPECT_NEAR(Us(AllReduceTime(dgx, two, 6000)), 33, 1e-9);  // on by the last two
  // Alike links; and two ranks of each of two hosts, of which a curve is behind another of four.
  EXPECT_EQ(AllReduceTime(dgx, std::vector<Site>{{0, 5}, {0, 2}}, 1500),
            AllReduceTime(dgx, two, 1500));
  dgx.hosts[0].exchanges.push_back({Exchange::kAllReduce, 4, true, {{1000, us(1)}}});
  const std::vector<Site> four = {{0, 0}, {0, 1}, {1, 0}, {1, 1}};
  EXPECT_GT(AllReduceTime(dgx, four, 1000), us(1));
  dgx.hosts[0].exchanges.push_back(
      {Exchange::kAllReduce, 4, true, {{1000, us(77)}}, 0, false, /*ranks_per_host=*/2});
  EXPECT_EQ(AllReduceTime(dgx, four, 1000), us(77));
  EXPECT_NE(AllReduceTime(dgx, std::vector<Site>{{0, 0}, {0, 1}, {0, 2}, {1, 1}}, 1000), us(77));
  const std::vector<Site> across = {{0, 0}, {1, 0}};
  EXPECT_NEAR(Us(AllReduceTime(dgx, across, 9000)), 50, 1e-9);
  const std::vector<Site> three = {{0, 0}, {0, 1}, {0, 2}};
  EXPECT_NEAR(Us(AllReduceTime(dgx, three, 4500)), 3.02, 1e-3);  // of links
  EXPECT_NEAR(Us(SendTime(dgx, {0, 0}, {0, 5}, 1500)), 1.5, 1e-9);
  EXPECT_NEAR(Us(SendTime(dgx, {0, 0}, {1, 5}, 50'000)), 10 + 1, 1e-9);  // of the fabric
  EXPECT_NEAR(Us(TokenReturnTime(dgx, {0, 5}, {0, 0}, 16)), 130, 1e-9);
  EXPECT_NEAR(Us(TokenReturnTime(dgx, {1, 0}, {0, 0}, 16)), 10, 0.01);  // as a message
}

TEST(ExchangeCostTest, WhoIsAwakeReceivesSooner) {
  Topology box;
  const auto us = [](double us) { return absl::Microseconds(us); };
  box.hosts = {{.name = "box", .cores = 2}};
  box.hosts[0].exchanges = {{Exchange::kSendReceive, 2, false, {{1000, us(150)}}},
                            {Exchange::kSendToAwake, 2, false, {{1000, us(5)}}}};
  EXPECT_NEAR(Us(SendTime(box, {0, -1}, {0, -1}, 1)), 150, 1e-9);
  EXPECT_NEAR(Us(SendTime(box, {0, -1}, {0, -1}, 1, Receiver::kAwake)), 5, 1e-9);
  EXPECT_NEAR(Us(TokenReturnTime(box, {0, -1}, {0, -1}, 1, Receiver::kAwake)), 5, 1e-9);
  box.hosts[0].exchanges.pop_back();
  EXPECT_NEAR(Us(SendTime(box, {0, -1}, {0, -1}, 1, Receiver::kAwake)), 150, 1e-9);
}

TEST(ExchangeCostTest, RanksWithCoresOfTheirOwnSumAsAGroupAlone) {
  Topology box;
  const auto us = [](double us) { return absl::Microseconds(us); };
  box.hosts = {{.name = "box", .cores = 2}};
  const std::vector<Site> two = {{0, -1}, {0, -1}};
  for (const bool alone_first : {false, true}) {
    box.hosts[0].exchanges = {
        {.exchange = Exchange::kAllReduce, .ranks = 2, .times = {{1000, us(15)}}},
        {.exchange = Exchange::kAllReduce, .ranks = 2, .times = {{1000, us(3)}}, .alone = true},
        {.exchange = Exchange::kAllGather, .ranks = 2, .times = {{1000, us(4)}}}};
    if (alone_first) std::swap(box.hosts[0].exchanges[0], box.hosts[0].exchanges[1]);
    EXPECT_NEAR(Us(AllReduceTime(box, two, 1, {.of_a_core = 0.5})), 15, 1e-9);
    EXPECT_NEAR(Us(AllReduceTime(box, two, 1, {.of_a_core = 1})), 3, 1e-9);
    EXPECT_NEAR(Us(AllGatherTime(box, two, 1, {.of_a_core = 1})), 4, 1e-9);  // there is no other
  }
}

}  // namespace
}  // namespace skein::cost
