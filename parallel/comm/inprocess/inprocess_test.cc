#include "parallel/comm/inprocess/inprocess.h"

#include <thread>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "parallel/comm/communicator_suite.h"

namespace skein::comm {

void ForEachGroup(const std::function<void(Communicator&)>& body) {
  for (int size : {1, 2, 3, 4, 5, 6, 8}) {
    auto ranks = MakeInProcessGroup(size, absl::StrCat("group of ", size));
    std::vector<std::thread> threads;
    for (auto& rank : ranks) threads.emplace_back([&] { body(*rank); });
    for (std::thread& thread : threads) thread.join();
  }
}

namespace {

TEST(InProcessGroup, RanksKnowTheirPlace) {
  auto ranks = MakeInProcessGroup(3, "tp of replica 0");
  ASSERT_EQ(ranks.size(), 3u);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(ranks[i]->rank(), i);
    EXPECT_EQ(ranks[i]->size(), 3);
    EXPECT_EQ(ranks[i]->name(), "tp of replica 0");
  }
}

}  // namespace
}  // namespace skein::comm
