#include "topology/host/pci.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "topology/host/fake_sys.h"

namespace skein::topology {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(PlaceOf, IsTheChainFromTheHostBridge) {
  const FakeSys sys;
  sys.Pci("pci0000:15/0000:15:01.0/0000:16:00.0", "1\n");
  const PciPlace place = PlaceOf("00000000:16:00.0", sys.root());
  EXPECT_THAT(place.chain, ElementsAre("pci0000:15", "0000:15:01.0", "0000:16:00.0"));
  EXPECT_EQ(place.numa_node, 1);
  // Behind a driver of volumes, in a virtual machine, without or with a garbled NUMA node.
  sys.Pci("pci0000:80/0000:80:05.5/pci10001:00/10001:00:01.0", "-1\n");
  EXPECT_THAT(PlaceOf("10001:00:01.0", sys.root()).chain,
              ElementsAre("pci0000:80", "0000:80:05.5", "pci10001:00", "10001:00:01.0"));
  EXPECT_EQ(PlaceOf("10001:00:01.0", sys.root()).numa_node, -1);
  sys.Pci("LNXSYSTM:00/VMBUS:00/47505500-0001/pci0001:00/0001:00:00.0", "no\n");
  EXPECT_THAT(PlaceOf("0001:00:00.0", sys.root()).chain, ElementsAre("pci0001:00", "0001:00:00.0"));
  EXPECT_EQ(PlaceOf("0001:00:00.0", sys.root()).numa_node, -1);
  // A link that leads nowhere, one that leads to another place, none, and what is no address.
  sys.Link("/sys/bus/pci/devices/0000:99:00.0", "../../../devices/gone");
  sys.Link("/sys/bus/pci/devices/0000:98:00.0", "../../../devices/pci0000:15/0000:15:01.0");
  for (const char* const unknown :
       {"0000:99:00.0", "0000:98:00.0", "0000:97:00.0", "", "../../x"}) {
    EXPECT_THAT(PlaceOf(unknown, sys.root()).chain, IsEmpty()) << unknown;
    EXPECT_EQ(PlaceOf(unknown, sys.root()).numa_node, -1);
  }
}

TEST(PciAddressOfFile, IsOfTheDeviceThatHoldsIt) {
  const FakeSys sys;
  sys.Pci("pci0000:00/0000:00:03.0");
  sys.Class("net", "eth0", "pci0000:00/0000:00:03.0/virtio2");
  sys.Class("net", "none", "virtual");
  EXPECT_EQ(PciAddressOfFile(sys.root() + "/sys/class/net/eth0/device"), "0000:00:03.0");
  EXPECT_EQ(PciAddressOfFile(sys.root() + "/sys/class/net/none/device"), "");
  EXPECT_EQ(PciAddressOfFile(sys.root() + "/sys/class/net/eth9/device"), "");
}

TEST(PathBetween, IsToldByWhatBothPass) {
  const struct {
    const char* a;
    const char* b;
    const char* path;
  } cases[] = {
      // Two ports of one switch, at 16:00.0, and two functions of one card in such a port.
      {"pci0000:15/0000:15:01.0/0000:16:00.0/0000:17:00.0/0000:18:00.0",
       "pci0000:15/0000:15:01.0/0000:16:00.0/0000:17:01.0/0000:19:00.0", "PIX"},
      {"pci0000:15/0000:15:01.0/0000:16:00.0/0000:17:00.0/0000:18:00.0",
       "pci0000:15/0000:15:01.0/0000:16:00.0/0000:17:00.0/0000:18:00.1", "PIX"},
      {"pci0000:15/0000:15:01.0/0000:16:00.0", "pci0000:15/0000:15:01.0/0000:16:00.1", "PIX"},
      // A second switch below the first one: beside it, and within it.
      {"pci0000:15/0000:15:01.0/0000:16:00.0/0000:17:00.0/0000:18:00.0",
       "pci0000:15/0000:15:01.0/0000:16:00.0/0000:17:01.0/0000:19:00.0/0000:1a:00.0/0000:1b:00.0",
       "PXB"},
      {"pci0000:15/0000:15:01.0/0000:16:00.0/0000:17:01.0/0000:19:00.0/0000:1a:00.0/0000:1b:00.0",
       "pci0000:15/0000:15:01.0/0000:16:00.0/0000:17:01.0/0000:19:00.0/0000:1a:01.0/0000:1c:00.0",
       "PIX"},
      // A card with a bridge of its own.
      {"pci0000:15/0000:15:01.0/0000:16:00.0/0000:17:00.0/0000:18:00.0",
       "pci0000:15/0000:15:01.0/0000:16:00.0/0000:17:01.0/0000:19:00.0/0000:1a:00.0", "PXB"},
      // Two ports of one host bridge; a virtual machine's devices.
      {"pci0000:15/0000:15:01.0/0000:16:00.0/0000:17:00.0/0000:18:00.0",
       "pci0000:15/0000:15:02.0/0000:20:00.0", "PHB"},
      {"pci0000:00/0000:00:03.0", "pci0000:00/0000:00:04.0", "PHB"},
      // Host bridges of one NUMA node, of two, of nobody knows which.
      {"pci0000:15/0000:15:01.0/0000:16:00.0", "pci0000:17/0000:17:01.0/0000:18:00.0", "NODE"},
      {"pci0000:15/0000:15:01.0/0000:16:00.0", "pci0000:80/0000:80:01.0/0000:81:00.0", "SYS"},
      {"pci0000:a0/0000:a0:01.0/0000:a1:00.0", "pci0000:b0/0000:b0:01.0/0000:b1:00.0", "SYS"},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(std::string(c.a) + " and " + c.b);
    const FakeSys sys;
    const auto place = [&](const std::string& chain) {
      const char* const node = chain.substr(0, 9) == "pci0000:8"    ? "1"
                               : chain[8] == 'a' || chain[8] == 'b' ? "-1"
                                                                    : "0";
      return PlaceOf(sys.Pci(chain, node), sys.root());
    };
    const PciPlace a = place(c.a), b = place(c.b);
    EXPECT_EQ(PathName(PathBetween(a, b)), c.path);
    EXPECT_EQ(PathName(PathBetween(b, a)), c.path);
  }
  EXPECT_EQ(PathBetween({}, {}), Path::kSystem);
  EXPECT_EQ(PathBetween({.numa_node = 1}, {.numa_node = 1}), Path::kNode);
}

}  // namespace
}  // namespace skein::topology
