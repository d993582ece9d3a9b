// `skein topo` and `skein plan --topology`: this host, and machines that need not be there.
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/file.h"
#include "base/test_util.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/client/skein_program.h"

namespace skein::client {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

TEST(SkeinMachinesTest, TopoShowsHowGpusAreConnected) {
  const std::string file = absl::StrCat(::testing::TempDir(), "/topo.txt");
  const std::string text =
      "\t\033[4mGPU0\tGPU1\tGPU2\tNIC0\tCPU Affinity\tNUMA Affinity\033[0m\n"
      "GPU0\t X \tNV4\tSYS\tPIX\t0-3,8\t0\n"
      "GPU1\tNV4\t X \tSYS\tPHB\t0-3,8\t0\n"
      "GPU2\tSYS\tSYS\t X \tSYS\t4-7\t1\n"
      "NIC0\tPIX\tPHB\tSYS\t X \t\t\n"
      "\nNIC Legend:\n\n  NIC0: mlx5_0\n";
  SKEIN_ASSERT_OK(WriteFile(file, text));
  const Outcome shown = Skein("topo " + file);
  EXPECT_EQ(shown.exit_code, 0) << shown.err;
  EXPECT_THAT(shown.out,
              AllOf(StartsWith("3 GPUs, 1 NIC\n"), HasSubstr("\n  GPU0  -     NV4   SYS   PIX\n"),
                    HasSubstr("\nGPU0: cores 0-3,8, NUMA node 0, NIC0 (mlx5_0) over PIX\n"),
                    HasSubstr("\nGPU2: cores 4-7, NUMA node 1, NIC0 (mlx5_0) over SYS\n"),
                    HasSubstr("\nNVLink connects each two of: GPU0 GPU1 | GPU2\n")));
  const Outcome piped = Skein(absl::StrCat("topo --json - <", file));
  EXPECT_EQ(piped.exit_code, 0) << piped.err;
  EXPECT_THAT(piped.out, AllOf(HasSubstr("\"name\": \"GPU2\""), HasSubstr("\"cpus\": \"4-7\""),
                               HasSubstr("\"device\": \"mlx5_0\""), HasSubstr("\"NV4\"")));
  SKEIN_ASSERT_OK(WriteFile(file, text.substr(0, text.find("GPU2\tSYS"))));
  const Outcome cut = Skein("topo " + file);
  EXPECT_EQ(cut.exit_code, 1);
  EXPECT_EQ(cut.out, "");
  EXPECT_EQ(cut.err, absl::StrCat("skein: ", file, ": line 1: 'GPU2' has no row of its own\n"));
  EXPECT_THAT(Skein("topo /nowhere").err, HasSubstr("/nowhere"));
}

// What topo prints as JSON, plan reads; figures that nobody told must be asked for.
TEST(SkeinMachinesTest, PlanRanksLayoutsOfMachinesThatAreNotThere) {
  const std::string model = "plan --model synthetic:llama3-70b ";
  const Outcome ranked = Skein(model + "--topology dgx-h100 --nodes 2 --concurrency 64");
  EXPECT_EQ(ranked.exit_code, 0) << ranked.err;
  EXPECT_THAT(
      ranked.out,
      AllOf(StartsWith("2 hosts, 8 GPUs on the first (NVIDIA H100 80GB HBM3"),
            HasSubstr("\nRates are modelled: of datasheets\n"),
            HasSubstr("64 at once, each 512 tokens in and 256 out\nBest by tokens a second\n"),
            HasSubstr("\n- ranks 8-15 on node1: GPU0 GPU1 GPU2 GPU3"), HasSubstr("\nbehind it\n")));
  size_t begin = 0;
  for (size_t end; (end = ranked.out.find('\n', begin)) != std::string::npos; begin = end + 1) {
    EXPECT_LE(end - begin, 100U) << ranked.out.substr(begin, end - begin);
  }
  const std::string file = absl::StrCat(::testing::TempDir(), "/machines.json");
  EXPECT_EQ(Skein(absl::StrCat("topo dgx-h100 --nodes 2 --json >", file)).exit_code, 0);
  const Outcome read = Skein(absl::StrCat(model, "--concurrency 64 --topology ", file));
  EXPECT_EQ(read.out, ranked.out) << read.err;
  const Outcome json = Skein(model + "--topology pcie-4 --json");
  EXPECT_THAT(json.out, AllOf(HasSubstr("{\"layouts\":[{\"layout\":\"tp="),
                              HasSubstr("\"shards\":[{\"host\":\"pcie-4\",\"gpu\":0}")));
}

// Each column, held against the JSON, and so are the order and what cannot be.
TEST(SkeinMachinesTest, PlansTableShowsWhatItsJsonHas) {
  const std::string plan =
      "plan --model synthetic:llama3-70b --topology pcie-4 --nodes 2 --concurrency 32 ";
  const nlohmann::json found = nlohmann::json::parse(Skein(plan + "--json").out);
  const std::string shown = Skein(plan + "--all").out;
  const auto header = shown.find(
      "layout             ranks hosts     memory      TTFT      TPOT   tokens/s    a rank   idle "
      "exchange\n");
  ASSERT_NE(header, std::string::npos) << shown;
  std::istringstream lines(shown.substr(header));
  std::string line;
  std::getline(lines, line);
  ASSERT_GE(found["layouts"].size(), 4);
  double before = 1e9;
  bool idles = false, exchanges = false, spans = false;
  for (const nlohmann::json& layout : found["layouts"]) {
    std::getline(lines, line);
    EXPECT_LE(line.size(), 100);
    std::istringstream row(line);
    std::string name, ms, gib;
    double ranks = 0, hosts = 0, memory = 0, ttft = 0, tpot = 0, rate = 0, of_rank = 0, idle = 0,
           exchange = 0;
    char percent = 0;
    row >> name >> ranks >> hosts >> memory >> gib >> ttft >> ms >> tpot >> ms >> rate >> of_rank >>
        idle >> percent >> exchange;
    const auto near = [&](double a, double b) { EXPECT_NEAR(a, b, 0.005 * b + 0.5) << line; };
    EXPECT_EQ(name, layout["layout"].get<std::string>());
    EXPECT_EQ(ranks, layout["ranks"]);
    std::set<std::string> of_replica;
    for (const nlohmann::json& stage : layout["replicas"][0]["stages"]) {
      for (const nlohmann::json& shard : stage["shards"]) of_replica.insert(shard["host"]);
    }
    EXPECT_EQ(hosts, of_replica.size()) << line;
    spans |= hosts > 1;
    EXPECT_EQ(gib, "GiB");
    EXPECT_NEAR(memory, std::stod(layout["memory_bytes"].get<std::string>()) / (1 << 30), 0.01);
    near(ttft, layout["ttft_ms"]);
    near(tpot, layout["tpot_ms"]);
    near(rate, layout["output_tokens_per_s"]);
    near(of_rank, layout["output_tokens_per_s"].get<double>() / ranks);
    EXPECT_NEAR(idle, 100 * layout["bubble"].get<double>(), 0.5) << line;
    EXPECT_NEAR(exchange, 100 * layout["exchange_share"].get<double>(), 0.5) << line;
    EXPECT_LT(rate, 1.06 * before) << line;  // those that are alike have another order
    before = std::min(before, rate);
    idles |= idle > 0;
    exchanges |= exchange > 0;
  }
  EXPECT_TRUE(idles && exchanges && spans);
  ASSERT_FALSE(found["rejected"].empty());
  const std::string flat = absl::StrReplaceAll(shown, {{"\n  ", " "}});
  for (const nlohmann::json& rejected : found["rejected"]) {
    EXPECT_THAT(flat, HasSubstr(absl::StrCat("\n- ", rejected["layout"].get<std::string>(), ": ",
                                             rejected["reason"].get<std::string>())));
  }
}

// This host, by what the system itself says of it.
TEST(SkeinMachinesTest, TopoShowsThisHost) {
  const Outcome here = Skein("topo");
  EXPECT_EQ(here.exit_code, 0) << here.err;
  char name[256] = {};
  ASSERT_EQ(gethostname(name, sizeof(name) - 1), 0);
  EXPECT_THAT(here.out, AllOf(StartsWith(absl::StrCat(name, ": ")), HasSubstr(" of memory")));
  EXPECT_THAT(Skein("topo --json").out, HasSubstr(absl::StrCat("\"name\": \"", name, "\"")));
}

// The program with a library that tells of one GPU, of which it knows nothing.
std::string WithOneGpu() {
  const std::string folder = absl::StrCat(::testing::TempDir(), "/nvml");
  std::filesystem::create_directory(folder);
  std::filesystem::copy_file("topology/host/fake_nvml.so", folder + "/libnvidia-ml.so.1",
                             std::filesystem::copy_options::skip_existing);
  return absl::StrCat("env LD_LIBRARY_PATH=", folder, " client/skein");
}

TEST(SkeinMachinesTest, PlanOfThisHostTellsOfGpusThatItLeavesOut) {
  const std::string plan = "plan --model synthetic:tiny --ranks 2";
  const Outcome told = Skein(plan, WithOneGpu());
  EXPECT_EQ(told.exit_code, 0) << told.err;
  EXPECT_THAT(told.err, AllOf(StartsWith("skein: the plan leaves this host's 1 GPU out; "),
                              HasSubstr("skein plan --topology=- --model=synthetic:tiny\n")));
  EXPECT_EQ(Skein(plan, "env CUDA_VISIBLE_DEVICES= " + WithOneGpu()).err, "");
  EXPECT_EQ(Skein(plan).err, "");
}

TEST(SkeinMachinesTest, PlanOfThisHostEndsWith3WhereNothingFits) {
  const Outcome large = Skein("plan --model synthetic:llama3-70b --ranks 1 --kv-memory 8TiB");
  EXPECT_EQ(large.exit_code, 3);
  EXPECT_EQ(large.out, "");
  EXPECT_THAT(large.err, HasSubstr(" would need 8."));
}

TEST(SkeinMachinesTest, TopoShowsHowThisHostsGpusAre) {
  const std::string program = WithOneGpu();
  const Outcome here = Skein("topo", program);
  EXPECT_EQ(here.exit_code, 0) << here.err;
  EXPECT_THAT(here.out, HasSubstr("\nGPU0: 0 B of 0 B free\n"));
  EXPECT_THAT(Skein("topo pcie-4", program).out, Not(HasSubstr(" free\n")));
}

// NCCL fills NVLinks in on the host itself; a file that leaves them out is no machine without them.
TEST(SkeinMachinesTest, TopoAsksForWhatAFileLeavesOut) {
  const std::string file = absl::StrCat(::testing::TempDir(), "/nccl.xml");
  SKEIN_ASSERT_OK(WriteFile(file,
                            "<system version=\"1\">\n<cpu numaid=\"0\">\n"
                            "<pci busid=\"0000:10:00.0\" class=\"0x030200\"/>\n"
                            "<pci busid=\"0000:11:00.0\" class=\"0x030200\"/>\n"
                            "</cpu>\n</system>\n"));
  const Outcome asked = Skein("topo " + file);
  EXPECT_EQ(asked.exit_code, 1);
  EXPECT_THAT(asked.err, AllOf(HasSubstr("line 3: "), HasSubstr("--nvlinks")));
  const Outcome told = Skein(absl::StrCat("topo ", file, " --nvlinks 4"));
  EXPECT_EQ(told.exit_code, 0) << told.err;
  EXPECT_THAT(told.out, HasSubstr("NVLink connects each two of: GPU0 GPU1\n"));
  const std::string plan = absl::StrCat("plan --model synthetic:llama3-8b --topology ", file);
  EXPECT_EQ(Skein(plan + " --nvlinks 0 --like pcie-4 --concurrency 8").exit_code, 0);
}

TEST(SkeinMachinesTest, PlanForMachinesSaysWhatItLacks) {
  const std::string model = "plan --model synthetic:llama3-70b --topology ";
  // Exit status 3: it was looked at, and nothing fits.
  const Outcome small = Skein(model + "pcie-4 --layout tp=1,pp=1");
  EXPECT_EQ(small.exit_code, 3);
  EXPECT_THAT(small.out,
              AllOf(HasSubstr("No layout fits."), HasSubstr("GPU0 of host pcie-4 would need")));
  const std::string file = absl::StrCat(::testing::TempDir(), "/bare.txt");
  SKEIN_ASSERT_OK(WriteFile(file, "\tGPU0\tGPU1\nGPU0\t X \tNV4\nGPU1\tNV4\t X \n"));
  const Outcome bare = Skein(model + file);
  EXPECT_EQ(bare.exit_code, 1);
  EXPECT_EQ(bare.out, "");
  EXPECT_EQ(Skein(absl::StrCat(model, file, " --like dgx-h200 --concurrency 8")).exit_code, 0);
  EXPECT_THAT(Skein(absl::StrCat(model, file, " --like dgx-9")).err,
              HasSubstr("--like: no preset is called 'dgx-9'; there are: dgx-1v"));
  EXPECT_THAT(Skein(model + "dgx-h100 --nodes 2 --fabric string").err,
              HasSubstr("--fabric: no fabric is called 'string'"));
  EXPECT_THAT(Skein(model + "dgx-h10").err, HasSubstr("; or a preset: dgx-1v"));
}

}  // namespace
}  // namespace skein::client
