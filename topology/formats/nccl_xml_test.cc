#include "topology/formats/nccl_xml.h"

#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/file.h"
#include "base/test_util.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "topology/cpus.h"
#include "topology/formats/test_text.h"
#include "topology/interconnect.h"

namespace skein::topology {
namespace {

using ::testing::ElementsAre;
using ::testing::StartsWith;

// As NCCL writes it of a node with two switches below the first processor: GPUs by pairs, in
// reverse order, a NIC with two ports beside the first pair, one of ethernet below the second
// processor, and one that is not on PCI.
constexpr char kDump[] = R"(<system version="1">
  <cpu host_hash="0x1" numaid="0" affinity="00000000,0000ffff" arch="x86_64">
    <pci busid="0000:10:00.0" class="0x060400" link_speed="16.0 GT/s PCIe" link_width="16">
      <pci busid="0000:11:00.0" class="0x060400">
        <pci busid="0000:13:00.0" class="0x030200" vendor="0x10de">
          <gpu dev="3" sm="80" rank="3" gdr="1">
            <nvlink target="0000:14:00.0" count="4" tclass="0x030200"/>
          </gpu>
        </pci>
        <pci busid="0000:14:00.0" class="0x030200" vendor="0x10de">
          <gpu dev="2" sm="80" rank="2" gdr="1">
            <nvlink target="0000:13:00.0" count="4" tclass="0x030200"/>
          </gpu>
        </pci>
        <pci busid="0000:15:00.0" class="0x020700">
          <nic>
            <net name="mlx5_0" dev="0" speed="200000" port="1" guid="0x1" gdr="1"/>
            <net name="mlx5_1" dev="1" speed="200000" port="2" guid="0x2" gdr="1"/>
          </nic>
        </pci>
      </pci>
      <pci busid="0000:16:00.0" class="0x030200" vendor="0x10de">
        <gpu dev="1" sm="80" rank="1" gdr="1">
          <nvlink target="0000:AA:00.0" count="2" tclass="0x030200"/>
        </gpu>
      </pci>
    </pci>
    <pci busid="0000:20:00.0" class="0x010802"/>
  </cpu>
  <cpu host_hash="0x1" numaid="1" affinity="0000ffff,00000000" arch="x86_64">
    <pci busid="0000:aa:00.0" class="0x030200" vendor="0x10de">
      <gpu dev="0" sm="80" rank="0" gdr="1">
        <nvlink target="0000:16:00.0" count="2" tclass="0x030200"/>
      </gpu>
    </pci>
    <pci busid="0000:ab:00.0" class="0x020000"/>
    <nic>
      <net name="eth0" dev="2" speed="10000"/>
    </nic>
  </cpu>
</system>
)";

TEST(ParseNcclXml, ReadsWhatNcclWrites) {
  SKEIN_ASSERT_OK_AND_ASSIGN(const Interconnect read, ParseNcclXml(kDump));
  ASSERT_EQ(read.gpus.size(), 4u);
  EXPECT_EQ(read.gpus[0].name, "GPU0");
  EXPECT_EQ(read.gpus[0].bus_id, "0000:aa:00.0");
  EXPECT_EQ(read.gpus[0].numa_node, 1);
  EXPECT_EQ(FormatCpus(read.gpus[0].cpus), "32-47");
  EXPECT_EQ(read.gpus[3].bus_id, "0000:13:00.0");
  EXPECT_EQ(read.gpus[3].numa_node, 0);
  EXPECT_EQ(FormatCpus(read.gpus[3].cpus), "0-15");
  EXPECT_THAT(read.nics,
              ElementsAre(Nic{"NIC0", "mlx5_0", "0000:15:00.0", NicKind::kInfiniBand, 25e9},
                          Nic{"NIC1", "mlx5_1", "0000:15:00.0", NicKind::kInfiniBand, 25e9},
                          Nic{"NIC2", "", "0000:ab:00.0", NicKind::kEthernet, 0},
                          Nic{"NIC3", "eth0", "", NicKind::kEthernet, 1.25e9}));
  EXPECT_EQ(Text(read),
            "X NV2 SYS SYS SYS SYS PHB PHB\n"
            "NV2 X PXB PXB PXB PXB SYS SYS\n"
            "SYS PXB X NV4 PIX PIX SYS SYS\n"
            "SYS PXB NV4 X PIX PIX SYS SYS\n"
            "SYS PXB PIX PIX X PIX SYS SYS\n"
            "SYS PXB PIX PIX PIX X SYS SYS\n"
            "PHB SYS SYS SYS SYS SYS X PHB\n"
            "PHB SYS SYS SYS SYS SYS PHB X\n");
  EXPECT_THAT(Islands(read), ElementsAre(ElementsAre(0, 1), ElementsAre(2, 3)));
  EXPECT_THAT(NearestNics(read, 3), ElementsAre(0, 1));
  EXPECT_THAT(NearestNics(read, 0), ElementsAre(2, 3));
  EXPECT_EQ(read.nvswitches, 0);
}

TEST(ParseNcclXml, PassesOverWhatTheFileMayLeaveOut) {
  // Without `dev` of one GPU, all are in the file's order.
  SKEIN_ASSERT_OK_AND_ASSIGN(const Interconnect by_file, ParseNcclXml(absl::StrReplaceAll(
                                                             kDump, {{"<gpu dev=\"1\"", "<gpu"}})));
  EXPECT_EQ(by_file.gpus[0].bus_id, "0000:13:00.0");
  EXPECT_EQ(by_file.gpus[2].name, "GPU2");
  // Of some GPUs of a node: they keep their names.
  SKEIN_ASSERT_OK_AND_ASSIGN(
      const Interconnect some,
      ParseNcclXml(absl::StrReplaceAll(kDump, {{"dev=\"3\" sm", "dev=\"7\" sm"}})));
  EXPECT_EQ(some.gpus[3].name, "GPU7");
  // NUMA nodes and processors; what they are is told by what is in them.
  SKEIN_ASSERT_OK_AND_ASSIGN(
      const Interconnect bare,
      ParseNcclXml(absl::StrReplaceAll(kDump, {{" numaid=\"0\" affinity=\"00000000,0000ffff\"", ""},
                                               {" numaid=\"1\"", " numaid=\"-1\""},
                                               {" class=\"0x060400\"", ""},
                                               {" class=\"0x030200\"", ""},
                                               {" class=\"0x020700\"", ""}})));
  EXPECT_EQ(bare.gpus[0].numa_node, -1);
  EXPECT_TRUE(bare.gpus[1].cpus.empty());
  EXPECT_EQ(ToString(bare.OfGpus(0, 2)), "SYS");
  EXPECT_EQ(ToString(bare.OfGpus(1, 2)), "PXB");
  EXPECT_EQ(bare.nics.size(), 4u);
  EXPECT_EQ(bare.nics[0].kind, NicKind::kUnknown);
  // Two <cpu> of one NUMA node.
  SKEIN_ASSERT_OK_AND_ASSIGN(
      const Interconnect node,
      ParseNcclXml(absl::StrReplaceAll(kDump, {{"numaid=\"1\"", "numaid=\"0\""}})));
  EXPECT_EQ(ToString(node.OfGpus(0, 2)), "NODE");
  // One GPU needs no NVLinks, and elements that are not known are none of this reader's.
  SKEIN_ASSERT_OK(ParseNcclXml(R"(<system><thing/><cpu><pci busid="0000:01:00.0" class="0x030200">
      <gpu><c2c bw="1"/></gpu></pci></cpu></system>)"));
}

// GPUs of `links` NVLinks to each of `switches`.
std::string Switched(const std::vector<int>& links, int switches) {
  std::string text = "<system><cpu numaid='0'>";
  for (size_t i = 0; i < links.size(); ++i) {
    absl::StrAppend(&text, "<pci busid='0000:1", i, ":00.0' class='0x030200'><gpu dev='", i, "'>");
    for (int j = 0; j < switches && links[i] > 0; ++j) {
      absl::StrAppend(&text, "<nvlink target='0000:c", j, ":00.0' count='", links[i],
                      "' tclass='0x068000'/>");
    }
    absl::StrAppend(&text, "</gpu></pci>");
  }
  return text + "</cpu></system>";
}

TEST(ParseNcclXml, ConnectsGpusThroughSwitches) {
  SKEIN_ASSERT_OK_AND_ASSIGN(const Interconnect read, ParseNcclXml(Switched({3, 3, 2}, 6)));
  EXPECT_EQ(read.nvswitches, 6);
  EXPECT_EQ(ToString(read.OfGpus(0, 1)), "NV18");
  EXPECT_EQ(ToString(read.OfGpus(0, 2)), "NV12");
  EXPECT_THAT(Islands(read), ElementsAre(ElementsAre(0, 1, 2)));
  // A switch without an address, as NCCL calls those that it cannot see.
  SKEIN_ASSERT_OK_AND_ASSIGN(const Interconnect unseen,
                             ParseNcclXml(absl::StrReplaceAll(
                                 Switched({18, 18}, 1), {{"0000:c0:00.0", "fffffff:ffff:ff"}})));
  EXPECT_EQ(ToString(unseen.OfGpus(0, 1)), "NV18");
  EXPECT_EQ(unseen.nvswitches, 1);
  // Links to processors, and to GPUs that the file is not about, connect none of these.
  SKEIN_ASSERT_OK_AND_ASSIGN(
      const Interconnect power,
      ParseNcclXml(absl::StrReplaceAll(Switched({3, 3}, 1), {{"0x068000", "0x068001"}})));
  EXPECT_EQ(ToString(power.OfGpus(0, 1)), "PHB");
  SKEIN_ASSERT_OK_AND_ASSIGN(
      const Interconnect away,
      ParseNcclXml(absl::StrReplaceAll(Switched({3, 3}, 1), {{"0x068000", "0x030200"}})));
  EXPECT_EQ(ToString(away.OfGpus(0, 1)), "PHB");
}

TEST(ParseNcclXml, AsksForNvlinksThatLeadToThemselves) {
  const std::string text = absl::StrReplaceAll(
      kDump, {{"<nvlink target=\"0000:14:00.0\"", "<nvlink target=\"0000:13:00.0\""}});
  EXPECT_THAT(
      ParseNcclXml(text),
      StatusIs(absl::StatusCode::kFailedPrecondition,
               absl::StrCat("line 7: an NVLink of GPU3 (0000:13:00.0) leads to itself: where "
                            "they lead NCCL finds out on the host",
                            kWhatToDo)));
  SKEIN_ASSERT_OK_AND_ASSIGN(const Interconnect read, ParseNcclXml(text, {.nvlinks = 4}));
  EXPECT_EQ(ToString(read.OfGpus(2, 3)), "NV4");
}

TEST(ParseNcclXml, TakesNvlinksThatAreGivenWhereTheFileLeavesThemOut) {
  const std::string text = Switched({3, 3, 0}, 2);
  EXPECT_THAT(ParseNcclXml(text),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       absl::StrCat("line 1: nothing tells the NVLinks of GPU2 (0000:12:00.0), one "
                                    "of 3 GPUs: NCCL finds them on the host",
                                    kWhatToDo)));
  SKEIN_ASSERT_OK_AND_ASSIGN(const Interconnect read, ParseNcclXml(text, {.nvlinks = 5}));
  EXPECT_EQ(ToString(read.OfGpus(0, 1)), "NV6");  // as the file says
  EXPECT_EQ(ToString(read.OfGpus(0, 2)), "NV5");
  EXPECT_EQ(ToString(read.OfGpus(2, 1)), "NV5");
  SKEIN_ASSERT_OK_AND_ASSIGN(const Interconnect none, ParseNcclXml(text, {.nvlinks = 0}));
  EXPECT_EQ(ToString(none.OfGpus(0, 1)), "NV6");
  EXPECT_EQ(ToString(none.OfGpus(0, 2)), "PHB");
  // What one of two tells is told.
  SKEIN_ASSERT_OK_AND_ASSIGN(
      const Interconnect half,
      ParseNcclXml(
          absl::StrReplaceAll(
              kDump, {{"<nvlink target=\"0000:13:00.0\" count=\"4\" tclass=\"0x030200\"/>", ""}}),
          {.nvlinks = 1}));
  EXPECT_EQ(ToString(half.OfGpus(2, 3)), "NV4");
  EXPECT_EQ(ToString(half.OfGpus(0, 2)), "NV1");
  EXPECT_EQ(ToString(half.OfGpus(0, 3)), "SYS");  // both tell: there are none
  // The same number as in the file is no contradiction, another one is.
  SKEIN_EXPECT_OK(ParseNcclXml(Switched({3, 3}, 2), {.nvlinks = 6}));
  EXPECT_THAT(ParseNcclXml(Switched({3, 3}, 2), {.nvlinks = 12}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "by the file GPU0 and GPU1 have 6 NVLinks, by --nvlinks 12: leave the flag "
                       "out, as the file tells all of them"));
  EXPECT_THAT(
      ParseNcclXml(kDump, {.nvlinks = 4}),
      StatusIs(absl::StatusCode::kInvalidArgument, StartsWith("by the file GPU0 and GPU1")));
  for (const int32_t wrong : {-1, 1001}) {
    EXPECT_THAT(ParseNcclXml(text, {.nvlinks = wrong}),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         absl::StrCat("--nvlinks=", wrong, " is no number of 0 to 1000")));
  }
}

TEST(ParseNcclXml, SaysWhatIsWrongAndWhere) {
  const struct {
    std::vector<std::pair<std::string, std::string>> instead;  // in kDump
    std::string says;
  } cases[] = {
      {{{"<system version=\"1\">", "<!DOCTYPE system [<!ENTITY a 'b'>]>\n<system>"}},
       "line 1: a <!DOCTYPE"},
      {{{"system", "graphs"}}, "line 1: the root is 'graphs' and not 'system': this is not a"},
      {{{"version=\"1\"", "version=\"2\""}}, "line 1: version='2' is no number of 1 to 1"},
      {{{"    </nic>\n", ""}}, "line 19: this is no XML: Start-end tags mismatch"},
      {{{"numaid=\"0\"", "numaid=\"zero\""}}, "line 2: numaid='zero' is no number of -1 to 1023"},
      {{{"numaid=\"1\"", "numaid=\"-2\""}}, "line 30: numaid='-2' is no number"},
      {{{"00000000,0000ffff", "0-15"}}, "line 2: affinity='0-15' is no mask"},
      {{{"host_hash=\"0x1\" numaid=\"1\"", "host_hash=\"0x2\" numaid=\"1\""}},
       "line 30: a second host"},
      {{{"  </cpu>\n</system>",
         "  </cpu>\n  <pci busid=\"0000:01:00.0\" class=\"0x030200\"/></system>"}},
       "line 41: a <pci> in a 'system' has no place in a topology of NCCL"},
      {{{"<gpu dev=\"0\"", "<gpu><gpu/></gpu><gpu dev=\"0\""}}, "line 32: a second <gpu>"},
      {{{"    <nic>\n      <net name=\"eth0\"", "    <nic/><gpu/><nic>\n      <net name=\"eth0\""}},
       "line 37: a <gpu> in a 'cpu' has no place"},
      {{{"<nic>\n      <net name=\"eth0\"", "<net/><nic>\n      <net name=\"eth0\""}},
       "line 37: a <net> in a 'cpu' has no place"},
      {{{"<gpu dev=\"3\" sm", "<nvlink/><gpu dev=\"3\" sm"}},
       "line 6: a <nvlink> in a 'pci' has no place"},
      {{{"<pci busid=\"0000:ab:00.0\" class=\"0x020000\"/>", "<pci busid=\"0000:ab:00.0\"/>"}},
       "line 36: device '0000:ab:00.0' without class, which NCCL finds on the host: is it a GPU or "
       "a NIC? Write class=\"0x030200\" for a GPU, \"0x020000\" for ethernet"},
      {{{"0x020000", "network"}}, "line 36: class='network' is no class of PCI"},
      {{{"0x020000", "0x02000 "}}, "line 36: class='0x02000 ' is no class of PCI"},
      {{{"0x020700", "0x060400"}}, "line 15: <nic> in device '0000:15:00.0' of another class"},
      {{{"\"0x030200\" vendor=\"0x10de\">\n        <gpu dev=\"1\"",
         "\"0x020000\" vendor=\"0x10de\">\n        <gpu dev=\"1\""}},
       "line 22: <gpu> in device '0000:16:00.0' of another class"},
      {{{"busid=\"0000:ab:00.0\"", "busid=\"ab:00.0\""}},
       "line 36: busid='ab:00.0' is no address of PCI, as \"0000:9a:00.0\""},
      {{{"busid=\"0000:aa:00.0\"", ""}}, "line 31: busid='' is no address"},
      {{{"busid=\"0000:ab:00.0\"", "busid=\"0000:16:00.0\""}},
       "line 36: a second device 0000:16:00.0"},
      {{{"dev=\"0\" sm", "dev=\"3\" sm"}}, "line 32: a second GPU with dev=3"},
      {{{"dev=\"0\" sm", "dev=\"-1\" sm"}}, "line 32: dev='-1' is no number of 0 to 1023"},
      {{{"speed=\"10000\"", "speed=\"fast\""}}, "line 38: speed='fast' is no number of 0 to"},
      {{{"speed=\"10000\"", "speed=\"-1\""}}, "line 38: speed='-1' is no number of 0 to"},
      {{{"speed=\"10000\"", "speed=\"1e99\""}}, "line 38: speed='1e99' is no number of 0 to"},
      {{{"count=\"4\"", "count=\"0\""}}, "line 12: count='0' is no number of 1 to 1000"},
      {{{"count=\"2\"", "count=\"1001\""}}, "line 33: count='1001' is no number of 1 to 1000"},
      {{{" count=\"2\"", ""}}, "line 33: <nvlink> without count"},
      {{{"0000:AA:00.0\" count=\"2\"", "0000:AA:00.0\" count=\"3\""}},
       "line 31: 2 NVLinks of GPU0 (0000:aa:00.0) lead to GPU1 (0000:16:00.0), and 3 the other "
       "way"},
      {{{"0000:AA:00.0", "0000:14:00.0"}},
       "line 31: 2 NVLinks of GPU0 (0000:aa:00.0) lead to GPU1 (0000:16:00.0), and 0 the other "
       "way"},
      {{{"0000:AA:00.0\" count=\"2\" tclass=\"0x030200\"", "\001\033x\" count=\"2\""}},
       "line 24: an NVLink to '\\x01\\x1bx', which is no GPU of this file, and no NVSwitch"},
      {{{"tclass=\"0x030200\"", "tclass=\"0x03\""}}, "line 33: tclass='0x03' is no class of PCI"},
      {{{"0x030200", "0x010802"}, {"<gpu", "<x"}, {"</gpu", "</x"}, {"nvlink", "x"}},
       "line 1: no GPU is in this file"},
  };
  for (const auto& c : cases) {
    const std::string text = absl::StrReplaceAll(kDump, c.instead);
    SCOPED_TRACE(c.says);
    EXPECT_NE(text, kDump);
    EXPECT_THAT(ParseNcclXml(text),
                StatusIs(absl::StatusCode::kInvalidArgument, StartsWith(c.says)));
  }
  for (size_t cut = 0; cut + 2 < sizeof(kDump) - 1; ++cut) {
    ASSERT_FALSE(ParseNcclXml(std::string_view(kDump, cut)).ok()) << cut;
  }
}

TEST(ParseNcclXml, HasRoomForTheLargestNodesAndNoMore) {
  for (const auto& [gpus, nics] : std::vector<std::pair<int, int>>{{64, 64}, {65, 1}, {1, 65}}) {
    std::string text = "<system><cpu>\n";
    for (int i = 0; i < gpus + nics; ++i) {
      absl::StrAppend(&text, "<pci busid='0000:", absl::Hex(i, absl::kZeroPad2), ":00.0' class='",
                      i < gpus ? "0x030000" : "0x020000", "'/>\n");
    }
    const auto read = ParseNcclXml(text + "</cpu></system>", {.nvlinks = 18});
    if (gpus + nics == 128) {
      SKEIN_ASSERT_OK(read);
      EXPECT_EQ(Islands(*read).size(), 1u);
      EXPECT_EQ(read->connections.size(), 128u);
    } else {
      EXPECT_THAT(
          read, StatusIs(absl::StatusCode::kInvalidArgument,
                         gpus > 64 ? "line 66: more than 64 GPUs" : "line 67: more than 64 NICs"));
    }
  }
}

// Of clouds, as they give them.
class SharedFiles : public ::testing::Test {
 protected:
  void SetUp() override {
    const char* const shared = std::getenv("SKEIN_SHARED");
    if (shared == nullptr) GTEST_SKIP() << "SKEIN_SHARED names no folder";
    folder_ = absl::StrCat(shared, "/data/topologies/");
  }
  std::string Read(const char* name) const {
    const absl::StatusOr<std::string> text = ReadFile(folder_ + name, 1 << 20);
    EXPECT_THAT(text, IsOk());
    return text.value_or("");
  }
  std::string folder_;
};

TEST_F(SharedFiles, AskForNvlinks) {
  const struct {
    const char* file;
    std::string says;
  } cases[] = {
      {"nccl-aws-p4d-24xl.xml",
       "line 18: nothing tells the NVLinks of GPU0 (0000:10:1c.0), one of 8 GPUs: NCCL finds them "
       "on the host"},
      {"nccl-azure-ndv2.xml",
       "line 3: nothing tells the NVLinks of GPU0 (0001:00:00.0), one of 8 GPUs: NCCL finds them "
       "on "
       "the host"},
      {"nccl-azure-ndv4.xml",
       "line 4: nothing tells the NVLinks of GPU0 (0003:00:00.0), one of 8 GPUs: NCCL finds them "
       "on "
       "the host"},
      {"nccl-azure-ncv4.xml",
       "line 5: an NVLink of GPU0 (0001:00:00.0) leads to itself: where they lead NCCL finds out "
       "on "
       "the host"},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.file);
    EXPECT_THAT(ParseNcclXml(Read(c.file)),
                StatusIs(absl::StatusCode::kFailedPrecondition, c.says + kWhatToDo));
  }
}

TEST_F(SharedFiles, AskForClasses) {
  for (const std::optional<int32_t> nvlinks :
       {std::optional<int32_t>(), std::optional<int32_t>(0)}) {
    EXPECT_THAT(
        ParseNcclXml(Read("nccl-aws-g5.48xl.xml"), {.nvlinks = nvlinks}),
        StatusIs(
            absl::StatusCode::kInvalidArgument,
            "line 14: device '0000:00:16.0' without class, which NCCL finds on the host: is it "
            "a GPU or a NIC? Write class=\"0x030200\" for a GPU, \"0x020000\" for ethernet, or "
            "\"0x020700\" for InfiniBand into the file"));
  }
  // As it asks for.
  std::string text = absl::StrReplaceAll(Read("nccl-aws-g5.48xl.xml"),
                                         {{"0000:00:15.0\"", "0000:00:15.0\" class=\"0x020000\""},
                                          {".0\"/>", ".0\" class=\"0x030200\"/>"}});
  SKEIN_ASSERT_OK_AND_ASSIGN(const Interconnect read, ParseNcclXml(text, {.nvlinks = 0}));
  EXPECT_EQ(read.gpus.size(), 8u);
  EXPECT_EQ(read.nics.size(), 1u);
  EXPECT_EQ(Islands(read).size(), 8u);
  EXPECT_THAT(Islands(read, Path::kBridge),
              ElementsAre(ElementsAre(0, 1, 2, 3), ElementsAre(4, 5, 6, 7)));
  EXPECT_EQ(ToString(read.OfGpuAndNic(3, 0)), "SYS");
  EXPECT_EQ(ToString(read.OfGpuAndNic(4, 0)), "PHB");
}

TEST_F(SharedFiles, AreReadWithNvlinks) {
  SKEIN_ASSERT_OK_AND_ASSIGN(const Interconnect p4d,
                             ParseNcclXml(Read("nccl-aws-p4d-24xl.xml"), {.nvlinks = 12}));
  ASSERT_EQ(p4d.gpus.size(), 8u);
  ASSERT_EQ(p4d.nics.size(), 4u);
  EXPECT_THAT(Islands(p4d), ElementsAre(ElementsAre(0, 1, 2, 3, 4, 5, 6, 7)));
  for (int i = 0; i < 8; ++i) {
    EXPECT_THAT(NearestNics(p4d, i), ElementsAre(i / 2));
    EXPECT_EQ(ToString(p4d.OfGpuAndNic(i, i / 2)), "PIX");
    EXPECT_EQ(ToString(p4d.OfGpuAndNic(i, (i / 2) ^ 1)), "PHB");
    EXPECT_EQ(ToString(p4d.OfGpuAndNic(i, (i / 2) ^ 2)), "SYS");
    EXPECT_EQ(ToString(p4d.OfGpus(i, i ^ 5)), "NV12");
    EXPECT_EQ(p4d.gpus[i].numa_node, i / 4);
    EXPECT_EQ(FormatCpus(p4d.gpus[i].cpus), i < 4 ? "0-23,48-71" : "24-47,72-95");
  }
  EXPECT_EQ(p4d.nics[0], (Nic{"NIC0", "", "0000:10:1b.0", NicKind::kEthernet, 0}));
  SKEIN_ASSERT_OK_AND_ASSIGN(const Interconnect bare,
                             ParseNcclXml(Read("nccl-aws-p4d-24xl.xml"), {.nvlinks = 0}));
  EXPECT_EQ(ToString(bare.OfGpus(0, 1)), "PIX");
  EXPECT_EQ(ToString(bare.OfGpus(0, 2)), "PHB");
  EXPECT_EQ(ToString(bare.OfGpus(0, 4)), "SYS");

  SKEIN_ASSERT_OK_AND_ASSIGN(const Interconnect ndv2,
                             ParseNcclXml(Read("nccl-azure-ndv2.xml"), {.nvlinks = 0}));
  ASSERT_EQ(ndv2.gpus.size(), 8u);
  ASSERT_EQ(ndv2.nics.size(), 1u);
  EXPECT_EQ(ndv2.nics[0].kind, NicKind::kInfiniBand);
  for (int i = 0; i < 8; ++i) {
    EXPECT_EQ(ToString(ndv2.OfGpuAndNic(i, 0)), i < 4 ? "PHB" : "SYS");
    EXPECT_THAT(NearestNics(ndv2, i), ElementsAre(0));
    EXPECT_EQ(FormatCpus(ndv2.gpus[i].cpus), i < 4 ? "0-19" : "20-39");
  }
  EXPECT_THAT(Islands(ndv2, Path::kBridge),
              ElementsAre(ElementsAre(0, 1, 2, 3), ElementsAre(4, 5, 6, 7)));

  SKEIN_ASSERT_OK_AND_ASSIGN(const Interconnect ndv4,
                             ParseNcclXml(Read("nccl-azure-ndv4.xml"), {.nvlinks = 12}));
  ASSERT_EQ(ndv4.nics.size(), 8u);
  EXPECT_EQ(Islands(ndv4).size(), 1u);
  for (int i = 0; i < 8; ++i) {
    EXPECT_THAT(NearestNics(ndv4, i), ElementsAre(i / 2 * 2, i / 2 * 2 + 1));
    EXPECT_EQ(ndv4.gpus[i].numa_node, i / 2);
  }

  SKEIN_ASSERT_OK_AND_ASSIGN(const Interconnect ncv4,
                             ParseNcclXml(Read("nccl-azure-ncv4.xml"), {.nvlinks = 4}));
  ASSERT_EQ(ncv4.gpus.size(), 4u);
  EXPECT_EQ(Islands(ncv4).size(), 1u);
  EXPECT_EQ(ToString(ncv4.OfGpus(0, 3)), "NV4");
  EXPECT_THAT(ncv4.nics, ElementsAre(Nic{"NIC0", "eth0", "", NicKind::kEthernet, 12.5e9}));
  EXPECT_EQ(ToString(ncv4.OfGpuAndNic(0, 0)), "PHB");
  EXPECT_EQ(ToString(ncv4.OfGpuAndNic(1, 0)), "SYS");
  EXPECT_EQ(FormatCpus(ncv4.gpus[2].cpus), "48-71");
}

}  // namespace
}  // namespace skein::topology
