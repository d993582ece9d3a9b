#include "parallel/comm/gather_strings.h"

#include <string>

#include "base/test_util.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "parallel/comm/inprocess/inprocess.h"

namespace skein::comm {
namespace {

using ::testing::ElementsAre;

TEST(GatherStringsTest, TextsOfAnyLengthComeInRankOrder) {
  OnRanks(3, [](Communicator& group) {
    const std::string mine(10 * group.rank(), 'x');  // of rank 0: none
    SKEIN_ASSERT_OK_AND_ASSIGN(const auto all, GatherStrings(group, mine));
    EXPECT_THAT(all, ElementsAre("", std::string(10, 'x'), std::string(20, 'x')));
  });
}

TEST(FirstTextTest, AllHearTheFirstRankThatHasOne) {
  OnRanks(3, [](Communicator& group) {
    const std::string mine = group.rank() == 0 ? "" : "of " + std::to_string(group.rank());
    SKEIN_ASSERT_OK_AND_ASSIGN(const auto first, FirstText(group, mine));
    ASSERT_TRUE(first.has_value());
    EXPECT_EQ(first->rank, 1);
    EXPECT_EQ(first->text, "of 1");
    SKEIN_ASSERT_OK_AND_ASSIGN(const auto none, FirstText(group, ""));
    EXPECT_FALSE(none.has_value());
  });
}

}  // namespace
}  // namespace skein::comm
