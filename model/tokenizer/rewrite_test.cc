#include "model/tokenizer/rewrite.h"

#include <string>
#include <vector>

#include "base/test_util.h"

namespace skein::model {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(RewriteTest, WhatIsKeptStaysMarked) {
  const MarkedText from = {"abcdef", {{1, 3}, {4, 6}}};
  Rewrite rewrite(from);
  rewrite.Keep(2);  // in the middle of a mark
  EXPECT_EQ(rewrite.at(), 2u);
  EXPECT_EQ(rewrite.made(), "ab");
  const MarkedText made = rewrite.Take();
  EXPECT_EQ(made.text, "abcdef");
  EXPECT_EQ(made.marked, from.marked);
}

TEST(RewriteTest, WhatIsMadeOfMarkedBytesIsMarked) {
  const MarkedText from = {"abcdef", {{1, 3}}};
  Rewrite rewrite(from);
  rewrite.Replace(1, "AAA");  // beside the mark
  rewrite.Replace(2, "BB");
  rewrite.Replace(4, "CD");  // half of it is marked
  rewrite.Replace(6, "");
  const MarkedText made = rewrite.Take();
  EXPECT_EQ(made.text, "AAABBCD");
  EXPECT_THAT(made.marked, ElementsAre(Range{3, 7}));
}

TEST(RewriteTest, WhereMarkedBytesLeaveNothingAnEmptyMarkStays) {
  const MarkedText from = {"abcdef", {{1, 3}}};
  Rewrite rewrite(from);
  rewrite.Keep(1);
  rewrite.Replace(3, "");
  const MarkedText made = rewrite.Take();
  EXPECT_EQ(made.text, "adef");
  EXPECT_THAT(made.marked, ElementsAre(Range{1, 1}));

  // It goes on through further steps: beside what is kept or replaced, and inside of it.
  Rewrite keeps(made);
  keeps.Replace(1, "AA");
  keeps.Replace(2, "D");
  EXPECT_THAT(keeps.Take().marked, ElementsAre(Range{2, 2}));
  Rewrite joins(made);
  joins.Replace(2, "X");
  EXPECT_THAT(joins.Take().marked, ElementsAre(Range{0, 1}));
}

TEST(RewriteTest, WhatIsPutBeforeMarkedBytesIsNotMarked) {
  const MarkedText from = {"ab", {{0, 2}}};
  Rewrite before(from);
  before.Replace(0, "_");
  EXPECT_THAT(before.Take().marked, ElementsAre(Range{1, 3}));
  Rewrite inside(from);
  inside.Keep(1);
  inside.Replace(1, "_");
  EXPECT_THAT(inside.Take().marked, ElementsAre(Range{0, 3}));
  const MarkedText without = {"ab", {}};
  EXPECT_THAT(Rewrite(without).Take().marked, IsEmpty());
}

}  // namespace
}  // namespace skein::model
