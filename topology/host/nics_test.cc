#include "topology/host/nics.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "topology/host/fake_sys.h"

namespace skein::topology {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr char kActive[] = "4: ACTIVE\n";

TEST(FindNics, FindsRdmaAndPlainOnesOnce) {
  const FakeSys sys;
  const std::string a = "pci0000:15/0000:15:01.0/0000:16:00.0";
  const std::string b = "pci0000:80/0000:80:01.0/0000:81:00.0";
  const std::string c = "pci0000:80/0000:80:01.0/0000:81:00.1";
  sys.Rdma("mlx5_10", b, "200 Gb/sec (4X HDR)\n", "Ethernet\n", kActive);
  sys.Rdma("mlx5_2", a, "400 Gb/sec (4X NDR)\n", "InfiniBand\n", kActive);
  sys.Net("ens1np0", b, "200000\n");  // mlx5_10's other face
  sys.Net("ens1np1", c, "25000\n");
  sys.Net("ib0", a, "400000\n", "up\n", "32\n");
  sys.Net("eth0", "pci0000:00/0000:00:03.0/virtio2", "-1\n");
  sys.Write("/sys/devices/virtual/net/lo/speed", "100000\n");  // without a device
  sys.Link("/sys/class/net/lo", "../../devices/virtual/net/lo");
  sys.Write("/sys/class/net/bonding_masters", "\n");  // no folder
  EXPECT_THAT(FindNics(sys.root()),
              ElementsAre(Nic{"NIC0", "mlx5_2", "0000:16:00.0", NicKind::kInfiniBand, 50e9},
                          Nic{"NIC1", "mlx5_10", "0000:81:00.0", NicKind::kEthernet, 25e9},
                          Nic{"NIC2", "ens1np1", "0000:81:00.1", NicKind::kEthernet, 3.125e9},
                          Nic{"NIC3", "eth0", "0000:00:03.0", NicKind::kEthernet, 0}));
}

TEST(FindNics, LeavesOutWhatIsDownVirtualOrOnUsb) {
  const FakeSys sys;
  const std::string down = "pci0000:15/0000:15:01.0/0000:16:00.0";
  sys.Rdma("mlx5_0", down, "10 Gb/sec (4X SDR)\n", "InfiniBand\n", "1: DOWN\n");
  sys.Net("ib0", down, "", "up\n", "32\n");  // its other face
  sys.Rdma("rxe0", "virtual", "100 Gb/sec\n", "Ethernet\n", kActive);
  sys.Net("eno1", "pci0000:00/0000:00:1c.0/0000:01:00.0", "", "down\n");
  sys.Net("usb0", "pci0000:00/0000:00:14.0/usb1/1-1/1-1:1.0", "1000\n");
  // A physical function with a virtual one, and a virtual one whose physical one is elsewhere.
  const std::string port = "pci0000:80/0000:80:01.0/";
  sys.Pci(port + "0000:81:00.0");
  sys.Pci(port + "0000:81:00.2");
  sys.Pci(port + "0000:82:00.2");
  sys.Pci(port + "0000:82:00.0");
  sys.Net("ens2", port + "0000:81:00.0", "10000\n");
  sys.Net("ens2v0", port + "0000:81:00.2", "10000\n");
  sys.Net("ens3v0", port + "0000:82:00.2", "10000\n");
  sys.Link("/sys/devices/" + port + "0000:81:00.2/physfn", "../0000:81:00.0");
  sys.Link("/sys/devices/" + port + "0000:82:00.2/physfn", "../0000:82:00.0");
  // Of a hypervisor, not on PCI.
  sys.Net("hv0", "LNXSYSTM:00/VMBUS:00/f8615163-0000", "50000\n");
  const std::vector<Nic> nics = FindNics(sys.root());
  std::vector<std::string> devices;
  for (const Nic& nic : nics) devices.push_back(nic.device);
  EXPECT_THAT(devices, ElementsAre("ens2", "ens3v0", "hv0"));
  EXPECT_EQ(nics[2].bus_id, "");
}

TEST(FindNics, PortsThatAreUpShareItsTraffic) {
  const FakeSys sys;
  const std::string a = "pci0000:15/0000:15:01.0/0000:16:00.0";
  sys.Rdma("mlx4_0", a, "10 Gb/sec\n", "Ethernet\n", "1: DOWN\n");
  sys.Rdma("mlx4_0", a, "56 Gb/sec (4X FDR)\n", "InfiniBand\n", kActive, 2);
  sys.Rdma("mlx4_0", a, "40 Gb/sec (4X QDR)\n", "Ethernet\n", kActive, 3);
  EXPECT_THAT(FindNics(sys.root()),
              ElementsAre(Nic{"NIC0", "mlx4_0", "0000:16:00.0", NicKind::kInfiniBand, 12e9}));
}

TEST(FindNics, WhatIsMissingOrGarbledIsNotTold) {
  for (const char* const garbled :
       {"", "\n", "fast\n", "nan Gb/sec\n", "inf Gb/sec\n", "-5 Gb/sec\n", "1e999 Gb/sec\n",
        "Gb/sec\n", "400 Mb/sec\n", "-1\n", "4294967295\n", "0\n", "\x01\xff\n"}) {
    SCOPED_TRACE(garbled);
    const FakeSys sys;
    sys.Rdma("rdmap0", "pci0000:15/0000:15:01.0/0000:16:00.0", garbled, garbled, "");
    sys.Class("infiniband", "rdmap1", "pci0000:15/0000:15:01.0/0000:17:00.0");  // no ports
    sys.Net("eth0", "pci0000:00/0000:00:03.0", garbled, garbled, garbled);
    EXPECT_THAT(FindNics(sys.root()),
                ElementsAre(Nic{"NIC0", "rdmap0", "0000:16:00.0", NicKind::kUnknown, 0},
                            Nic{"NIC1", "rdmap1", "0000:17:00.0", NicKind::kUnknown, 0},
                            Nic{"NIC2", "eth0", "0000:00:03.0", NicKind::kUnknown, 0}));
  }
  EXPECT_THAT(FindNics(::testing::TempDir() + "/absent"), IsEmpty());
}

TEST(FindNics, ThereAreNoMoreThanAHostCanHave) {
  const FakeSys sys;
  for (int i = 0; i < 70; ++i) {
    sys.Net(absl::StrCat("eth", i), absl::StrCat("pci0000:00/0000:", 10 + i, ":00.0"), "1000\n");
  }
  const std::vector<Nic> nics = FindNics(sys.root());
  ASSERT_EQ(nics.size(), 64u);
  EXPECT_EQ(nics[63].device, "eth63");
  EXPECT_EQ(nics[63].name, "NIC63");
}

}  // namespace
}  // namespace skein::topology
