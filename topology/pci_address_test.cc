#include "topology/pci_address.h"

#include "gtest/gtest.h"

namespace skein::topology {
namespace {

TEST(PciAddressTest, IsAsTheKernelWritesIt) {
  EXPECT_EQ(PciAddress("0000:9a:00.0"), "0000:9a:00.0");
  EXPECT_EQ(PciAddress("0000:9A:00.0"), "0000:9a:00.0");
  EXPECT_EQ(PciAddress("00000000:9A:00.0"), "0000:9a:00.0");
  EXPECT_EQ(PciAddress("00010001:0A:1F.7"), "10001:0a:1f.7");
  EXPECT_EQ(PciAddress("10000:e1:00.7"), "10000:e1:00.7");
  EXPECT_EQ(PciAddress("ffff:ff:01.0"), "ffff:ff:01.0");
}

TEST(PciAddressTest, HasFourParts) {
  for (const char* text :
       {"", ":", "9a:00.0", "000:9a:00.0", "000000000:9a:00.0", "0000:9a:00", "0000:9a:00.",
        "0000:9a:00.00", "0000:9a:00:0", "0000.9a:00.0", "0000:xx:00.0", "0000:9a:0 .0",
        "fffffff:ffff:ff", "0000:9a:00.0 ", "0000:9a:00.0:1", "0000:9a0:00.0", "../x:1:2.3",
        "0000::00.0", "0000:9a:-1.0"}) {
    EXPECT_EQ(PciAddress(text), "") << text;
  }
}

}  // namespace
}  // namespace skein::topology
