// Cases for run_test.sh: of real GoogleTest, whose words run.sh counts.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "gtest/gtest.h"

namespace {

TEST(Fake, Passes) {}
TEST(Fake, PassesInTheMiddleOfALine) { std::printf("no end of this line"); }
TEST(Fake, SaysWhatOthersSay) {
  std::printf("[       OK ] Fake.Other\n[  FAILED  ] Fake.Other\n[==========] 9 tests\n");
}
TEST(Fake, Fails) { EXPECT_EQ(1, 2); }
TEST(Fake, Skips) { GTEST_SKIP() << "no GPU"; }
TEST(Fake, SkipsToo) { GTEST_SKIP() << "no GPU"; }
TEST(Fake, Crashes) {
  std::fflush(stdout);
  std::abort();
}
TEST(Fake, Hangs) {
  std::fflush(stdout);
  sleep(1000);
}
TEST(Fake, Leaves) {
  std::fflush(stdout);
  _exit(0);
}

class OfValues : public ::testing::TestWithParam<int> {};
TEST_P(OfValues, FailsForTwo) { EXPECT_NE(GetParam(), 2); }
INSTANTIATE_TEST_SUITE_P(Values, OfValues, ::testing::Values(1, 2, 3));

}  // namespace
