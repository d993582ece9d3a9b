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
    topology::v1::Node wire = ToProto(topology::Node{"h", 2, 100});
    c.spoil(wire);
    EXPECT_THAT(FromProto(wire).status(),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(c.words)));
  }
}

TEST(DeviceOnTheWire, ComesBackEqual) {
  const topology::Device device{.kind = DeviceKind::kCuda,
                                .name = "an accelerator",
                                .memory_bytes = int64_t{141} << 30,
                                .nccl = true,
                                .peers = true};
  topology::v1::Device wire;
  ASSERT_TRUE(wire.ParseFromString(ToProto(device).SerializeAsString()));
  SKEIN_ASSERT_OK_AND_ASSIGN(const topology::Device back, FromProto(wire));
  EXPECT_EQ(back, device);
}

TEST(DeviceOnTheWire, ChecksWhatItReads) {
  struct Case {
    std::function<void(topology::v1::Device&)> spoil;
    const char* words;
  };
  const Case cases[] = {
      {[](auto& w) { w.Clear(); }, "device: kind is unknown; there are: cpu, cuda"},
      {[](auto& w) { w.set_kind("abacus"); }, "device: kind is unknown"},
      {[](auto& w) { w.clear_name(); }, "device: name is empty"},
      {[](auto& w) { w.set_memory_bytes(-2); }, "device: memory_bytes is -2"},
  };
  for (const Case& c : cases) {
    topology::v1::Device wire = ToProto(topology::Device{.name = "a CPU"});
    c.spoil(wire);
    EXPECT_THAT(FromProto(wire).status(),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(c.words)));
  }
}

}  // namespace
}  // namespace skein::convert
