// Random loads on a small engine that keeps true accounts.
#include <cstdio>
#include <random>

#include "gtest/gtest.h"
#include "worker/scheduler/fake_engine.h"

namespace skein::worker {
namespace {

TEST(SchedulePropertyTest, RandomLoadsEndWithTrueAccounts) {
  int swaps = 0, recomputes = 0, copies = 0, hits = 0, pushed_out = 0, resumed = 0;
  for (int seed = 0; seed < 1000; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const auto pick = [&](int low, int high) {
      return std::uniform_int_distribution<int>(low, high)(random);
    };
    FakeEngineOptions options = RandomOptions(random);
    options.end_of_text = 0.02 * pick(0, 2);
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
  }
  // What the loads must have met to prove anything.
  std::printf("swaps %d, recomputes %d, copies %d, hits %d, pushed out %d, resumed %d\n", swaps,
              recomputes, copies, hits, pushed_out, resumed);
  EXPECT_GT(swaps, 100);
  EXPECT_GT(recomputes, 100);
  EXPECT_GT(copies, 100);
  EXPECT_GT(hits, 100);
  EXPECT_GT(pushed_out, 100);
  EXPECT_GT(resumed, 100);
}

}  // namespace
}  // namespace skein::worker
