#include "proto/convert/topology.h"

#include <functional>

#include "base/test_util.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace skein::convert {
namespace {

using ::testing::HasSubstr;

TEST(NodeOnTheWire, ComesBackEqual) {
  for (const topology::Node& node :
       {topology::Node{"host", 64, int64_t{3} << 40}, topology::Node{"full", 1, 0}}) {
    topology::v1::Node wire;
    ASSERT_TRUE(wire.ParseFromString(ToProto(node).SerializeAsString()));
    SKEIN_ASSERT_OK_AND_ASSIGN(const topology::Node back, FromProto(wire));
    EXPECT_EQ(back, node);
  }
}

TEST(NodeOnTheWire, ChecksWhatItReads) {
  struct Case {
    std::function<void(topology::v1::Node&)> spoil;
    const char* words;
  };
  const Case cases[] = {
      {[](auto& w) { w.Clear(); }, "host is empty"},
      {[](auto& w) { w.set_cores(0); }, "node h: cores is 0"},
      {[](auto& w) { w.set_cores(-4); }, "node h: cores is -4"},
      {[](auto& w) { w.set_memory_bytes(-1); }, "node h: memory_bytes is -1"},
  };
  for (const Case& c : cases) {
    topology::v1::Node wire = ToProto({"h", 2, 100});
    c.spoil(wire);
    EXPECT_THAT(FromProto(wire).status(),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(c.words)));
  }
}

}  // namespace
}  // namespace skein::convert
