#include "topology/formats/nvidia_smi.h"

#include <cstdint>
#include <cstdlib>
#include <numeric>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/file.h"
#include "base/test_util.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace skein::topology {
namespace {

using ::testing::ElementsAre;
using ::testing::StartsWith;

// Two pairs of GPUs, a NIC beside each pair.
constexpr char kPairs[] =
    "\t\033[4mGPU0\tGPU1\tGPU2\tGPU3\tNIC0\tNIC1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\033[0m\n"
    "GPU0\t X \tNV4\tNODE\tSYS\tPIX\tSYS\t0-3,8-9\t0\t\tN/A\n"
    "GPU1\tNV4\t X \tSYS\tSYS\tPXB\tSYS\t0-3,8-9\t0\t\tN/A\n"
    "GPU2\tNODE\tSYS\t X \tNV12\tSYS\tPHB\t4-7\t1\t\tN/A\n"
    "GPU3\tSYS\tSYS\tNV12\t X \tSYS\tPHB\t4-7\t1\t\tN/A\n"
    "NIC0\tPIX\tPXB\tSYS\tSYS\t X \tSYS\t\t\t\t\n"
    "NIC1\tSYS\tSYS\tPHB\tPHB\tSYS\t X \t\t\t\t\n"
    "\n"
    "Legend:\n\n  X    = Self\n  NV#  = Connection traversing a bonded set of # NVLinks\n\n"
    "NIC Legend:\n\n  NIC0: mlx5_0\n  NIC1: mlx5_bond_0\n\n";

void ExpectPairs(const Interconnect& read) {
  ASSERT_EQ(read.gpus.size(), 4u);
  ASSERT_EQ(read.nics.size(), 2u);
  EXPECT_EQ(read.gpus[2].name, "GPU2");
  EXPECT_EQ(ToString(read.OfGpus(0, 1)), "NV4");
  EXPECT_EQ(ToString(read.OfGpus(3, 2)), "NV12");
  EXPECT_EQ(ToString(read.OfGpus(0, 2)), "NODE");
  EXPECT_EQ(ToString(read.OfGpus(3, 3)), "X");
  EXPECT_EQ(ToString(read.OfGpuAndNic(0, 0)), "PIX");
  EXPECT_EQ(ToString(read.OfGpuAndNic(2, 1)), "PHB");
  EXPECT_EQ(ToString(read.connections[5][4]), "SYS");
  EXPECT_THAT(Islands(read), ElementsAre(ElementsAre(0, 1), ElementsAre(2, 3)));
  EXPECT_THAT(NearestNics(read, 1), ElementsAre(0));
  EXPECT_THAT(NearestNics(read, 3), ElementsAre(1));
}

TEST(ParseNvidiaSmi, ReadsConnectionsProcessorsAndNics) {
  SKEIN_ASSERT_OK_AND_ASSIGN(const Interconnect read, ParseNvidiaSmi(kPairs));
  ExpectPairs(read);
  EXPECT_THAT(read.gpus[1].cpus, ElementsAre(0, 1, 2, 3, 8, 9));
  EXPECT_EQ(read.gpus[1].numa_node, 0);
  EXPECT_THAT(read.gpus[3].cpus, ElementsAre(4, 5, 6, 7));
  EXPECT_EQ(read.gpus[3].numa_node, 1);
  EXPECT_EQ(read.nics[0], (Nic{"NIC0", "mlx5_0"}));
  EXPECT_EQ(read.nics[1], (Nic{"NIC1", "mlx5_bond_0"}));
}

// As it comes through mails and issue trackers.
TEST(ParseNvidiaSmi, TakesItAsPeoplePasteIt) {
  const std::string text = kPairs;
  for (const std::string& pasted :
       {absl::StrReplaceAll(text, {{"\033", ""}}),                 // the escape character is lost
        absl::StrReplaceAll(text, {{"\t", "   "}}),                // tabs are spaces
        absl::StrReplaceAll(text, {{"\n", "\r\n"}}),               // of another system
        absl::StrCat("$ nvidia-smi topo -m\n\n", text),            // with the command
        absl::StrReplaceAll(text, {{"\nGPU2", "\n\n  GPU2"}})}) {  // with gaps
    SCOPED_TRACE(pasted);
    SKEIN_ASSERT_OK_AND_ASSIGN(const Interconnect read, ParseNvidiaSmi(pasted));
    ExpectPairs(read);
    EXPECT_EQ(read.gpus[3].numa_node, 1);
    EXPECT_EQ(read.nics[1].device, "mlx5_bond_0");
  }
  // Without legends, and so without what the system calls the NICs.
  SKEIN_ASSERT_OK_AND_ASSIGN(const Interconnect cut,
                             ParseNvidiaSmi(text.substr(0, text.find("\nLegend"))));
  ExpectPairs(cut);
  EXPECT_EQ(cut.nics[0].device, "");
}

TEST(ParseNvidiaSmi, ReadsOlderVersions) {
  // NICs by their devices, SOC for SYS, no NUMA affinity, NICs before GPUs in no column's way.
  SKEIN_ASSERT_OK_AND_ASSIGN(const Interconnect read,
                             ParseNvidiaSmi("\tGPU0\tmlx5_0\tGPU1\tCPU Affinity\n"
                                            "GPU0\t X \tPIX\tSOC\t0-17\n"
                                            "mlx5_0\tPIX\t X \tSOC\n"
                                            "GPU1\tSOC\tSOC\t X \tN/A\n"));
  ASSERT_EQ(read.gpus.size(), 2u);
  EXPECT_EQ(read.nics, std::vector<Nic>({{"mlx5_0", "mlx5_0"}}));
  EXPECT_EQ(read.OfGpus(0, 1).path, Path::kSystem);
  EXPECT_EQ(read.OfGpuAndNic(0, 0).path, Path::kSwitch);
  EXPECT_EQ(read.OfGpuAndNic(1, 0).path, Path::kSystem);
  EXPECT_EQ(read.gpus[0].cpus.size(), 18u);
  EXPECT_EQ(read.gpus[0].numa_node, -1);
  EXPECT_THAT(read.gpus[1].cpus, ElementsAre());
}

TEST(ParseNvidiaSmi, AMachineWasRead) {
  const char* const shared = std::getenv("SKEIN_SHARED");
  if (shared == nullptr) GTEST_SKIP() << "SKEIN_SHARED names no folder";
  SKEIN_ASSERT_OK_AND_ASSIGN(
      const std::string text,
      ReadFile(absl::StrCat(shared, "/data/topologies/nvidia-smi-topo-m-4xh200-nvswitch.txt"),
               1 << 20));
  SKEIN_ASSERT_OK_AND_ASSIGN(const Interconnect read, ParseNvidiaSmi(text));
  ASSERT_EQ(read.gpus.size(), 4u);
  EXPECT_EQ(read.nics.size(), 0u);
  EXPECT_THAT(Islands(read), ElementsAre(ElementsAre(0, 1, 2, 3)));
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(read.gpus[i].cpus.size(), 64u);
    EXPECT_EQ(read.gpus[i].numa_node, 0);
    for (int j = 0; j < 4; ++j) EXPECT_EQ(ToString(read.OfGpus(i, j)), i == j ? "X" : "NV18");
    EXPECT_THAT(NearestNics(read, i), ElementsAre());
  }
}

TEST(ParseNvidiaSmi, SaysWhatIsWrongAndWhere) {
  const std::string text = kPairs;
  const struct {
    std::string text;
    std::string says;
  } cases[] = {
      {"", "no line names GPUs: this is not what `nvidia-smi topo -m` prints"},
      {"bash: nvidia-smi: command not found\n", "no line names GPUs"},
      {absl::StrReplaceAll(text, {{"PXB", "PEX"}}),
       "line 3: 'PEX' between 'GPU1' and 'NIC0' is no connection: NV#"},
      {absl::StrReplaceAll(text, {{"NV12", "NV0"}}), "line 4: 'NV0' between 'GPU2' and 'GPU3'"},
      {absl::StrReplaceAll(text, {{"NV12", "NV99999"}}), "line 4: 'NV99999'"},
      {absl::StrReplaceAll(text, {{"GPU1\tNV4\t X ", "GPU1\tNV4\tSYS"}}),
       "line 3: 'SYS' between 'GPU1' and 'GPU1'"},
      {absl::StrReplaceAll(text, {{"GPU1\tNV4\t X ", "GPU1\t X \t X "}}),
       "line 3: 'X' between 'GPU1' and 'GPU0'"},
      {absl::StrReplaceAll(text, {{"GPU1\tNV4", "GPU1\tNV8"}}),
       "line 3: NV8 between 'GPU1' and 'GPU0', and NV4 in line 2"},
      {absl::StrReplaceAll(text, {{"NIC1\tSYS\tSYS\tPHB", "NIC1\tSYS\tSYS\tPIX"}}),
       "line 7: PIX between 'NIC1' and 'GPU2', and PHB in line 4"},
      {absl::StrReplaceAll(text, {{"GPU3\tSYS", "GPU2\tSYS"}}), "line 5: 'GPU2' has a second row"},
      {text.substr(0, text.find("GPU2\tNODE")), "line 1: 'GPU2' has no row of its own"},
      {text.substr(0, text.find("NV12\tSYS")),
       "line 4: the row of 'GPU2' is cut: it has 3 connections of 6"},
      {absl::StrReplaceAll(text, {{"GPU3\tSYS", "GPU7\tSYS"}}),
       "line 5: 'GPU7' is no device of the header, and rows are missing"},
      {absl::StrReplaceAll(text, {{"GPU3\tNIC0", "GPU3\tGPU3"}}), "line 1: 'GPU3' is named twice"},
      {"GPU0\033]0;title\007\n", "no line names GPUs"},
      {"GPU0\n\001\033evil X\n", "line 2: '\\x01\\x1bevil' is no device of the header"},
      {std::string((1 << 20) + 1, 'x'), "more than a MiB"},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.text.substr(0, 2000));
    EXPECT_THAT(ParseNvidiaSmi(c.text),
                StatusIs(absl::StatusCode::kInvalidArgument, StartsWith(c.says)));
  }
}

TEST(ParseNvidiaSmi, HasRoomForTheLargestNodesAndNoMore) {
  for (const int devices : {16, 64, 65}) {
    std::string text;
    for (int i = 0; i < devices; ++i) absl::StrAppend(&text, "\tGPU", i);
    absl::StrAppend(&text, "\tCPU Affinity\n");
    for (int i = 0; i < devices; ++i) {
      absl::StrAppend(&text, "GPU", i);
      for (int j = 0; j < devices; ++j) absl::StrAppend(&text, "\t", i == j ? "X" : "NV18");
      absl::StrAppend(&text, "\t0-99999999\n");  // more than there are: not told
    }
    const auto read = ParseNvidiaSmi(text);
    if (devices > 64) {
      EXPECT_THAT(read,
                  StatusIs(absl::StatusCode::kInvalidArgument, "line 1: 65 devices: 64 at most"));
      continue;
    }
    SKEIN_ASSERT_OK(read);
    EXPECT_EQ(Islands(*read).size(), 1u);
    EXPECT_TRUE(read->gpus[0].cpus.empty());
  }
}

// A cube of eight GPUs with four links each, as a DGX-1V has it: no GPU reaches all others.
TEST(Islands, AreGroupsInWhichEachTwoAreConnected) {
  Interconnect cube;
  cube.gpus.resize(8);
  cube.connections.assign(8, std::vector<Connection>(8, {Path::kSystem}));
  const auto connect = [&](int i, int j, int links) {
    cube.connections[i][j] = cube.connections[j][i] = {Path::kNvlink, links};
  };
  for (const int quad : {0, 4}) {
    for (int i = 0; i < 4; ++i) {
      cube.connections[quad + i][quad + i] = {};
      for (int j = 0; j < i; ++j) connect(quad + i, quad + j, 1 + (i + j) % 2);
    }
  }
  for (int i = 0; i < 4; ++i) connect(i, i + 4, 2);
  EXPECT_THAT(Islands(cube), ElementsAre(ElementsAre(0, 1, 2, 3), ElementsAre(4, 5, 6, 7)));
  EXPECT_EQ(Islands(cube, Path::kSystem).size(), 1u);
  EXPECT_EQ(Islands(cube, Path::kSelf).size(), 8u);
}

}  // namespace
}  // namespace skein::topology
