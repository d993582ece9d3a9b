#include "tests/cluster/process.h"

#include <fstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace skein::testing {
namespace {

// As where a test runs again in the folder of the run before.
TEST(ProcessTest, OutputIsThisProcesssAlone) {
  std::ofstream(::testing::TempDir() + "/said.0.log") << "of an earlier run\n";
  Process process({.name = "said", .argv = {"echo", "now"}});
  EXPECT_EQ(process.Wait(absl::Seconds(30)), 0);
  EXPECT_EQ(process.Output(), "now\n");
}

}  // namespace
}  // namespace skein::testing
