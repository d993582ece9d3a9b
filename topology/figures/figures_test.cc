#include "topology/figures/figures.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/dtype.h"
#include "base/test_util.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "topology/presets/presets.h"

namespace skein::topology {
namespace {

using ::testing::HasSubstr;

// Two hosts of four GPUs, of which each reads at its own rate.
Topology Given() {
  Topology given = *MakePreset("pcie-4", 2, "ethernet-10g");
  double rate = 1e12;
  for (Host& host : given.hosts) {
    host.core_rates.reads = {{1 << 20, rate += 1e9, rate}};
    host.core_rates.products = {{DType::kBF16, 0, 1, 1e9}};
    for (size_t i = 0; i < host.interconnect.gpus.size(); ++i) {
      Gpu& gpu = host.interconnect.gpus[i];
      gpu.bus_id = absl::StrCat("0000:0", i, ":00.0");
      gpu.rates.reads = {{1 << 20, rate += 1e9, rate}};
      gpu.to_host.bytes_per_s = rate += 1e9;
    }
    host.exchanges = {{Exchange::kAllReduce, 2, false, {{1024, absl::Nanoseconds(rate)}}}};
  }
  return given;
}

Topology Bare(const std::string& name, int gpus) {
  Topology bare;
  Host& host = bare.hosts.emplace_back(Given().hosts[0]);
  host.name = name;
  host.core_rates = {};
  host.exchanges.clear();
  host.links.clear();
  host.interconnect.gpus.resize(gpus);
  for (Gpu& gpu : host.interconnect.gpus) {
    gpu.rates = {};
    gpu.to_host = {};
  }
  return bare;
}

TEST(FiguresTest, AHostTakesThoseOfItsName) {
  Topology given = Given();
  const LinkRate slow = {Origin::kMeasured, absl::Microseconds(9), 1e9};
  given.hosts[1].interconnect.slow_pairs = {{0, 1, slow}, {1, 2, slow}};  // one GPU is not there
  Topology mine = Bare("node1", 2);
  mine.hosts[0].memory_bytes = 12345;
  SKEIN_ASSERT_OK(TakeFigures(given, mine));
  const Host& of = mine.hosts.front();
  EXPECT_EQ(of.core_rates, given.hosts[1].core_rates);
  EXPECT_EQ(of.exchanges, given.hosts[1].exchanges);
  EXPECT_EQ(of.interconnect.gpus[1].rates, given.hosts[1].interconnect.gpus[1].rates);
  EXPECT_EQ(of.interconnect.gpus[1].to_host, given.hosts[1].interconnect.gpus[1].to_host);
  EXPECT_EQ(of.links, given.hosts[1].links);
  EXPECT_EQ(of.interconnect.slow_pairs, (std::vector<SlowPair>{{0, 1, slow}}));
  // What is there now stays, figures aside.
  EXPECT_EQ(of.memory_bytes, 12345);
  EXPECT_EQ(of.interconnect.gpus.size(), 2U);
  EXPECT_EQ(mine.fabric, given.fabric);
}

// Hosts that are alike need no file each.
TEST(FiguresTest, AnotherHostTakesThoseOfTheFirst) {
  Topology given = Given();
  given.hosts[0].interconnect.slow_pairs = {{0, 1, {.bytes_per_s = 1e9}}};
  Topology mine = Bare("elsewhere", 2);
  mine.hosts[0].interconnect.gpus[0].bus_id = "0000:77:00.0";
  // CUDA writes addresses otherwise than sysfs does.
  mine.hosts[0].interconnect.gpus[1].bus_id = "00000000:02:00.0";
  SKEIN_ASSERT_OK(TakeFigures(given, mine));
  const Host& of = mine.hosts.front();
  EXPECT_EQ(of.name, "elsewhere");
  EXPECT_EQ(of.core_rates, given.hosts[0].core_rates);
  EXPECT_EQ(of.interconnect.gpus[0].rates, given.hosts[0].interconnect.gpus[0].rates);
  EXPECT_EQ(of.interconnect.gpus[1].rates, given.hosts[0].interconnect.gpus[2].rates);
  EXPECT_TRUE(of.interconnect.slow_pairs.empty());  // which are of that host alone
}

TEST(FiguresTest, WhatHasNoRatesIsRefused) {
  Topology mine = Bare("node0", 2);
  Topology half = Given();  // reads alone predict nothing
  for (Gpu& gpu : half.hosts[0].interconnect.gpus) gpu.rates.products.clear();
  EXPECT_THAT(TakeFigures(half, mine),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("no rates of a ")));
  mine.hosts[0].interconnect.gpus[1].model = "NVIDIA H900";
  const Topology before = mine;
  EXPECT_THAT(TakeFigures(Given(), mine),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("no rates of a NVIDIA H900 on host node0")));
  EXPECT_EQ(mine, before);  // not the first GPU alone
  Topology cores = Bare("node0", 0);
  SKEIN_EXPECT_OK(TakeFigures(Given(), cores));
  Topology without = Given();
  without.hosts[0].core_rates = {};
  EXPECT_THAT(TakeFigures(without, cores),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("a core of host node0")));
}

}  // namespace
}  // namespace skein::topology
