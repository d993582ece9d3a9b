#include "topology/cpus.h"

#include <optional>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace skein::topology {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(CpusTest, AreListsAsTheKernelWritesThem) {
  EXPECT_THAT(ParseCpus("0-3,8\n"), ElementsAre(0, 1, 2, 3, 8));
  EXPECT_THAT(ParseCpus("56-57,0"), ElementsAre(0, 56, 57));
  EXPECT_THAT(ParseCpus("5"), ElementsAre(5));
  for (const char* text : {"", "\n", "x", "3-1", "1-2-3", "-1", "0-99999999", "1,"}) {
    EXPECT_THAT(ParseCpus(text), IsEmpty()) << text;
  }
  for (const char* text : {"0-3,8", "5", "0,2,4-5", ""}) {
    EXPECT_EQ(FormatCpus(ParseCpus(text)), text);
  }
}

TEST(CpusTest, AreMasksAsHwlocAndNcclWriteThem) {
  const struct {
    const char* mask;
    const char* list;
  } cases[] = {
      {"0x00000003", "0-1"},
      {"0x0", ""},
      {"00000000,00000000,00ffffff", "0-23"},
      {"000000ff,ffff0000,00ffffff", "0-23,48-71"},
      {"ffffff00,0000ffff,ff000000", "24-47,72-95"},
      {"0x00000040,,0x00000002", "1,70"},
      {"0x00000040,,0x0", "70"},
      {"0x00000004,,0x00000001,,0x0", "64,130"},
      {"f,0", "32-35"},
      {"0x80000000", "31"},
  };
  for (const auto& c : cases) {
    const std::optional<Cpus> cpus = ParseCpuMask(c.mask);
    ASSERT_TRUE(cpus.has_value()) << c.mask;
    EXPECT_EQ(FormatCpus(*cpus), c.list) << c.mask;
  }
  for (const char* mask : {"", ",", ",1", "0x", "1,0x", "x", "-1", "+1", " 1", "1 ", "0x100000000",
                           "0xf...f,0xffffffff", "1;2", "0x0x1"}) {
    EXPECT_EQ(ParseCpuMask(mask), std::nullopt) << mask;
  }
  std::string most = "80000000";
  for (int i = 1; i < 256; ++i) most += ",0";
  EXPECT_THAT(*ParseCpuMask(most), ElementsAre(8191));
  EXPECT_EQ(ParseCpuMask(most + ",0"), std::nullopt);
}

}  // namespace
}  // namespace skein::topology
