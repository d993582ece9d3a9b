#include "topology/host/visible_devices.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace skein::topology {
namespace {

using ::testing::ElementsAreArray;

// As CUDA's driver reads them.
TEST(VisibleDevices, AreThoseBeforeTheFirstWrongEntry) {
  const std::vector<std::string> uuids = {"GPU-aa11", "GPU-aa22", "GPU-bb33", "GPU-cc44"};
  const struct {
    const char* value;
    std::vector<int> visible;
  } cases[] = {
      {"0,1,2,3", {0, 1, 2, 3}},
      {"3,1", {3, 1}},
      {" 2 , 0 ", {2, 0}},
      {"+1", {1}},
      {"01", {1}},
      {"", {}},
      {",0", {}},
      {"0,,1", {0}},
      {"0,", {0}},
      {"-1", {}},
      {"1,-1,2", {1}},
      {"1,4,2", {1}},
      {"99999999999999999999,0", {}},
      {"NoDevFiles", {}},
      {"2gpu,1x", {2, 1}},
      {"0,0", {}},
      {"1,2,1", {}},
      {"1,9,1", {1}},  // the second 1 is hidden
      {"GPU-bb33", {2}},
      {"GPU-cc44,GPU-aa11", {3, 0}},
      {"GPU-b,GPU-c", {2, 3}},
      {"GPU-aa,GPU-b", {}},  // which one?
      {"GPU-c,GPU-aa,GPU-b", {3}},
      {"GPU-c,GPU-zz,GPU-b", {3}},
      {"GPU-c,GPU-cc44", {}},
      {"GPU-c,0", {3}},
      {"0,GPU-c", {0}},
      {"gpu-bb33", {}},
      {"GPU-bb33x", {}},
      {"MIG-bb33", {}},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.value);
    EXPECT_THAT(VisibleDevices(c.value, uuids), ElementsAreArray(c.visible));
  }
  EXPECT_TRUE(VisibleDevices("0", {}).empty());
  EXPECT_TRUE(VisibleDevices("GPU-", {}).empty());
}

TEST(VisibleSlice, IsTheFirstOne) {
  EXPECT_EQ(VisibleSlice("MIG-aa"), "MIG-aa");
  EXPECT_EQ(VisibleSlice(" MIG-aa, MIG-bb"), "MIG-aa");
  EXPECT_EQ(VisibleSlice("0,MIG-aa"), "");
  EXPECT_EQ(VisibleSlice(""), "");
}

}  // namespace
}  // namespace skein::topology
