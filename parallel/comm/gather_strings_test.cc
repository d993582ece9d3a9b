#include "parallel/comm/gather_strings.h"

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/test_util.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "parallel/comm/inprocess/inprocess.h"

namespace skein::comm {
namespace {

using ::testing::ElementsAre;

void OnThreeRanks(const std::function<void(Communicator&)>& run) {
  const auto world = MakeInProcessGroup(3, "world");
  std::vector<std::thread> ranks;
  for (const auto& rank : world) ranks.emplace_back([&, rank = rank.get()] { run(*rank); });
  for (std::thread& rank : ranks) rank.join();
}

TEST(GatherStringsTest, TextsOfAnyLengthComeInRankOrder) {
  OnThreeRanks([](Communicator& group) {
    const std::string mine(10 * group.rank(), 'x');  // of rank 0: none
    SKEIN_ASSERT_OK_AND_ASSIGN(const auto all, GatherStrings(group, mine));
    EXPECT_THAT(all, ElementsAre("", std::string(10, 'x'), std::string(20, 'x')));
  });
}

TEST(FirstTextTest, AllHearTheFirstRankThatHasOne) {
  OnThreeRanks([](Communicator& group) {
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
