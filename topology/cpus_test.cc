#include "topology/cpus.h"

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

}  // namespace
}  // namespace skein::topology
