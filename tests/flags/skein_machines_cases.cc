// The flags of `skein topo`, `skein plan --topology` and `skein memory`: machines that need not be
// there.
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/flags/ask.h"
#include "tests/flags/flag_cases.h"
#include "tests/flags/run.h"
#include "tests/flags/skein_cases.h"

namespace skein::testing {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

using nlohmann::json;

// What a command line prints with `flags`, and does not print with `base` alone.
struct Changed {
  const char* command;
  const char* flag;
  const char* base;
  const char* flags;
  const char* says;
};
constexpr char kPreset[] = "--model=synthetic:llama3-8b --topology=pcie-4";
constexpr Changed kChanged[] = {
    {"topo", "--nodes", "pcie-4", "--nodes=3", "node0 to node2, alike"},
    {"topo", "--fabric", "pcie-4 --nodes=2", "--fabric=ib-hdr", "InfiniBand HDR, 25.0 GB/s"},
    {"plan", "--topology", "--model=synthetic:llama3-8b", "--topology=dgx-a100",
     "8 GPUs on the first (NVIDIA A100-SXM4-80GB"},
    {"plan", "--nodes", kPreset, "--nodes=2", "2 hosts, "},
    {"plan", "--fabric", "--model=synthetic:llama3-8b --topology=pcie-4 --nodes=2",
     "--fabric=ethernet-10g", "Between hosts: 10 Gb/s Ethernet, 1.2 GB/s"},
    {"plan", "--prompt-tokens", kPreset, "--prompt-tokens=1000", "each 1000 tokens in"},
    {"plan", "--output-tokens", kPreset, "--output-tokens=77", "and 77 out"},
    {"plan", "--concurrency", kPreset, "--concurrency=1", "\ntp=1,pp=1,dp=1 "},
    {"plan", "--objective", "--model=synthetic:llama3-70b --topology=pcie-8 --concurrency=1",
     "--objective=latency", "Best by the time of an answer"},
    {"plan", "--ttft-limit", kPreset, "--ttft-limit=1us",
     "TTFT of at most 1us, which the best does not keep"},
    {"plan", "--tpot-limit", kPreset, "--tpot-limit=1us",
     "TPOT of at most 1us, which the best does not keep"},
    {"plan", "--all", kPreset, "--all", "\ncannot be\n- tp=3,"},
    {"memory", "--context", "synthetic:llama3-8b", "--context=1000", " of 1000 tokens each"},
    {"memory", "--streams", "synthetic:llama3-8b", "--streams=3", ": 3 streams of "},
    {"memory", "--device", "synthetic:llama3-8b", "--device=cpu", " on cores: 16 streams"},
    {"memory", "--kv-dtype", "synthetic:llama3-8b", "--kv-dtype=int8", "keys and values in int8"},
    {"memory", "--most-ranks", "synthetic:llama3-8b", "--most-ranks=16", "\ntp=16,pp=1 "},
};

void Changes(const Changed& c) {
  const std::string line = absl::StrCat(c.command, " ", c.base);
  const Outcome without = Run(kSkein, line);
  const Outcome with = Run(kSkein, absl::StrCat(line, " ", c.flags));
  EXPECT_TRUE(without.ok()) << without.err;
  EXPECT_TRUE(with.ok()) << with.err;
  EXPECT_THAT(without.out, Not(HasSubstr(c.says)));
  EXPECT_THAT(with.out, HasSubstr(c.says));
}

void TopoPrintsJson() {
  const std::string path = NewPath("topo");
  std::ofstream(path) << "GPU0 GPU1\nGPU0 X NV4\nGPU1 NV4 X\n";
  const Outcome shown = Run(kSkein, absl::StrCat("topo ", path));
  EXPECT_THAT(shown.out, StartsWith("2 GPUs, 0 NICs\n"));
  const Outcome outcome = Run(kSkein, absl::StrCat("topo --json ", path));
  ASSERT_TRUE(json::accept(outcome.out)) << outcome.out << outcome.err;
  EXPECT_EQ(json::parse(outcome.out)["hosts"][0]["interconnect"]["gpus"].size(), 2u);
  // It is read again, whatever the file has left out; plans say what they lack.
  const std::string again = NewPath("topo.json");
  std::ofstream(again) << outcome.out;
  EXPECT_EQ(Run(kSkein, absl::StrCat("topo ", again)).out, shown.out);
  const std::string plan = absl::StrCat("plan --model=synthetic:llama3-8b --topology=", again);
  EXPECT_THAT(Run(kSkein, plan).err, HasSubstr("of the host: take those of a preset with --like"));
  EXPECT_TRUE(Run(kSkein, absl::StrCat(plan, " --like=dgx-h100")).ok());
  const std::string many = NewPath("topo.json");
  std::ofstream(many) << Run(kSkein, absl::StrCat("topo ", again, " --nodes=2 --json")).out;
  EXPECT_THAT(Run(kSkein, absl::StrCat("topo ", many)).out, StartsWith("node0 to node1, alike\n"));
}

// What files begin with that some editors have written.
void TopoReadsByteOrderMarks() {
  const std::string path = NewPath("topo");
  std::ofstream(path) << "\xef\xbb\xbfGPU0 GPU1\nGPU0 X NV4\nGPU1 NV4 X\n";
  EXPECT_THAT(Run(kSkein, absl::StrCat("topo ", path)).out, StartsWith("2 GPUs, 0 NICs\n"));
  std::ofstream(path) << "\xef\xbb\xbf" << Run(kSkein, "topo pcie-4 --json").out;
  EXPECT_EQ(Run(kSkein, absl::StrCat("topo ", path)).out, Run(kSkein, "topo pcie-4").out);
}

void TopoSvg() {
  const std::string path = NewPath("picture");
  EXPECT_TRUE(Run(kSkein, absl::StrCat("topo pcie-4 --svg=", path)).ok());
  EXPECT_THAT(ReadFileOrEmpty(path), AllOf(StartsWith("<svg"), HasSubstr("GPU3")));
  EXPECT_EQ(Run(kSkein, "topo pcie-4 --svg=/nowhere/picture").exit_code, 1);
}

void TopoDot() {
  const std::string path = NewPath("graph");
  EXPECT_TRUE(Run(kSkein, absl::StrCat("topo pcie-4 --dot=", path)).ok());
  EXPECT_THAT(ReadFileOrEmpty(path), AllOf(StartsWith("graph "), HasSubstr("GPU3")));
}

// A worker that measures nothing, and tells of a host that is called by the number of its ranks.
std::string FakeWorker() {
  const std::string path = NewPath("worker");
  std::ofstream(path) << "#!/bin/sh\n"
                         "[ $OMPI_COMM_WORLD_RANK != 0 ] ||\n"
                         "  echo \"{\\\"hosts\\\": [{\\\"name\\\": "
                         "\\\"host$OMPI_COMM_WORLD_SIZE\\\", \\\"cores\\\": 4}]}\"\n";
  chmod(path.c_str(), 0755);
  return path;
}

Outcome Probed(const std::string& flags) {
  const std::string folder = NewPath("m");
  mkdir(folder.c_str(), 0755);
  return Run("sh", absl::StrCat("-c '. scripts/env.sh; exec \"$@\"' - ", kSkein, " topo ", flags),
             {{"TMPDIR", folder}, {"HOME", folder}});
}

void TopoProbe() {
  EXPECT_THAT(Probed(absl::StrCat("--probe --np=1 --worker=", FakeWorker())).out,
              StartsWith("host1: 4 cores"));
  for (const char* other : {"pcie-4", "--nodes=2", "--fabric=ib-ndr", "--like=pcie-4"}) {
    EXPECT_EQ(Probed(absl::StrCat("--probe ", other)).exit_code, 2) << other;
  }
}

void TopoNp() {
  EXPECT_THAT(Probed(absl::StrCat("--probe --np=3 --worker=", FakeWorker())).out,
              StartsWith("host3: 4 cores"));
  EXPECT_EQ(Probed("--np=1").exit_code, 2);
}

void TopoWorker() {
  EXPECT_THAT(Probed("--probe --worker=/nowhere/worker").err, HasSubstr("/nowhere/worker"));
  EXPECT_EQ(Probed("--worker=/nowhere/worker").exit_code, 2);
}

// With the ranks where the table puts them.
void PlanSvg() {
  const std::string path = NewPath("plan");
  const std::string line = absl::StrCat("plan ", kPreset, " --layout=tp=2,pp=1 --svg=");
  EXPECT_TRUE(Run(kSkein, line + path).ok());
  EXPECT_THAT(ReadFileOrEmpty(path), AllOf(StartsWith("<svg"), HasSubstr("pcie-4: tp=2,pp=1,dp=2"),
                                           HasSubstr("rank 3"), Not(HasSubstr("rank 4"))));
  EXPECT_EQ(Run(kSkein, line + "/nowhere/picture").exit_code, 1);
}

void PlanPareto() {
  const std::string path = NewPath("pareto");
  const std::string line = absl::StrCat("plan ", kPreset, " --pareto=");
  EXPECT_TRUE(Run(kSkein, line + path).ok());
  EXPECT_THAT(ReadFileOrEmpty(path), AllOf(StartsWith("<svg"), HasSubstr("llama3-8b on pcie-4: "),
                                           HasSubstr("<polyline")));
  EXPECT_THAT(Run(kSkein, line + "/nowhere/picture").err, HasSubstr("--pareto: "));
  // 4 times the 256 that are the default of GPUs.
  EXPECT_THAT(ReadFileOrEmpty(path), HasSubstr(", 1024 at once: "));
  EXPECT_THAT(Run(kSkein, line + path).out, HasSubstr("\nsynthetic:llama3-8b, 256 at once, "));
}

// What was measured does not lend its name to links and networks that were not.
void PlanTellsOrigins() {
  const std::string path = NewPath("topo");
  const auto plan = [&](const char* origin, const char* more) {
    std::ofstream(path) << absl::StrReplaceAll(
        R"({"hosts": [{"name": "a", "cores": 2, "memory_bytes": 4e9,
            "core_rates": {"origin": "measured",
                           "reads": [{"working_set_bytes": 1e6, "alone_bytes_per_s": 1e10,
                                      "together_bytes_per_s": 1e10}],
                           "products": [{"dtype": "BF16", "rows": 1, "operations_per_s": 1e10}]},
            "links": [{"path": "X", "origin": "ORIGIN", "bytes_per_s": 1e9, "latency_us": 1}]}]})",
        {{"ORIGIN", origin}});
    const Outcome outcome =
        Run(kSkein, absl::StrCat("plan --model=checkpoints/bard --topology=", path, " ", more));
    EXPECT_TRUE(outcome.ok()) << outcome.err;
    return outcome.out;
  };
  EXPECT_THAT(plan("measured", ""), HasSubstr("\nRates are measured\n"));
  EXPECT_THAT(plan("modelled", ""), HasSubstr("\nRates are measured; links are modelled\n"));
  EXPECT_THAT(plan("measured", "--nodes=2 --fabric=ethernet-10g"),
              HasSubstr("\nBetween hosts: 10 Gb/s Ethernet, 1.2 GB/s (modelled)\n"));
}

constexpr char kEmit[] =
    "plan --model=checkpoints/bard --topology=pcie-4 --nodes=2 --layout=tp=2,pp=2,dp=2 "
    "--emit=mpirun ";

// tests/client/launch_script_test runs one.
void PlanEmit() {
  const Outcome outcome = Run(kSkein, absl::StrCat(kEmit, "--max-num-seqs=3 --kv-dtype=int8"));
  EXPECT_TRUE(outcome.ok()) << outcome.err;
  EXPECT_THAT(outcome.out,
              AllOf(StartsWith("#!/usr/bin/env bash\n# tp=2,pp=2,dp=2: 2 jobs of "),
                    ContainsRegex(
                        "\n/.*/coordinator/coordinator .*\n  --model=/.*/checkpoints/bard "
                        "--layout=tp=2,pp=2,dp=1 --listen=node0:50051 --insecure --concurrency=128 "
                        "--max-num-seqs=3 --kv-dtype=int8 &\n"),
                    ContainsRegex("\n  -np 4 --host node1:4 /.*/worker/worker --coordinator=")));
  EXPECT_THAT(Run(kSkein, absl::StrCat(kEmit, "--context-length=1000 --deterministic --exact")).out,
              HasSubstr(" --context-length=1000 --deterministic --exact &\n"));
  // The load that the layout is for, of which each of two jobs has its half.
  EXPECT_THAT(Run(kSkein, absl::StrCat(kEmit,
                                       "--prompt-tokens=100 --output-tokens=50 --concurrency=9 "
                                       "--objective=latency --ttft-limit=2s --tpot-limit=300ms"))
                  .out,
              HasSubstr(" --prompt-tokens=100 --output-tokens=50 --concurrency=5 "
                        "--objective=latency --ttft-limit=2s --tpot-limit=300ms"));
  // A script is for what there is: nothing, where nothing fits.
  const Outcome none =
      Run(kSkein, "plan --model=checkpoints/bard --topology=pcie-4 --layout=tp=3 --emit=mpirun");
  EXPECT_EQ(none.exit_code, 3);
  EXPECT_EQ(none.out, "");
  EXPECT_THAT(none.err, HasSubstr("no layout fits, and there is nothing to start"));
  // Of GPUs that this environment shows, where there are as many.
  const std::string four =
      "plan --model=checkpoints/bard --topology=pcie-4 --layout=tp=2,pp=2 --emit=mpirun";
  EXPECT_THAT(Run(kSkein, four, {{"CUDA_VISIBLE_DEVICES", "3,1,0,2"}}).out,
              HasSubstr("\n  -np 4 -x CUDA_VISIBLE_DEVICES=3,1,0,2 /"));
  EXPECT_THAT(Run(kSkein, four, {{"CUDA_VISIBLE_DEVICES", "3,1"}}).out,
              AllOf(HasSubstr("\n  -np 4 /"), Not(HasSubstr("CUDA_VISIBLE_DEVICES"))));
  EXPECT_THAT(Run(kSkein, absl::StrCat("plan ", kPreset, " --emit=mpirun")).err,
              HasSubstr("--emit: a coordinator serves a model's files"));
  EXPECT_THAT(Run(kSkein, absl::StrCat("plan ", kPreset, " --emit=pbs")).err,
              HasSubstr("--emit: must be mpirun or slurm, not 'pbs'"));
  EXPECT_THAT(Run(kSkein, "plan --model=checkpoints/bard --topology=pcie-4 --emit=slurm").out,
              HasSubstr("\n#SBATCH --nodes=1\n"));
  // A coordinator that is told nothing plans for whole contexts, which may not fit.
  const std::string path = NewPath("topo");
  for (const auto& [mib, fits] : {std::pair(4096, true), std::pair(54, false)}) {
    std::ofstream(path) << absl::StrReplaceAll(
        R"({"hosts": [{"name": "a", "cores": 1, "memory_bytes": MIBe6,
            "core_rates": {"reads": [{"working_set_bytes": 1e6, "alone_bytes_per_s": 1e10,
                                      "together_bytes_per_s": 1e10}],
                           "products": [{"dtype": "BF16", "rows": 1, "operations_per_s": 1e10}]},
            "links": [{"path": "X", "bytes_per_s": 1e9, "latency_us": 1}]}]})",
        {{"MIB", absl::StrCat(mib)}});
    const Outcome script =
        Run(kSkein, absl::StrCat("plan --model=checkpoints/bard --emit=mpirun --prompt-tokens=16 "
                                 "--output-tokens=16 --max-num-seqs=1 --topology=",
                                 path));
    EXPECT_TRUE(script.ok()) << script.err;
    EXPECT_EQ(absl::StrContains(script.out, " --context-length=32 "), !fits) << mib << script.out;
  }
  EXPECT_EQ(Run(kSkein, absl::StrCat(kEmit, "--json")).exit_code, 2);
}

// A coordinator has one bound for all replicas: of those that a limit bounds unlike, the least.
void PlanEmitOfUnlikeReplicas() {
  constexpr char kHost[] =
      R"({"name": "NAME", "cores": 1, "memory_bytes": 4e9,
          "core_rates": {"reads": [{"working_set_bytes": 1e6, "alone_bytes_per_s": RATE,
                                    "together_bytes_per_s": RATE}],
                         "products": [{"dtype": "BF16", "rows": 1, "operations_per_s": RATE}]},
          "links": [{"path": "X", "bytes_per_s": 1e9, "latency_us": 1}]})";
  const auto host = [&](const char* name, const char* rate) {
    return absl::StrReplaceAll(kHost, {{"NAME", name}, {"RATE", rate}});
  };
  const std::string path = NewPath("topo");
  std::ofstream(path)
      << R"({"fabric": {"name": "net", "link": {"bytes_per_s": 1e9, "latency_us": 9}},
                             "hosts": [)"
      << host("fast", "3e10") << "," << host("slow", "1e10") << "]}";
  const std::string line = absl::StrCat(
      "plan --model=checkpoints/bard --layout=tp=1,pp=1,dp=2 --prompt-tokens=16 --output-tokens=16 "
      "--concurrency=32 --tpot-limit=9ms --topology=",
      path);
  const json best = json::parse(Run(kSkein, line + " --json").out)["layouts"][0];
  ASSERT_EQ(best["replicas"].size(), 2U);
  const int first = best["replicas"][0]["sequences"], second = best["replicas"][1]["sequences"];
  EXPECT_NE(first, second);
  EXPECT_THAT(Run(kSkein, line + " --emit=mpirun").out,
              HasSubstr(absl::StrCat(" --max-num-seqs=", std::min(first, second), " ")));
}

void PlanPortRange() {
  EXPECT_THAT(Run(kSkein, absl::StrCat(kEmit, "--port-range=42000-42014")).out,
              AllOf(HasSubstr("--listen=node0:42000 "), HasSubstr("ipv4_ports=42001-42002 ")));
  const Outcome few = Run(kSkein, absl::StrCat(kEmit, "--port-range=42000-42013"));
  EXPECT_EQ(few.exit_code, 1);
  EXPECT_THAT(few.err, HasSubstr("--port-range: it has 14 ports, and tp=2,pp=2,dp=2 takes 15"));
  EXPECT_THAT(Run(kSkein, absl::StrCat(kEmit, "--port-range=42")).err,
              HasSubstr("--port-range: must be FIRST-LAST"));
  EXPECT_EQ(Run(kSkein, absl::StrCat("plan ", kPreset, " --port-range=42000-42011")).exit_code, 2);
}

void PlanInterface() {
  EXPECT_THAT(
      Run(kSkein, absl::StrCat(kEmit, "--interface=eth7")).out,
      AllOf(HasSubstr("export NCCL_SOCKET_IFNAME==eth7\n"), HasSubstr(" -x NCCL_SOCKET_IFNAME ")));
  EXPECT_EQ(Run(kSkein, absl::StrCat("plan ", kPreset, " --interface=eth7")).exit_code, 2);
}

// Means, and the longest one's context.
void PlanLengths() {
  const std::string file = NewPath("lengths");
  std::ofstream(file) << "100,50\n\n300,30\n2000,100\n";
  const std::string line = absl::StrCat("plan ", kPreset, " --lengths=", file);
  EXPECT_THAT(Run(kSkein, line).out, HasSubstr("each 800 tokens in and 60 out"));
  EXPECT_THAT(Run(kSkein, line + " --context-length=2000").err,
              HasSubstr("has 2100 tokens of one request, and --context-length is 2000"));
  EXPECT_EQ(Run(kSkein, line + " --prompt-tokens=3").exit_code, 2);
  EXPECT_EQ(Run(kSkein, line + " --output-tokens=3").exit_code, 2);
  EXPECT_THAT(Run(kSkein, absl::StrCat("plan ", kPreset, " --lengths=/nowhere")).err,
              HasSubstr("--lengths: cannot read '/nowhere'"));
  std::ofstream(file) << "100,fifty\n";
  EXPECT_THAT(Run(kSkein, line).err, HasSubstr(absl::StrCat("--lengths: ", file, ": ")));
}

void PlanPrintsJson() {
  const std::string line = absl::StrCat("plan ", kPreset);
  EXPECT_FALSE(json::accept(Run(kSkein, line).out));
  const Outcome outcome = Run(kSkein, line + " --json");
  ASSERT_TRUE(json::accept(outcome.out)) << outcome.out << outcome.err;
  const json layouts = json::parse(outcome.out)["layouts"];
  ASSERT_GT(layouts.size(), 2u);
  // Prompts of others come between the steps.
  EXPECT_GT(layouts[0]["step_ms"], 0);
  EXPECT_LT(layouts[0]["step_ms"], layouts[0]["tpot_ms"]);
}

// Every number of the table, and of the stage that it is of.
void MemoryPrintsJson() {
  const std::string line = "memory synthetic:llama3-8b --context=4096 --streams=8";
  EXPECT_FALSE(json::accept(Run(kSkein, line).out));
  const Outcome outcome = Run(kSkein, line + " --json");
  ASSERT_TRUE(json::accept(outcome.out)) << outcome.out << outcome.err;
  const json layouts = json::parse(outcome.out)["layouts"];
  ASSERT_EQ(layouts.size(), 10u);
  EXPECT_EQ(layouts[0]["layout"], "tp=1,pp=1");
  // Integers of 64 bits are strings in JSON of protobuf: 4 GiB of KV, and half of it of two shards.
  EXPECT_EQ(layouts[0]["kv_bytes"], "4294967296");
  EXPECT_EQ(layouts[1]["kv_bytes"], "2147483648");
}

void InspectPrintsJson() {
  const std::string line = "inspect checkpoints/bard";
  const Outcome shown = Run(kSkein, line);
  EXPECT_FALSE(json::accept(shown.out));
  EXPECT_THAT(shown.out, AllOf(HasSubstr("LlamaForCausalLM"), HasSubstr("Skein runs it.")));
  const Outcome outcome = Run(kSkein, line + " --json");
  ASSERT_TRUE(json::accept(outcome.out)) << outcome.out << outcome.err;
  const json found = json::parse(outcome.out);
  EXPECT_EQ(found["vocab_size"], 2048);
  EXPECT_EQ(found["tokenizer"], "tokenizer.json");
  EXPECT_EQ(found["layers"], 8);
  EXPECT_EQ(found["runs"], true);
}

void MemoryDeterministic() {
  // Sums of more than two shards go by way of the hosts' memory, not over NCCL.
  const std::string line = "memory synthetic:llama3-8b --context=4096 --streams=8 --json";
  const auto other = [](const std::string& text) {
    return std::stoll(json::parse(text)["layouts"][3]["other_bytes"].get<std::string>());
  };
  EXPECT_LT(other(Run(kSkein, line + " --deterministic").out), other(Run(kSkein, line).out));
}

// Two GPUs of which a file of NCCL tells no NVLinks.
std::string FileWithoutNvlinks() {
  const std::string path = NewPath("nccl");
  std::ofstream(path) << "<system version=\"1\"><cpu numaid=\"0\">"
                         "<pci busid=\"0000:10:00.0\" class=\"0x030200\"/>"
                         "<pci busid=\"0000:11:00.0\" class=\"0x030200\"/></cpu></system>";
  return path;
}

void TopoNvlinks() {
  const std::string line = absl::StrCat("topo ", FileWithoutNvlinks());
  EXPECT_EQ(Run(kSkein, line).exit_code, 1);
  EXPECT_THAT(Run(kSkein, line + " --nvlinks=3").out, HasSubstr("NV3"));
  EXPECT_THAT(Run(kSkein, "topo pcie-4 --nvlinks=3").err, HasSubstr("--nvlinks: a preset has"));
  EXPECT_THAT(Run(kSkein, "topo --nvlinks=3").err, HasSubstr("--nvlinks: hosts tell"));
}

void TopoLike() {
  const std::string line = absl::StrCat("topo ", FileWithoutNvlinks(), " --nvlinks=3");
  EXPECT_THAT(Run(kSkein, line).out, Not(HasSubstr("NVIDIA H200")));
  EXPECT_THAT(Run(kSkein, line + " --like=dgx-h200").out, HasSubstr("NVIDIA H200"));
}

void PlanNvlinksAndLike(const std::string& lacking) {
  const std::string line =
      absl::StrCat("plan --model=synthetic:llama3-8b --topology=", FileWithoutNvlinks());
  const Outcome outcome = Run(kSkein, absl::StrCat(line, " ", lacking));
  EXPECT_EQ(outcome.exit_code, 1) << outcome.out;
  const Outcome whole = Run(kSkein, line + " --nvlinks=3 --like=dgx-h200");
  EXPECT_TRUE(whole.ok()) << whole.err;
  EXPECT_THAT(whole.out, HasSubstr("2 GPUs on the first (NVIDIA H200"));
}

}  // namespace

FlagCases MachinesCases() {
  FlagCases cases = {
      HelpCase(kSkein, "topo"),
      {{"topo", "--json"}, [] { TopoPrintsJson(), TopoReadsByteOrderMarks(); }},
      {{"topo", "--svg"}, TopoSvg},
      {{"topo", "--dot"}, TopoDot},
      {{"topo", "--probe"}, TopoProbe},
      {{"topo", "--np"}, TopoNp},
      {{"topo", "--worker"}, TopoWorker},
      {{"plan", "--svg"}, PlanSvg},
      {{"plan", "--pareto"}, PlanPareto},
      {{"plan", "--lengths"}, PlanLengths},
      {{"plan", "--emit"}, [] { PlanEmit(), PlanEmitOfUnlikeReplicas(); }},
      {{"plan", "--port-range"}, PlanPortRange},
      {{"plan", "--interface"}, PlanInterface},
      {{"topo", "--nvlinks"}, TopoNvlinks},
      {{"topo", "--like"}, TopoLike},
      {{"plan", "--json"}, [] { PlanPrintsJson(), PlanTellsOrigins(); }},
      HelpCase(kSkein, "memory"),
      HelpCase(kSkein, "inspect"),
      {{"inspect", "--json"}, InspectPrintsJson},
      {{"memory", "--json"}, MemoryPrintsJson},
      {{"memory", "--deterministic"}, MemoryDeterministic},
      {{"plan", "--nvlinks"}, [] { PlanNvlinksAndLike("--like=dgx-h200"); }},
      {{"plan", "--like"}, [] { PlanNvlinksAndLike("--nvlinks=3"); }},
  };
  for (const Changed& c : kChanged) cases.push_back({{c.command, c.flag}, [&c] { Changes(c); }});
  return cases;
}

}  // namespace skein::testing
