#include "parallel/planner/host_kinds.h"

#include <set>
#include <vector>

#include "base/test_util.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "parallel/planner/cards_test_util.h"
#include "topology/presets/presets.h"

namespace skein::plan {
namespace {

using topology::MakePreset;
using topology::Topology;

TEST(HostKindsTest, AlikeSitesHaveOneKey) {
  Topology cluster = *MakePreset("dgx-h100", 3);
  cluster.hosts[2].interconnect.gpus[1].memory_bytes /= 2;
  const HostKinds kinds(cluster);
  const auto key = [&](const std::vector<Group>& stages) { return kinds.KeyOf(stages); };
  EXPECT_EQ(key({{{0, 0}, {0, 1}}, {{1, 0}}}), key({{{1, 0}, {1, 1}}, {{0, 0}}}));
  EXPECT_NE(key({{{0, 0}, {0, 1}}, {{1, 0}}}), key({{{0, 0}, {0, 1}}, {{0, 0}}}));  // one host
  EXPECT_NE(key({{{0, 0}, {0, 1}}}), key({{{0, 0}}, {{0, 1}}}));
  EXPECT_NE(key({{{0, 0}}}), key({{{0, 1}}}));
  EXPECT_NE(key({{{0, 0}}}), key({{{2, 0}}}));  // of another kind
}

// All of seventeen measured hosts but those that differ by more than measurements do.
TEST(FoldAlikeHostsTest, FiguresThatDifferLittleAreTheFirstOnes) {
  Topology few = AsMeasured(*MakePreset("dgx-h100", 16));
  EXPECT_EQ(FoldAlikeHosts(few), 0);
  Topology many = AsMeasured(*MakePreset("dgx-h100", 20));
  Scale(many.hosts[3].interconnect.gpus[7], 0.8);
  many.hosts[5].interconnect.gpus[0].model = "another";
  many.hosts[7].exchanges = {
      {topology::Exchange::kAllReduce, 2, false, {{1024, absl::Seconds(1)}}}};
  many.hosts[9].memory_bytes -= int64_t{1} << 30;
  many.hosts[10].interconnect.gpus[2].memory_bytes -= int64_t{1} << 30;
  many.hosts[11].links[0].second.bytes_per_s /= 2;
  many.hosts[13].interconnect.slow_pairs = {{1, 4, {.bytes_per_s = 1e9}}};
  for (topology::Host& host : many.hosts) {
    host.core_rates.reads = {{1 << 20, 2e10, 1e10, 5e9, 0.5}};
  }
  many.hosts[14].core_rates.reads[0].behind_bytes_per_s = 8e9;
  many.hosts[15].core_rates.reads[0].missed_again = 0.75;
  many.hosts[16].core_rates.reads[0].missed_again = 0.55;
  const Topology before = many;
  EXPECT_EQ(FoldAlikeHosts(many), 12);
  const std::set<size_t> own = {3, 5, 7, 11, 13, 14, 15};
  for (size_t at = 0; at < many.hosts.size(); ++at) {
    EXPECT_EQ(many.hosts[at].name, before.hosts[at].name);
    if (own.contains(at)) {
      EXPECT_EQ(many.hosts[at], before.hosts[at]) << at;
      continue;
    }
    EXPECT_TRUE(topology::AlikeButForName(many.hosts[at], many.hosts[0])) << at;
  }
  EXPECT_EQ(many.hosts[0].memory_bytes, before.hosts[9].memory_bytes);  // that all have
  EXPECT_EQ(many.hosts[0].interconnect.gpus[2].memory_bytes,
            before.hosts[10].interconnect.gpus[2].memory_bytes);
  EXPECT_EQ(many.hosts[0].interconnect.gpus[1], before.hosts[0].interconnect.gpus[1]);
  EXPECT_EQ(
      FoldedText(15),
      "15 hosts counted as others that are built alike, with figures that measurements cannot "
      "tell apart.");
}

// Each has 7% less memory than the one before, and the fourth is no longer like the first.
TEST(FoldAlikeHostsTest, AKindDoesNotDrift) {
  Topology many = *MakePreset("dgx-h100", 17);
  for (size_t at = 1; at < 4; ++at) {
    many.hosts[at].memory_bytes = many.hosts[at - 1].memory_bytes / 100 * 93;
  }
  FoldAlikeHosts(many);
  EXPECT_EQ(many.hosts[1].memory_bytes, many.hosts[0].memory_bytes);
  EXPECT_LT(many.hosts[3].memory_bytes, many.hosts[0].memory_bytes);
}

}  // namespace
}  // namespace skein::plan
