#include "supervisor/line_splitter.h"

#include <string>
#include <string_view>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace skein::supervisor {
namespace {

using ::testing::ElementsAre;

std::vector<std::string> Split(const std::vector<std::string>& pieces) {
  std::vector<std::string> lines;
  LineSplitter splitter([&](std::string_view line) { lines.emplace_back(line); });
  for (const std::string& piece : pieces) splitter.Add(piece);
  splitter.Finish();
  return lines;
}

TEST(LineSplitterTest, JoinsAndSplits) {
  EXPECT_THAT(Split({"a", "b\n\nc\nd", "e"}), ElementsAre("ab", "", "c", "de"));
  EXPECT_THAT(Split({"a\n", "b\n"}), ElementsAre("a", "b"));
  EXPECT_THAT(Split({}), ElementsAre());
}

TEST(LineSplitterTest, CutsWhatIsTooLong) {
  const std::string longest(LineSplitter::kMaxBytes, 'x');
  EXPECT_THAT(Split({longest + "\n", "b\n"}), ElementsAre(longest, "b"));
  EXPECT_THAT(Split({longest + "yz\nb"}), ElementsAre(longest, "yz", "b"));
}

}  // namespace
}  // namespace skein::supervisor
