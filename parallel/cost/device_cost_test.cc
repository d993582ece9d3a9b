#include "parallel/cost/device_cost.h"

#include <functional>
#include <string>
#include <vector>

#include "base/test_util.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "topology/presets/presets.h"

namespace skein::cost {
namespace {

using ::testing::HasSubstr;
using topology::DeviceRates;
using topology::Topology;

// 1 MiB stays in a cache, 1 GiB does not.
DeviceRates Rates() {
  DeviceRates rates;
  rates.reads = {{1 << 20, 40e9, 30e9}, {1 << 30, 10e9, 6e9}};
  rates.products = {
      {DType::kF32, 0, 1, 1e9}, {DType::kF32, 0, 101, 11e9}, {DType::kBF16, 0, 4, 8e9}};
  return rates;
}

double OperationsOf(const DeviceRates& rates, DType dtype, int64_t working_set_bytes, int64_t rows,
                    const CoreShare& share = {}) {
  return OperationsPerS(rates, {model::TypeShare{dtype}}, working_set_bytes, rows, share);
}

TEST(DeviceCostTest, CachesCountForSmallWorkingSets) {
  const DeviceRates rates = Rates();
  EXPECT_EQ(ReadBytesPerS(rates, 1), 40e9);
  EXPECT_EQ(ReadBytesPerS(rates, 1 << 20), 40e9);
  EXPECT_NEAR(ReadBytesPerS(rates, 1 << 25), 16e9, 1);  // half way from 2^20 to 2^30
  EXPECT_NEAR(ReadBytesPerS(rates, 1 << 25, {.together = true}), 10e9, 1);
  EXPECT_EQ(ReadBytesPerS(rates, 1 << 30), 10e9);
  EXPECT_EQ(ReadBytesPerS(rates, int64_t{1} << 40), 10e9);
}

TEST(DeviceCostTest, WhatIsMissedBehindOthersIsBetweenWorkingSets) {
  topology::DeviceRates rates;
  rates.reads = {{1 << 20, 8e9, 8e9, 4e9, 0.2}, {1 << 22, 4e9, 4e9, 2e9, 0.6}};
  const auto missed = [&](int64_t set, const CoreShare& share) {
    return MissedBehindOthers(rates, set, share);
  };
  const double seconds = (1 << 21) * (0.5 / 4e9 + 0.5 / 2e9 - 0.5 / 8e9 - 0.5 / 4e9);
  EXPECT_NEAR(absl::ToDoubleSeconds(missed(1 << 21, {.together = true}).first), seconds, 1e-8);
  EXPECT_NEAR(absl::ToDoubleSeconds(missed(1 << 21, {.threads = 2, .together = true}).first),
              seconds / 2, 1e-8);
  EXPECT_NEAR(missed(1 << 21, {.together = true}).again, 0.4, 1e-9);
  EXPECT_NEAR(missed(1 << 24, {.together = true}).again, 0.6, 1e-9);
  // Whatever the noise, a first pass is no faster than others.
  rates.reads[1].behind_bytes_per_s = 5e9;
  EXPECT_EQ(missed(1 << 22, {.together = true}).first, absl::ZeroDuration());
  // Not measured: two sets of 2 MiB are read as one of 4 MiB.
  for (topology::ReadRate& read : rates.reads) read.behind_bytes_per_s = read.missed_again = 0;
  const Missed of_sets = missed(1 << 21, {.together = true, .sets = 2});
  EXPECT_NEAR(absl::ToDoubleSeconds(of_sets.first), (1 << 21) * (1 / 4e9 - 0.5 / 8e9 - 0.5 / 4e9),
              1e-8);
  EXPECT_EQ(of_sets.again, 0);
}

TEST(DeviceCostTest, RanksThatShareCoresShareRates) {
  const DeviceRates rates = Rates();
  const CoreShare two = {.threads = 2, .together = true};
  EXPECT_EQ(ReadBytesPerS(rates, 1 << 30, two), 12e9);
  const CoreShare half = {.threads = 1, .of_a_core = 0.5, .together = true};
  EXPECT_EQ(ReadBytesPerS(rates, 1 << 30, half), 3e9);
  EXPECT_DOUBLE_EQ(OperationsOf(rates, DType::kF32, 0, 101, two), 22e9);
  EXPECT_DOUBLE_EQ(OperationsOf(rates, DType::kF32, 0, 101, half), 5.5e9);
}

TEST(DeviceCostTest, ThreadsShareCores) {
  const CoreShare alone = ShareOfCores(4, 1, 4, 1);
  EXPECT_EQ(alone.of_a_core, 1);
  EXPECT_FALSE(alone.together);
  EXPECT_EQ(ShareOfCores(4, 4, 1, 1).of_a_core, 1);
  EXPECT_TRUE(ShareOfCores(4, 4, 1, 1).together);
  EXPECT_EQ(ShareOfCores(2, 1, 4, 4).of_a_core, 0.5);
  EXPECT_TRUE(ShareOfCores(2, 1, 4, 4).together);
  EXPECT_EQ(ShareOfCores(4, 1, 4, 4).sets, 1);
  EXPECT_EQ(ShareOfCores(2, 1, 4, 1).sets, 2);
  EXPECT_EQ(ActiveRanks(4, 1, 4, 1), 1);
  EXPECT_EQ(ActiveRanks(4, 2, 2, 1), 2);
  EXPECT_EQ(ActiveRanks(4, 1, 4, 8), 4);
}

TEST(DeviceCostTest, ProductsGoByRows) {
  const DeviceRates rates = Rates();
  EXPECT_DOUBLE_EQ(OperationsOf(rates, DType::kF32, 0, 1), 1e9);
  // Times are on a line: of an operation a row, 1 ns of one row, 101 / 11 ns of 101.
  EXPECT_DOUBLE_EQ(OperationsOf(rates, DType::kF32, 0, 51), 51 / ((1e-9 + 101 / 11e9) / 2));
  EXPECT_DOUBLE_EQ(OperationsOf(rates, DType::kF32, 0, 1000), 11e9);
  // One row takes as long as the four that are known.
  EXPECT_DOUBLE_EQ(OperationsOf(rates, DType::kBF16, 0, 1), 2e9);
  EXPECT_DOUBLE_EQ(OperationsOf(rates, DType::kBF16, 0, 64), 8e9);
  EXPECT_DOUBLE_EQ(OperationsOf(rates, DType::kF16, 0, 1), 1e9);  // the first stands for it
}

// Times of 1 and 4 rows go on until each row takes as long as 16 do.
TEST(DeviceCostTest, ProductsHaveAKneeBetweenReadsAndArithmetic) {
  DeviceRates rates = Rates();
  const auto time = [&](int64_t rows) {
    return static_cast<double>(rows) / OperationsOf(rates, DType::kF32, 0, rows);
  };
  const auto of = [](int64_t rows, double time) {
    return topology::ProductRate{DType::kF32, 0, static_cast<int32_t>(rows),
                                 static_cast<double>(rows) / time};
  };
  rates.products = {of(1, 10), of(4, 10.3), of(16, 32)};
  EXPECT_NEAR(time(5), 10.4, 1e-6);
  EXPECT_NEAR(time(8), 16, 1e-6);
  EXPECT_NEAR(time(12), 24, 1e-6);
  EXPECT_NEAR(time(16), 32, 1e-6);
  EXPECT_NEAR(time(64), 128, 1e-6);
  // All on a line: there is none.
  rates.products = {of(1, 4), of(4, 10), of(16, 34)};
  EXPECT_NEAR(time(8), 18, 1e-6);
  // Nor where more rows come by a slower way than few.
  rates.products = {of(1, 4), of(4, 4), of(16, 64)};
  EXPECT_NEAR(time(8), 24, 1e-6);
}

// A cache that holds 64 MiB: products with as many bytes of weights are as those with 4 MiB.
TEST(DeviceCostTest, ProductsGoByWhatReadsSayOfCaches) {
  DeviceRates rates;
  rates.reads = {{1 << 20, 30e9, 30e9}, {1 << 26, 30e9, 30e9}, {1 << 30, 6e9, 6e9}};
  rates.products = {{DType::kF32, 1 << 22, 1, 4e9}, {DType::kF32, 1 << 30, 1, 1e9}};
  EXPECT_NEAR(OperationsOf(rates, DType::kF32, 1 << 26, 1), 4e9, 1);
  const double half_way = 2 / (1 / 4e9 + 1 / 1e9);
  EXPECT_NEAR(OperationsOf(rates, DType::kF32, 1 << 28, 1), half_way, 1);
  // Reads that are all alike tell nothing.
  rates.reads = {{1 << 30, 30e9, 30e9}};
  EXPECT_NEAR(OperationsOf(rates, DType::kF32, 1 << 26, 1), half_way, 1);
}

TEST(DeviceCostTest, MixedTypesTakeTheirTimesTogether) {
  const DeviceRates rates = Rates();
  // Of an operation, half of 1 ns and half of 0.5.
  EXPECT_DOUBLE_EQ(OperationsPerS(rates, {{DType::kF32, 0.5}, {DType::kBF16, 0.5}}, 0, 1),
                   1 / 0.75e-9);
  EXPECT_DOUBLE_EQ(OperationsPerS(rates, {{DType::kF32, 0.25}, {DType::kBF16, 0.75}}, 0, 1),
                   1 / 0.625e-9);
}

TEST(DeviceCostTest, QuantisedTypesStandForThoseThatAreLikeThem) {
  DeviceRates rates = Rates();
  EXPECT_DOUBLE_EQ(OperationsOf(rates, DType::kQ4_K, 0, 1), 1e9);  // none is measured
  rates.products.push_back({DType::kQ8_0, 0, 1, 3e9});
  EXPECT_DOUBLE_EQ(OperationsOf(rates, DType::kQ4_K, 0, 1), 3e9);  // the only one
  rates.products.push_back({DType::kQ4_0, 0, 1, 4e9});
  rates.products.push_back({DType::kQ4_K, 0, 1, 5e9});
  rates.products.push_back({DType::kQ6_K, 0, 1, 6e9});
  EXPECT_DOUBLE_EQ(OperationsOf(rates, DType::kFp8, 0, 1), 3e9);
  rates.products.push_back({DType::kFp8, 0, 1, 7e9});
  const struct {
    DType dtype;
    double rate;
  } kRows[] = {{DType::kQ8_0, 3e9},   {DType::kInt8, 3e9},   {DType::kFp8, 7e9},
               {DType::kQ4_0, 4e9},   {DType::kQ4_1, 4e9},   {DType::kQ5_1, 4e9},
               {DType::kInt4, 4e9},   {DType::kIQ4_NL, 4e9}, {DType::kQ2_K, 5e9},
               {DType::kQ3_K, 5e9},   {DType::kQ4_K, 5e9},   {DType::kQ5_K, 5e9},
               {DType::kIQ4_XS, 5e9}, {DType::kQ6_K, 6e9}};
  for (const auto& row : kRows) {
    EXPECT_DOUBLE_EQ(OperationsOf(rates, row.dtype, 0, 1), row.rate)
        << std::string(DTypeName(row.dtype));
  }
  EXPECT_DOUBLE_EQ(OperationsOf(rates, DType::kF16, 0, 1), 1e9);
}

TEST(DeviceCostTest, OverheadsGoByRows) {
  DeviceRates rates;
  EXPECT_EQ(OverheadOf(rates, 8).layer, absl::ZeroDuration());
  rates.overheads = {{4, absl::Microseconds(10), absl::Microseconds(2)},
                     {20, absl::Microseconds(50), absl::Microseconds(6)}};
  const auto is = [&](int64_t rows, int step, int layer) {
    return OverheadOf(rates, rows) ==
           topology::Overhead{rows, absl::Microseconds(step), absl::Microseconds(layer)};
  };
  EXPECT_TRUE(is(1, 10, 2));
  EXPECT_TRUE(is(4, 10, 2));
  EXPECT_TRUE(is(12, 30, 4));
  EXPECT_TRUE(is(20, 50, 6));
  EXPECT_TRUE(is(300, 50, 6));
}

TEST(DeviceCostTest, AttentionGoesByRowsAndShares) {
  DeviceRates rates;
  rates.attention = {{4, 1e9, 4e9}, {20, 3e9, 12e9}};
  const auto expect = [&](int64_t rows, double bytes_per_s, double operations_per_s,
                          const CoreShare& share = {}) {
    const topology::AttentionRate rate = AttentionOf(rates, int64_t{1} << 30, rows, share);
    EXPECT_EQ(rate.rows, rows);
    EXPECT_NEAR(rate.bytes_per_s, bytes_per_s, 1) << rows;
    EXPECT_NEAR(rate.operations_per_s, operations_per_s, 1) << rows;
  };
  expect(1, 1e9, 4e9);
  expect(12, 1.5e9, 6e9);  // half of either time
  expect(64, 3e9, 12e9);
  expect(4, 1.5e9, 6e9, {.threads = 3, .of_a_core = 0.5});
  // Arithmetic that takes no time with 4 rows takes half as long with 12 as with 20.
  rates.attention[0].operations_per_s = 0;
  expect(4, 1e9, 0);
  expect(12, 1.5e9, 24e9);
}

TEST(DeviceCostTest, AttentionGoesByWhatCachesHold) {
  DeviceRates rates;
  rates.attention = {{8, 6e9, 5e9, 1 << 20}, {8, 3e9, 5e9, 1 << 22}, {8, 1e9, 5e9, 1 << 26}};
  const auto bytes = [&](int64_t working_set_bytes) {
    const topology::AttentionRate rate = AttentionOf(rates, working_set_bytes, 8);
    EXPECT_NEAR(rate.operations_per_s, 5e9, 1) << working_set_bytes;
    EXPECT_EQ(rate.working_set_bytes, working_set_bytes);
    return rate.bytes_per_s;
  };
  EXPECT_NEAR(bytes(1), 6e9, 1);
  EXPECT_NEAR(bytes(1 << 20), 6e9, 1);
  EXPECT_NEAR(bytes(1 << 21), 4e9, 1);  // half of either time
  EXPECT_NEAR(bytes(1 << 22), 3e9, 1);
  EXPECT_NEAR(bytes(1 << 24), 1.5e9, 1);
  EXPECT_NEAR(bytes(int64_t{1} << 40), 1e9, 1);
}

TEST(DeviceCostTest, ProductsGoByWhatCachesHold) {
  DeviceRates rates;
  rates.products = {{DType::kF32, 1 << 20, 1, 9e9},  {DType::kF32, 1 << 20, 4, 12e9},
                    {DType::kF32, 1 << 24, 1, 3e9},  {DType::kF32, 1 << 30, 1, 1e9},
                    {DType::kBF16, 1 << 10, 1, 7e9}, {DType::kBF16, 0, 1, 6e9}};
  EXPECT_DOUBLE_EQ(OperationsOf(rates, DType::kF32, 1, 1), 9e9);
  EXPECT_DOUBLE_EQ(OperationsOf(rates, DType::kF32, 1 << 20, 4), 12e9);
  EXPECT_NEAR(OperationsOf(rates, DType::kF32, 1 << 22, 1), 4.5e9, 1);  // half way
  EXPECT_NEAR(OperationsOf(rates, DType::kF32, 1 << 24, 1), 3e9, 1);
  EXPECT_NEAR(OperationsOf(rates, DType::kF32, 1 << 27, 1), 1.5e9, 1);
  EXPECT_DOUBLE_EQ(OperationsOf(rates, DType::kF32, int64_t{1} << 40, 1),
                   1e9);  // the largest known
  EXPECT_DOUBLE_EQ(OperationsOf(rates, DType::kBF16, 1 << 10, 1), 7e9);
  EXPECT_DOUBLE_EQ(OperationsOf(rates, DType::kBF16, 1 << 11, 1), 6e9);  // no cache holds it
}

TEST(DeviceCostTest, WhatLacksRatesIsNamed) {
  SKEIN_EXPECT_OK(CheckComplete(*topology::MakePreset("dgx-1v", 2)));
  Topology cores;
  cores.hosts = {{.name = "box", .cores = 2, .memory_bytes = 1 << 30}};
  cores.hosts[0].core_rates = Rates();
  cores.hosts[0].links = {{topology::Path::kSelf, {.bytes_per_s = 1e9}}};
  SKEIN_EXPECT_OK(CheckComplete(cores));
  const auto refusal = [](Topology topology, const std::function<void(topology::Host&)>& lose) {
    lose(topology.hosts.back());
    return std::string(CheckComplete(topology).message());
  };
  EXPECT_THAT(refusal(cores, [](auto& host) { host.core_rates.products.clear(); }),
              HasSubstr("how fast the cores of host box are: take those of a preset"));
  EXPECT_THAT(refusal(cores, [](auto& host) { host.links.clear(); }), HasSubstr("host box"));
  EXPECT_THAT(refusal(cores, [](auto& host) { host.name.clear(); }),
              HasSubstr("the name of the host: take those of a preset"));
  EXPECT_THAT(refusal(cores, [](auto& host) { host.cores = 0; }), HasSubstr("the cores of the"));
  EXPECT_THAT(refusal(cores, [](auto& host) { host.memory_bytes = 0; }),
              HasSubstr("the memory of host box: take those"));
  Topology unconnected = *topology::MakePreset("dgx-1v", 2);
  unconnected.fabric = {};
  EXPECT_THAT(refusal(unconnected, [](auto&) {}), HasSubstr("what connects 2 hosts: take those"));
  const Topology gpus = *topology::MakePreset("pcie-4", 2);
  EXPECT_THAT(refusal(gpus, [](auto& host) { host.interconnect.gpus[2].rates.reads.clear(); }),
              HasSubstr("how fast GPU2 of host node1 is"));
  EXPECT_THAT(refusal(gpus, [](auto& host) { host.interconnect.gpus[3].memory_bytes = 0; }),
              HasSubstr("the memory of GPU3 of host node1"));
  EXPECT_THAT(refusal(gpus, [](auto& host) { host.links.pop_back(); }),
              HasSubstr("how fast SYS is, which connects GPU0 and GPU2 of host node1"));
}

}  // namespace
}  // namespace skein::cost
