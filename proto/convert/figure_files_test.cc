#include "proto/convert/figure_files.h"

#include <filesystem>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "base/test_util.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "topology/presets/presets.h"

namespace skein::convert {
namespace {

using ::testing::HasSubstr;
using topology::Topology;

Topology Measured() {
  Topology topology = *topology::MakePreset("pcie-4");
  topology::Host& host = topology.hosts[0];
  host.core_rates.reads = {{1 << 20, 2e10, 1e10}};
  host.core_rates.origin = topology::Origin::kMeasured;
  host.exchanges = {{topology::Exchange::kAllReduce, 2, false, {{1024, absl::Microseconds(3)}}}};
  for (size_t i = 0; i < host.interconnect.gpus.size(); ++i) {
    host.interconnect.gpus[i].bus_id = absl::StrCat("0000:0", i, ":00.0");
  }
  host.interconnect.gpus[1].to_host.bytes_per_s = 5e10;
  topology.fabric.link.bytes_per_s = 1e9;
  return topology;
}

class KeptTest : public ::testing::Test {
 protected:
  // Made by the first that is kept.
  const std::string folder_ =
      absl::StrCat(::testing::TempDir(), "/",
                   ::testing::UnitTest::GetInstance()->current_test_info()->name(), "/a/b");
};

TEST_F(KeptTest, KeepsByKey) {
  EXPECT_FALSE(ReadKept(folder_, "this host").has_value());
  SKEIN_ASSERT_OK(Keep(folder_, "this host", Measured()));
  EXPECT_FALSE(ReadKept(folder_, "another host").has_value());
  const auto kept = ReadKept(folder_, "this host");
  ASSERT_TRUE(kept.has_value());
  EXPECT_EQ(kept->hosts, Measured().hosts);
  // The newest counts, and no draft is left.
  Topology newer = Measured();
  newer.hosts[0].exchanges.clear();
  SKEIN_ASSERT_OK(Keep(folder_, "this host", newer));
  EXPECT_TRUE(ReadKept(folder_, "this host")->hosts[0].exchanges.empty());
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_), {}), 1);
}

// Of many cards and hosts it is long.
TEST_F(KeptTest, KeysMayBeLong) {
  for (const size_t size : {300u, 3000u}) {
    const std::string key = std::string(size, 'x') + "\n";
    SKEIN_ASSERT_OK(Keep(folder_, key, Measured()));
    EXPECT_TRUE(ReadKept(folder_, key).has_value()) << size;
    EXPECT_FALSE(ReadKept(folder_, key + "y").has_value()) << size;
  }
}

TEST_F(KeptTest, WhatIsGarbledOrOfAnotherKeyIsNothing) {
  SKEIN_ASSERT_OK(Keep(folder_, "this host", Measured()));
  const std::string path = std::filesystem::directory_iterator(folder_)->path().string();
  const std::string text = *ReadFile(path, 1 << 20);
  SKEIN_ASSERT_OK(WriteFile(path, text.substr(0, text.size() / 2)));
  EXPECT_FALSE(ReadKept(folder_, "this host").has_value());
  std::string other = text;
  other.replace(other.find("this host"), 9, "that host");
  SKEIN_ASSERT_OK(WriteFile(path, other));
  EXPECT_FALSE(ReadKept(folder_, "this host").has_value());
  SKEIN_ASSERT_OK(WriteFile(path, text));
  EXPECT_TRUE(ReadKept(folder_, "this host").has_value());
}

TEST_F(KeptTest, ErrorsNameThePath) {
  EXPECT_FALSE(Keep("/proc/nowhere", "this host", Measured()).ok());
  EXPECT_NE(Keep("/proc/nowhere", "this host", Measured()).message().find("/proc/nowhere"),
            std::string::npos);
}

TEST(ReadFiguresTest, FilesThatCannotBeReadAreNamed) {
  EXPECT_THAT(ReadFigures("/nowhere/figures.json").status().message(),
              HasSubstr("/nowhere/figures.json"));
  const std::string file = absl::StrCat(::testing::TempDir(), "/figures.json");
  SKEIN_ASSERT_OK(WriteFile(file, "{"));
  EXPECT_THAT(ReadFigures(file).status().message(), HasSubstr(file));
}

}  // namespace
}  // namespace skein::convert
