// Random loads on a small engine that keeps true accounts.
#include <algorithm>
#include <cstdio>
#include <random>

#include "gtest/gtest.h"
#include "parallel/plan/held_pages.h"
#include "worker/scheduler/fake_engine.h"

namespace skein::worker {
namespace {

class SchedulePropertyTest : public ::testing::TestWithParam<bool> {};

TEST_P(SchedulePropertyTest, RandomLoadsEndWithTrueAccounts) {
  const bool windows = GetParam();
  int swaps = 0, recomputes = 0, copies = 0, hits = 0, pushed_out = 0, resumed = 0, given_back = 0;
  for (int seed = 0; seed < 1000; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const auto pick = [&](int low, int high) {
      return std::uniform_int_distribution<int>(low, high)(random);
    };
    FakeEngineOptions options = RandomOptions(random);
    options.end_of_text = 0.02 * pick(0, 2);
    if (windows) {
      options.limits.window = pick(1, 4 * static_cast<int>(options.limits.page_size));
      const int64_t held =
          plan::MostHeldPages(int64_t{1} << 30, options.limits.window,
                              options.limits.max_num_batched_tokens, options.limits.page_size);
      options.pages = std::max<int>(options.pages, static_cast<int>(held));
    }
    const int groups = pick(1, 4);
    FakeEngine engine(options, groups, seed);
    for (int i = 0; i < 20; ++i) engine.Add(RandomLoad(options, groups, random));
    while (!engine.Done()) {
      ASSERT_NO_FATAL_FAILURE(engine.Step());
      ASSERT_LT(engine.now_s(), 50000) << "no progress";
    }
    EXPECT_EQ(engine.FreePages(), options.pages);
    EXPECT_EQ(engine.swapped(), 0);
    swaps += engine.swaps;
    recomputes += engine.recomputes;
    copies += engine.copies;
    hits += engine.hits;
    pushed_out += engine.pushed_out;
    resumed += engine.resumed;
    given_back += engine.given_back;
  }
  // What the loads must have met to prove anything.
  std::printf(
      "swaps %d, recomputes %d, copies %d, hits %d, pushed out %d, resumed %d, given back %d\n",
      swaps, recomputes, copies, hits, pushed_out, resumed, given_back);
  EXPECT_GT(swaps, 100);
  EXPECT_GT(recomputes, 100);
  EXPECT_GT(copies, 100);
  EXPECT_GT(hits, 100);
  EXPECT_GT(pushed_out, 100);
  EXPECT_GT(resumed, 100);
  EXPECT_EQ(given_back > 1000, windows);
}

INSTANTIATE_TEST_SUITE_P(Windows, SchedulePropertyTest, ::testing::Bool());

}  // namespace
}  // namespace skein::worker
