#include "topology/draw/lanes.h"

#include <random>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace skein::topology::draw {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(LevelsOf, PutsShortSpansLowest) {
  EXPECT_THAT(LevelsOf({}, 1), IsEmpty());
  EXPECT_THAT(LevelsOf({{0, 30}, {0, 10}, {20, 30}}, 5), ElementsAre(1, 0, 0));
  EXPECT_THAT(LevelsOf({{0, 10}, {12, 22}}, 5), ElementsAre(0, 1));  // too near
  EXPECT_THAT(LevelsOf({{0, 10}, {15, 25}}, 5), ElementsAre(0, 0));
}

TEST(LevelsOf, KeepsSpansOfALevelApart) {
  std::mt19937 random(1);
  for (int round = 0; round < 100; ++round) {
    std::vector<Span> spans(random() % 40);
    for (Span& span : spans) {
      span.left = random() % 100;
      span.right = span.left + random() % 50;
    }
    const std::vector<int> levels = LevelsOf(spans, 3);
    for (size_t i = 0; i < spans.size(); ++i) {
      for (size_t j = 0; j < i; ++j) {
        if (levels[i] != levels[j]) continue;
        EXPECT_TRUE(spans[i].right + 3 <= spans[j].left || spans[j].right + 3 <= spans[i].left);
      }
    }
  }
}

TEST(WidestGap, IsBetweenCrossings) {
  const auto gap = [](std::vector<double> crossings) {
    const Span widest = WidestGap({10, 50}, std::move(crossings));
    return std::vector<double>{widest.left, widest.right};
  };
  EXPECT_THAT(gap({}), ElementsAre(10, 50));
  EXPECT_THAT(gap({0, 60, 10, 50}), ElementsAre(10, 50));
  EXPECT_THAT(gap({40, 20}), ElementsAre(20, 40));
  EXPECT_THAT(gap({45, 15, 20}), ElementsAre(20, 45));
}

}  // namespace
}  // namespace skein::topology::draw
