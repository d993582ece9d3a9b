#include "topology/formats/hwloc_xml.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/test_util.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "topology/formats/hwloc_machine.h"
#include "topology/formats/test_text.h"

namespace skein::topology {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

absl::Status Check(Host host) {
  if (host.name.empty()) host.name = "unnamed";
  return CheckTopology({.hosts = {std::move(host)}});
}

TEST(ParseHwlocXml, ReadsAMachineWithGpus) {
  SKEIN_ASSERT_OK_AND_ASSIGN(const Host host, ParseHwlocXml(HwlocMachine(kHwlocMatrix)));
  SKEIN_EXPECT_OK(Check(host));
  EXPECT_EQ(host.name, "node7");
  EXPECT_EQ(host.cpu, "Xeon 9");
  EXPECT_EQ(host.sockets, 2);
  EXPECT_EQ(host.cores, 4);
  EXPECT_EQ(host.memory_bytes, 3 << 20);
  EXPECT_EQ(host.l2_bytes, 2 << 20);
  EXPECT_EQ(host.l3_bytes, 64 << 20);
  EXPECT_THAT(host.numa_nodes,
              ElementsAre(NumaNode{{0, 1, 2, 3}, 1 << 20}, NumaNode{{4, 5, 6, 7}, 2 << 20}));
  const Interconnect& read = host.interconnect;
  ASSERT_EQ(read.gpus.size(), 4u);
  EXPECT_EQ(read.gpus[0], (Gpu{.name = "GPU0",
                               .model = "NVIDIA A100",
                               .bus_id = "0000:0a:00.0",
                               .cpus = {0, 1, 2, 3},
                               .numa_node = 0}));
  EXPECT_EQ(read.gpus[1].memory_bytes, int64_t{40} << 30);
  EXPECT_EQ(read.gpus[3].bus_id, "0000:81:00.0");
  EXPECT_EQ(read.gpus[3].numa_node, 1);
  EXPECT_THAT(read.nics, ElementsAre(Nic{"NIC0", "eno1", "0000:00:02.0", NicKind::kEthernet},
                                     Nic{"NIC1", "mlx5_0", "0000:18:00.0", NicKind::kInfiniBand},
                                     Nic{"NIC2", "mlx5_1", "0000:82:00.0", NicKind::kEthernet}));
  EXPECT_EQ(Text(read),
            "X NV4 PXB SYS NODE PIX SYS\n"
            "NV4 X PXB SYS NODE PIX SYS\n"
            "PXB PXB X NV2 NODE PXB SYS\n"
            "SYS SYS NV2 X SYS SYS PHB\n"
            "NODE NODE NODE SYS X NODE SYS\n"
            "PIX PIX PXB SYS NODE X SYS\n"
            "SYS SYS SYS PHB SYS SYS X\n");
  EXPECT_EQ(read.nvswitches, 0);
  EXPECT_THAT(Islands(read), ElementsAre(ElementsAre(0, 1), ElementsAre(2, 3)));
  EXPECT_THAT(NearestNics(read, 0), ElementsAre(1));
  EXPECT_THAT(NearestNics(read, 3), ElementsAre(2));
}

TEST(ParseHwlocXml, AsksForNvlinks) {
  const std::string text = HwlocMachine("");
  EXPECT_THAT(
      ParseHwlocXml(text),
      StatusIs(absl::StatusCode::kFailedPrecondition,
               AllOf(HasSubstr(": nothing tells the NVLinks of GPU0 (0000:0a:00.0) and GPU1 "
                               "(0000:13:00.0): hwloc writes them where it is built with NVML"),
                     ::testing::EndsWith(kWhatToDo))));
  SKEIN_ASSERT_OK_AND_ASSIGN(const Host given, ParseHwlocXml(text, {.nvlinks = 12}));
  EXPECT_THAT(Islands(given.interconnect), ElementsAre(ElementsAre(0, 1, 2, 3)));
  EXPECT_EQ(ToString(given.interconnect.OfGpus(0, 3)), "NV12");
  SKEIN_ASSERT_OK_AND_ASSIGN(const Host none, ParseHwlocXml(text, {.nvlinks = 0}));
  EXPECT_EQ(ToString(none.interconnect.OfGpus(0, 1)), "PIX");
  EXPECT_EQ(ToString(none.interconnect.OfGpus(0, 2)), "PXB");
  // What the file tells may be told again, and not otherwise.
  EXPECT_THAT(
      ParseHwlocXml(HwlocMachine(kHwlocMatrix), {.nvlinks = 12}),
      StatusIs(absl::StatusCode::kInvalidArgument, StartsWith("by the file GPU0 and GPU1")));
  EXPECT_THAT(ParseHwlocXml(text, {.nvlinks = -1}),
              StatusIs(absl::StatusCode::kInvalidArgument, StartsWith("--nvlinks=-1 is no")));
  // A number of MB/s that is not so many links, and GPUs whose links hwloc 2 did not know.
  for (const auto& [from, to] : std::vector<std::pair<std::string, std::string>>{
           {"100000", "110000"}, {"10de:20b0", "10de:2901"}}) {
    const std::string other = absl::StrReplaceAll(HwlocMachine(kHwlocMatrix), {{from, to}});
    EXPECT_THAT(ParseHwlocXml(other),
                StatusIs(absl::StatusCode::kFailedPrecondition,
                         AllOf(StartsWith("line "), HasSubstr("NVLinkBandwidth does not tell how "
                                                              "many NVLinks connect GPU"))));
    SKEIN_EXPECT_OK(ParseHwlocXml(other, {.nvlinks = 4}));
  }
  // A GPU that is not in the matrix.
  EXPECT_THAT(ParseHwlocXml(HwlocMachine(
                  "<distances2 nbobjs='2' name='NVLinkBandwidth' indexing='gp'>"
                  "<indexes>41 42</indexes><u64values>0 25000 25000 0</u64values></distances2>")),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("GPU2 (0000:16:00.0)")));
  // Pascal's links are slower: 100000 MB/s are five.
  SKEIN_ASSERT_OK_AND_ASSIGN(
      const Host pascal,
      ParseHwlocXml(absl::StrReplaceAll(HwlocMachine(kHwlocMatrix),
                                        {{"10de:20b0", "10de:15f9"}, {" 50000", " 20000"}})));
  EXPECT_EQ(ToString(pascal.interconnect.OfGpus(0, 1)), "NV5");
  EXPECT_EQ(ToString(pascal.interconnect.OfGpus(2, 3)), "NV1");
  // GPUs of others, and one GPU, need none.
  SKEIN_EXPECT_OK(
      ParseHwlocXml(absl::StrReplaceAll(text, {{"0302 [10de:20b0]", "0380 [1002:740c]"}})));
  SKEIN_EXPECT_OK(ParseHwlocXml(absl::StrReplaceAll(
      text, {{"0000:13:00.0' pci_type='0302", "0000:13:00.0' pci_type='0403"},
             {"0000:16:00.0' pci_type='0302", "0000:16:00.0' pci_type='0403"},
             {"0000:81:00.0' pci_type='0302", "0000:81:00.0' pci_type='0403"}})));
}

// Two GPUs at switches 61 and 62, of which the second GPU has one link fewer, and two at others.
TEST(ParseHwlocXml, ConnectsGpusThroughSwitches) {
  std::string switches;
  for (int i = 0; i < 4; ++i) {
    switches +=
        HwlocDevice(61 + i, absl::StrCat("0000:d", i, ":00.0").c_str(), "0680 [10de:1ac2]", "");
  }
  std::string matrix =
      "<distances2hetero nbobjs='8' kind='25' name='NVLinkBandwidth'>"
      "<indexes>OSDev:48 OSDev:43 OSDev:42 OSDev:41 PCIDev:61 PCIDev:62 PCIDev:63 "
      "PCIDev:64</indexes>";
  const std::vector<std::vector<int>> links = {
      {0, 0, 3, 3}, {0, 0, 3, 3}, {2, 3, 0, 0}, {3, 3, 0, 0}};
  for (int i = 0; i < 8; ++i) {
    std::string row;
    for (int j = 0; j < 8; ++j) {
      const int count = i < 4 && j >= 4 ? links[i][j - 4] : i >= 4 && j < 4 ? links[j][i - 4] : 0;
      absl::StrAppend(&row, i == j ? 1'000'000 : 25'000 * count, " ");
    }
    absl::StrAppend(&matrix, "<u64values>", row, "</u64values>");
  }
  const std::string text = absl::StrReplaceAll(
      HwlocMachine(matrix + "</distances2hetero>"),
      {{"<object type='PCIDev' gp_index='37'", switches + "<object type='PCIDev' gp_index='37'"}});
  SKEIN_ASSERT_OK_AND_ASSIGN(const Host host, ParseHwlocXml(text));
  EXPECT_EQ(host.interconnect.nvswitches, 4);
  EXPECT_EQ(ToString(host.interconnect.OfGpus(0, 1)), "NV5");
  EXPECT_EQ(ToString(host.interconnect.OfGpus(0, 3)), "NV6");
  EXPECT_EQ(ToString(host.interconnect.OfGpus(2, 3)), "NV6");
  EXPECT_EQ(Islands(host.interconnect).size(), 1u);
}

TEST(ParseHwlocXml, TellsNumaNodesOfDevicesWhereItCan) {
  // Memory of other kinds beside the first node, a number that is left out, memory of a GPU.
  const std::string more =
      "<object type='NUMANode' os_index='2' subtype='CXL' cpuset='0x0000000f' local_memory='5'/>"
      "<object type='NUMANode' os_index='4' subtype='GPUMemory' cpuset='0x0000000f' "
      "local_memory='7'/>";
  const std::string bridge = "<object type='Bridge' gp_index='3'";
  SKEIN_ASSERT_OK_AND_ASSIGN(
      const Host host,
      ParseHwlocXml(absl::StrReplaceAll(HwlocMachine(kHwlocMatrix), {{bridge, more + bridge}})));
  ASSERT_EQ(host.numa_nodes.size(), 5u);
  EXPECT_EQ(host.numa_nodes[2], (NumaNode{{0, 1, 2, 3}, 5}));
  EXPECT_EQ(host.numa_nodes[3], NumaNode());
  EXPECT_EQ(host.numa_nodes[4], NumaNode());
  EXPECT_EQ(host.memory_bytes, (3 << 20) + 5);
  EXPECT_EQ(host.interconnect.gpus[0].numa_node, 0);
  // Devices at the machine itself, where there are two nodes, are near none that is known.
  const std::string text = absl::StrReplaceAll(
      HwlocMachine(kHwlocMatrix),
      {{"</object>\n<distances2",
        HwlocHostBridge(
            70, "f0-f1",
            HwlocDevice(71, "0000:f0:00.0", "0302 [1002:740c]", "") +
                HwlocDevice(72, "0000:f1:00.0", "0200 [15b3:101d]", HwlocOsDevice(73, "eth9", 2))) +
            "</object>\n<distances2"}});
  SKEIN_ASSERT_OK_AND_ASSIGN(const Host far, ParseHwlocXml(text));
  ASSERT_EQ(far.interconnect.gpus.size(), 5u);
  EXPECT_EQ(far.interconnect.gpus[4].numa_node, -1);
  EXPECT_TRUE(far.interconnect.gpus[4].cpus.empty());
  EXPECT_EQ(ToString(far.interconnect.OfGpus(0, 4)), "SYS");
  EXPECT_THAT(NearestNics(far.interconnect, 4), ElementsAre(3));
}

TEST(ParseHwlocXml, HasDevicesOfOneRootPortNear) {
  const std::string beside = "<object type='PCIDev' gp_index='38'";
  const std::string text = absl::StrReplaceAll(
      HwlocMachine(kHwlocMatrix),
      {{beside, HwlocDevice(71, "0000:81:00.1", "0200 [15b3:101d]", HwlocOsDevice(72, "eth9", 2)) +
                    beside}});
  SKEIN_ASSERT_OK_AND_ASSIGN(const Host host, ParseHwlocXml(text));
  ASSERT_EQ(host.interconnect.nics[2].device, "eth9");
  EXPECT_EQ(ToString(host.interconnect.OfGpuAndNic(3, 2)), "PIX");
  EXPECT_EQ(ToString(host.interconnect.OfGpuAndNic(3, 3)), "PHB");
}

TEST(ParseHwlocXml, CountsWhatTheFileAllows) {
  SKEIN_ASSERT_OK_AND_ASSIGN(
      const Host host,
      ParseHwlocXml(absl::StrReplaceAll(
          HwlocMachine(kHwlocMatrix), {{"allowed_cpuset='0x000000ff'", "allowed_cpuset='0x13'"}})));
  EXPECT_EQ(host.cores, 2);
  EXPECT_EQ(host.l2_bytes, 2 << 20);
  // A cache of two cores, a file without cores, and one without a name.
  std::string text =
      absl::StrReplaceAll(HwlocMachine(kHwlocMatrix),
                          {{"<info name='HostName' value='node7'/>", ""}, {"'Core'", "'Group'"}});
  SKEIN_ASSERT_OK_AND_ASSIGN(const Host bare, ParseHwlocXml(text));
  EXPECT_EQ(bare.name, "");
  EXPECT_EQ(bare.cores, 8);
  text = HwlocMachine(kHwlocMatrix);
  const size_t cache = text.find("<object type='L2Cache' cpuset='0x00000003'");
  ASSERT_NE(cache, std::string::npos);
  text.replace(text.find("0x00000003", cache), 10, "0x0000000f");
  SKEIN_ASSERT_OK_AND_ASSIGN(const Host shared, ParseHwlocXml(text));
  EXPECT_EQ(shared.l2_bytes, 1 << 20);
}

TEST(ParseHwlocXml, SaysWhatIsWrongAndWhere) {
  const std::string whole = HwlocMachine(kHwlocMatrix);
  const struct {
    std::vector<std::pair<std::string, std::string>> instead;
    std::string says;
  } cases[] = {
      {{{"SYSTEM \"hwloc2.dtd\"", "[<!ENTITY a 'b'>]"}}, "line 2: a <!DOCTYPE"},
      {{{"<topology version='2.0'>", "<topology>"}},
       "line 3: a topology without version, as of hwloc 1, where this reads 2.x: write it with a "
       "hwloc 2, `lstopo --of xml`"},
      {{{"version='2.0'", "version='3.0'"}}, "line 3: version '3.0', where this reads 2.x"},
      {{{"topology", "system"}}, "line 3: the root is 'system' and not 'topology'"},
      {{{"'Machine'", "'System'"}}, "line 4: no object of type=\"Machine\" at the top"},
      {{{"</topology>", "<object type='Misc'/></topology>"}}, "a second object beside the machine"},
      {{{"allowed_cpuset='0x000000ff'", "allowed_cpuset='0-7'"}},
       "line 4: allowed_cpuset='0-7' is no mask"},
      {{{"allowed_cpuset='0x000000ff'", "allowed_cpuset='0x0'"}},
       "line 4: no processor that it allows"},
      {{{"'Package' os_index='0' cpuset='0x0000000f'", "'Package' cpuset='0xf...f'"}},
       "line 6: cpuset='0xf...f' is no mask"},
      {{{"gp_index='81'", "gp_index='80'"}}, "a second object of gp_index 80"},
      {{{"gp_index='41'", "gp_index='48'"}}, "a second object of gp_index 48"},
      {{{"gp_index='41'", "gp_index='-1'"}}, "gp_index='-1' is no number"},
      {{{"'NUMANode' os_index='0'", "'NUMANode'"}}, "line 8: <object> without os_index"},
      {{{"'NUMANode' os_index='0'", "'NUMANode' os_index='1024'"}},
       "line 8: os_index='1024' is no number of 0 to 1023"},
      {{{"'NUMANode' os_index='1'", "'NUMANode' os_index='0'"}}, "a second NUMA node 0"},
      {{{"'NUMANode'", "'Thing'"}}, "line 4: no NUMA node"},
      {{{"local_memory='1048576'", "local_memory='much'"}},
       "line 8: local_memory='much' is no number"},
      {{{"local_memory='1048576'", "local_memory='18446744073709551615'"}},
       "line 8: local_memory="},
      {{{"cache_size='33554432'", "cache_size='-1'"}}, "line 9: cache_size='-1' is no number"},
      {{{"cache_size='33554432'", ""}}, "line 9: <object> without cache_size"},
      {{{"pci_type='0207 [15b3:1017]", "pci_type='0207 15b3:1017"}},
       "pci_type='0207 15b3:1017 [0000:0000] a1' is no class and device"},
      {{{"pci_type='0207 [15b3:1017]", "pci_type='02g7 [15b3:1017]"}}, "is no class and device"},
      {{{"pci_busid='0000:18:00.0'", ""}}, "pci_busid='' is no address of PCI"},
      {{{"pci_busid='0000:18:00.0'", "pci_busid='0000:0A:00.0'"}}, "a second device 0000:0a:00.0"},
      {{{"name='ib0' osdev_type='2'", "name='ib0'"}}, "<object> without osdev_type"},
      {{{"name='eth1' osdev_type='2'", "name='eth1' osdev_type='net'"}}, "osdev_type='net' is no"},
      {{{"41943040", "\033[2J"}}, "CUDAGlobalMemorySize '\\x1b[2J' is no number of KiB"},
      {{{"nbobjs='4'", "nbobjs='5'"}}, "4 indexes of 5 objects"},
      {{{"nbobjs='4'", ""}}, "<distances2> without nbobjs"},
      {{{"nbobjs='4'", "nbobjs='257'"}}, "nbobjs='257' is no number of 1 to 256"},
      {{{"indexing='gp'", "indexing='os'"}}, "NVLinkBandwidth is not of indexing=\"gp\""},
      {{{"41 42 <", "41 x <"}}, "'x' is no index of an object"},
      {{{"41 42 <", "41 4711 <"}}, "no object of gp_index 4711, which NVLinkBandwidth names"},
      {{{"41 42 <", "41 41 <"}}, "the GPU of gp_index 41 is twice in NVLinkBandwidth"},
      {{{"41 42 <", "41 31 <"}}, "the GPU of gp_index 31 is twice in NVLinkBandwidth"},
      {{{"1000000 50000", "1000000"}}, "15 bandwidths of 4 objects"},
      {{{"1000000 50000", "1000000 25000"}},
       "50000 MB/s in row 3 and column 2, and 25000 the other way"},
      {{{"1000000 50000", "1000000 -1"}}, "'-1' is no bandwidth in MB/s"},
      {{{"1000000 50000", "1000000 fast"}}, "'fast' is no bandwidth in MB/s"},
      {{{"</topology>", absl::StrCat(kHwlocMatrix, "</topology>")}}, "a second NVLinkBandwidth"},
  };
  for (const auto& c : cases) {
    const std::string text = absl::StrReplaceAll(whole, c.instead);
    SCOPED_TRACE(c.says);
    EXPECT_NE(text, whole);
    EXPECT_THAT(ParseHwlocXml(text), StatusIs(absl::StatusCode::kInvalidArgument,
                                              AllOf(StartsWith("line "), HasSubstr(c.says))));
  }
  for (size_t cut = 0; cut + 2 < whole.size(); ++cut) {
    ASSERT_FALSE(ParseHwlocXml(whole.substr(0, cut)).ok()) << cut;
  }
}

TEST(ParseHwlocXml, HasRoomForTheLargestNodesAndNoMore) {
  for (const auto& [gpus, nics] : std::vector<std::pair<int, int>>{{60, 61}, {61, 1}, {1, 62}}) {
    std::string devices;
    for (int i = 0; i < gpus + nics; ++i) {
      const std::string bus_id = absl::StrCat("0001:", absl::Hex(i, absl::kZeroPad2), ":00.0");
      devices += i < gpus ? HwlocDevice(1000 + i, bus_id.c_str(), "0300 [10de:20b0]", "")
                          : HwlocDevice(1000 + i, bus_id.c_str(), "0200 [15b3:101d]",
                                        HwlocOsDevice(2000 + i, "eth", 2));
    }
    const auto read = ParseHwlocXml(
        absl::StrReplaceAll(HwlocMachine(""), {{"<object type='PCIDev' gp_index='37'",
                                                devices + "<object type='PCIDev' gp_index='37'"}}),
        {.nvlinks = 1});
    if (gpus + nics == 121) {
      SKEIN_ASSERT_OK(read);
      EXPECT_EQ(read->interconnect.connections.size(), 128u);
    } else {
      EXPECT_THAT(read, StatusIs(absl::StatusCode::kInvalidArgument,
                                 HasSubstr(gpus > 60 ? "more than 64 GPUs" : "more than 64 NICs")));
    }
  }
}

}  // namespace
}  // namespace skein::topology
