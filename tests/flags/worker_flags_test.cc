// What each flag of the worker, and of `worker bench`, does.
#include <signal.h>
#include <stdlib.h>

#include <algorithm>
#include <filesystem>
#include <future>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/cluster/cluster.h"
#include "tests/flags/ask.h"
#include "tests/flags/flag_cases.h"
#include "tests/flags/held.h"
#include "tests/flags/run.h"

namespace skein::testing {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;

using nlohmann::json;

constexpr char kWorker[] = "worker/worker";

// A coordinator, and a job of one rank with `flags`.
class Serving : public Cluster {
 public:
  explicit Serving(const std::vector<std::string>& flags = {})
      : Cluster({}), job_(StartJob(1, flags)) {
    EXPECT_TRUE(WaitForServing(1));
  }
  Process& job() { return job_; }

 private:
  Process& job_;
};

// Every job of a test is given the coordinator's address by this flag; none listens at the default.
void Coordinator() { EXPECT_EQ(Serving().ServingJob(0).ranks_size(), 1); }

// The coordinator's checkpoints/bard is the root's bard on this node.
void ModelRoot() {
  Cluster cluster({});
  const std::string none = NewPath("none");
  EXPECT_TRUE(cluster.StartJob(1, {"--model-root=" + none})
                  .WaitForOutput(none + "/bard", absl::Seconds(30)));
  const std::filesystem::path model = MakeModel("bard");
  cluster.StartJob(1, {absl::StrCat("--model-root=", model.parent_path().string())});
  EXPECT_TRUE(cluster.WaitForServing(1));
}

// Two ways to sum differ in the last bits of log probabilities.
void Backend() {
  const std::string request = "--prompt=ROMEO: --temperature=0 --max-tokens=5 --logprobs=3";
  Serving cpu;
  Serving reference({"--backend=reference"});
  const Asked want = Ask(cpu.address(), request);
  const Asked got = Ask(reference.address(), request);
  EXPECT_EQ(want.tokens.size(), 5);
  EXPECT_EQ(got.ids, want.ids);
  EXPECT_NE(got.tokens, want.tokens);
  EXPECT_EQ(Ask(cpu.address(), request).tokens, want.tokens);  // all else is the same
}

// The worker as it is installed, with one of kernels/cuda's fakes as its libskein_cuda.so.
std::string WorkerWith(const std::string& fake) {
  namespace fs = std::filesystem;
  const fs::path root = NewPath("installed");
  fs::create_directories(root / "bin");
  fs::create_directories(root / "lib");
  fs::copy_file(kWorker, root / "bin/worker");
  if (!fake.empty()) {
    fs::copy_file("kernels/cuda/fake_" + fake + ".so", root / "lib/libskein_cuda.so");
  }
  return root / "bin/worker";
}

std::string Said(const Outcome& outcome) {
  return absl::StrCat("status ", outcome.exit_code, "\n", outcome.out, outcome.err);
}

// What keeps workers from GPUs, and what they say of it.
constexpr struct {
  const char* fake;
  const char* says;
} kNoGpu[] = {{"", "bin/libskein_cuda.so, nor one in ../lib"},
              {"lacking", "libskein_absent.so.13: cannot open shared object file"},
              {"other_build", "is of another build (0123456789ab)"}};

// Where GPUs can be used they are taken, unless --device says otherwise; where they cannot, the CPU
// is, and it is told why.
void Device() {
  Serving cpu({"--device=cpu"});
  EXPECT_EQ(Ask(cpu.address(), "--prompt=ROMEO: --max-tokens=5").tokens.size(), 5);
  EXPECT_THAT(cpu.job().Output(), Not(HasSubstr("no GPU")));
  const std::string flags = "--coordinator=127.0.0.1:1 --orphan-timeout=1ms";
  for (const auto& [fake, says] : kNoGpu) {
    EXPECT_THAT(Said(Run(WorkerWith(fake), flags + " --device=cuda")),
                AllOf(HasSubstr("status 1\n"), HasSubstr(says), Not(HasSubstr("computing on"))));
    EXPECT_THAT(
        Said(Run(WorkerWith(fake), flags)),
        AllOf(HasSubstr(" I "), HasSubstr("| computing on CPUs, no GPU: "), HasSubstr(says)));
    EXPECT_THAT(Said(Run(WorkerWith(fake), flags + " --log-level=warning")),
                AllOf(HasSubstr("status 1\n"), Not(HasSubstr(says))));
  }
  EXPECT_THAT(Said(Run(WorkerWith("library"), flags)),
              AllOf(HasSubstr("status 1\n"), HasSubstr("fake GPU 0 has no kernels")));
}

// It is taken, and changes nothing where ranks compute on CPUs. How ranks share GPUs is
// worker/device_test's; that the flag brings it about shows on a machine with GPUs alone.
void OversubscribeDevices() {
  const std::string flags = "--device=cuda --coordinator=127.0.0.1:1 ";
  const Outcome without = Run(kWorker, flags);
  const Outcome outcome = Run(kWorker, flags + "--oversubscribe-devices");
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_EQ(without.exit_code, 1);
  Serving cpu({"--oversubscribe-devices", "--device=cpu"});
  EXPECT_EQ(Ask(cpu.address(), "--prompt=ROMEO: --max-tokens=5").tokens.size(), 5);
}

// There is nothing to mark on CPUs; that GPUs' kernels are marked is cuda_backend_test's.
void Profile() {
  const Outcome outcome = Run(kWorker, "--coordinator=127.0.0.1:1 --device=cpu --profile=2");
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(Said(outcome), HasSubstr("--profile marks the kernels of GPUs"));
}

void BenchProfile(const std::string& command) {
  const Outcome outcome = Run(kWorker, "bench " + command + " --device=cpu --profile=2");
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("--profile marks the kernels of GPUs"));
}

// That GPUs compute so is cuda_deterministic_test's.
void BenchDeterministic(const std::string& command) {
  const Outcome outcome = Run(kWorker, "bench " + command + " --device=cpu --deterministic");
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("--deterministic is for GPUs"));
}

// As above. What it decides is worker/device_comm_test's, and tests/gpu/nccl_test runs on a machine
// with GPUs alone.
void DeviceComm() {
  const Outcome refused = Run(kWorker, "--device-comm=mpi");
  EXPECT_THAT(Said(refused),
              HasSubstr("--device-comm: must be auto, nccl, peers or host, not 'mpi'"));
  Serving cpu({"--device-comm=nccl", "--device=cpu"});
  EXPECT_EQ(Ask(cpu.address(), "--prompt=ROMEO: --max-tokens=5").tokens.size(), 5);
}

void Layout() {
  Cluster cluster({.layout = "tp=1,pp=1"});
  cluster.StartJob(2, {"--layout=pp=2"});
  ASSERT_TRUE(cluster.WaitForServing(1));
  EXPECT_EQ(cluster.ServingJob(0).plan().layout().pp_size(), 2);
}

// The default is a minute.
void OrphanTimeout() {
  Cluster cluster({});
  cluster.coordinator().Signal(SIGKILL);
  cluster.coordinator().Wait(absl::Seconds(10));
  Process& job = cluster.StartJob(1, {"--orphan-timeout=500ms"});
  const std::optional<int> status = job.Wait(absl::Seconds(40));
  ASSERT_TRUE(status.has_value());
  EXPECT_NE(*status, 0);
  EXPECT_THAT(job.Output(), HasSubstr("for 500ms (--orphan-timeout)"));
}

// A stopped rank that nobody takes for silent holds up an all-reduce of the other one, which knows
// its deadline: at least 30 s without the flag.
void StepTimeout() {
  Cluster cluster({.layout = "tp=2,pp=1",
                   .coordinator_flags = {"--heartbeat-timeout=5m", "--replica-wait=0s"}});
  Process& job = cluster.StartJob(2, {"--step-timeout=6s"});
  ASSERT_TRUE(cluster.WaitForServing(1));
  StoppedRank rank(cluster, 1);
  std::future<Answer> answer = AskInBackground(cluster, GreedyRequest("ROMEO:", 2));
  EXPECT_TRUE(cluster.coordinator().WaitForOutput("past the deadline of 6.0 s", absl::Seconds(60)));
  EXPECT_FALSE(answer.get().status.ok());
  rank.Kill();
  EXPECT_TRUE(job.Wait(absl::Seconds(20)).has_value());
}

// Steps for an answer whose first token ends it. Who plans ahead has sent a second step by then.
int64_t StepsOfOneToken(const std::vector<std::string>& flags) {
  constexpr uint32_t kNewline = 199;
  Serving cluster(flags);
  v1::GenerateRequest request = GreedyRequest("ROMEO:", 10);
  request.add_stop_ids(kNewline);
  EXPECT_EQ(cluster.Generate(request).tokens, std::vector<uint32_t>{kNewline});
  return cluster.ServingJob(0).replicas(0).load().steps();
}

void NoOverlap() {
  EXPECT_EQ(StepsOfOneToken({}), 2);
  EXPECT_EQ(StepsOfOneToken({"--no-overlap"}), 1);
}
void Overlap() { EXPECT_EQ(StepsOfOneToken({"--no-overlap", "--overlap"}), 2); }

// All that a job says, once it has ended.
std::string SaidBy(const std::vector<std::string>& flags) {
  Serving cluster(flags);
  cluster.coordinator().Signal(SIGTERM);
  EXPECT_EQ(cluster.job().Wait(absl::Seconds(30)), 0);
  return cluster.job().Output();
}

void LogLevel() {
  EXPECT_THAT(SaidBy({}), AllOf(HasSubstr("loaded "), HasSubstr(" GB/s, ")));
  EXPECT_THAT(SaidBy({"--log-level=error"}), Not(HasSubstr("loaded ")));
}

// ---- worker bench ----

constexpr char kSmall[] = " --model=checkpoints/bard --prompt-tokens=8 ";

// A command of `worker bench`, made small.
Outcome Bench(const std::string& command, const std::string& flags) {
  return Run(kWorker, absl::StrCat("bench ", command, kSmall, flags));
}

// What it writes into the file that --json names.
json BenchJson(const std::string& arguments) {
  const std::string file = NewPath("bench.json");
  const Outcome outcome = Run(kWorker, absl::StrCat("bench ", arguments, " --json=", file));
  EXPECT_TRUE(outcome.ok()) << outcome.err;
  return json::parse(ReadFileOrEmpty(file), nullptr, /*allow_exceptions=*/false);
}

void BenchDevice(const std::string& command) {
  for (const auto& [fake, says] : kNoGpu) {
    EXPECT_THAT(Said(Run(WorkerWith(fake), command + " --device=cuda")),
                AllOf(HasSubstr("status 1\n"), HasSubstr(says)));
    EXPECT_THAT(Said(Run(WorkerWith(fake), command)),
                AllOf(HasSubstr("status 0\n"), HasSubstr("no GPU: "), HasSubstr(says)));
  }
  EXPECT_THAT(Said(Run(WorkerWith("library"), command)),
              AllOf(HasSubstr("status 1\n"), HasSubstr("fake GPU 0 has no kernels")));
  EXPECT_THAT(Said(Run(WorkerWith("library"), command + " --device=cpu")),
              AllOf(HasSubstr("status 0\n"), Not(HasSubstr("GPU"))));
}

void BenchJsonFile(const std::string& arguments, const std::string& row) {
  const json report = BenchJson(arguments);
  ASSERT_TRUE(report.is_object());
  ASSERT_FALSE(report["rows"].empty());
  EXPECT_THAT(report["rows"][0]["name"], HasSubstr(row));
  const Outcome nowhere =
      Run(kWorker, absl::StrCat("bench ", arguments, " --json=/nowhere/bench.json"));
  EXPECT_EQ(nowhere.exit_code, 1);
  EXPECT_THAT(nowhere.err, HasSubstr("--json: "));
  EXPECT_THAT(nowhere.out, Not(HasSubstr(row)));  // told before anything is measured
}

void BenchModel(const std::string& command) {
  EXPECT_THAT(Bench(command, "").out, HasSubstr("weights of 13.0 MiB"));
  EXPECT_THAT(Run(kWorker, absl::StrCat("bench ", command, " --model=/nowhere")).err,
              HasSubstr("/nowhere"));
}

// The most that the process has had at once.
int MostThreads(const std::string& arguments) {
  Process bench({.name = "bench",
                 .argv = {"sh", "-c", absl::StrCat("exec ", kWorker, " bench ", arguments)}});
  const std::filesystem::path tasks = absl::StrCat("/proc/", bench.pid(), "/task");
  int most = 0;
  while (!bench.Wait(absl::Milliseconds(5))) {
    std::error_code gone;
    std::filesystem::directory_iterator entries(tasks, gone);
    const auto count = static_cast<int>(std::distance(entries, {}));
    most = std::max(most, count);
  }
  return most;
}

// Each of its parts that compute has so many more.
void BenchThreads(const std::string& arguments) {
  EXPECT_GE(MostThreads(arguments + " --threads=9") - MostThreads(arguments + " --threads=2"), 7);
}

// All of the ceiling is more than there is; to steps of a small model caches may give more.
void BenchMinFraction(const std::string& command) {
  EXPECT_TRUE(Bench(command, "").ok());
  const char* const flags = command == "prefill" ? "--prompt-tokens=256" : "--prompt-tokens=8";
  const Outcome outcome = Run(kWorker, absl::StrCat("bench ", command, " --model=checkpoints/bard ",
                                                    flags, " --min-fraction=1"));
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.err, AnyOf(HasSubstr("may stay in a cache"), HasSubstr("asked were 100%")));
}

void BenchBatch() {
  const json rows = BenchJson(absl::StrCat("decode", kSmall, "--batch=1,64"))["rows"];
  ASSERT_EQ(rows.size(), 2);
  EXPECT_EQ(rows[1]["batch"], 64);
  // 63 sequences more, with the keys and values of the mean context, in 8 layers: 2 KV heads of 64
  // floats each.
  const double context = 8 + 1 + 15 / 2.0;
  EXPECT_EQ(double{rows[1]["bytes"]} - double{rows[0]["bytes"]}, 63 * context * 8 * 2 * 2 * 64 * 4);
}

void BenchPromptTokens() {
  const Outcome outcome =
      Run(kWorker, "bench decode --model=checkpoints/bard --prompt-tokens=1020");
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("1037 tokens exceed the model's context of 1024"));
}

void BenchPrompts() {
  const json rows = BenchJson("prefill --model=checkpoints/bard --prompt-tokens=8,16")["rows"];
  ASSERT_EQ(rows.size(), 2);
  EXPECT_EQ(rows[0]["prompt_tokens"], 8);
  EXPECT_EQ(rows[1]["prompt_tokens"], 16);
}

void BenchDecodeTokens() {
  const std::string decode = absl::StrCat("decode", kSmall);
  EXPECT_EQ(BenchJson(decode + "--decode-tokens=5")["rows"][0]["samples"], 5);
  EXPECT_EQ(BenchJson(decode)["rows"][0]["samples"], 16);
}

constexpr char kOneKernel[] = "kernels --only='of 2: 1B o'";

void BenchOnly() {
  const json rows = BenchJson(kOneKernel)["rows"];
  ASSERT_EQ(rows.size(), 1);
  EXPECT_EQ(rows[0]["name"], "product of 2: 1B o 2048 x 2048");
  EXPECT_TRUE(BenchJson("kernels --only=nothing")["rows"].empty());
}

// `worker bench comm` on two ranks.
Outcome Comm(const std::string& worker, const std::string& flags) {
  return Run("tests/mpi/mpirun.sh", absl::StrCat("2 ", worker, " bench comm ", flags));
}

void CommDevice() {
  EXPECT_THAT(Comm(WorkerWith("lacking"), "--device=cuda").err, HasSubstr("libskein_absent.so"));
  EXPECT_THAT(Comm(WorkerWith("library"), "").err, HasSubstr("fake GPU 0 has no kernels"));
  EXPECT_THAT(Comm(WorkerWith("library"), "--device=cpu").out, HasSubstr("hop of 64.0 MiB"));
}

void CommJson() {
  const std::string file = NewPath("comm.json");
  EXPECT_TRUE(Comm(kWorker, "--json=" + file).ok());
  const json report = json::parse(ReadFileOrEmpty(file), nullptr, /*allow_exceptions=*/false);
  ASSERT_EQ(report["rows"].size(), 10);
  EXPECT_EQ(report["rows"][1]["name"], "hop of 8.0 KiB");
  EXPECT_EQ(report["rows"][1]["ranks"], 2);
  EXPECT_THAT(Comm(kWorker, "--json=/nowhere/comm.json").err, HasSubstr("--json: "));
}

// It is taken, and changes nothing on CPUs; as OversubscribeDevices.
void CommOversubscribeDevices() {
  EXPECT_TRUE(Comm(kWorker, "--device=cpu --oversubscribe-devices").ok());
}

// `worker bench decode|prefill` on several ranks.
Outcome BenchOnRanks(int ranks, const std::string& command, const std::string& flags) {
  return Run("tests/mpi/mpirun.sh",
             absl::StrCat(ranks, " ", kWorker, " bench ", command, kSmall, flags));
}
json JsonOfRanks(int ranks, const std::string& command, const std::string& flags) {
  const std::string file = NewPath("ranks.json");
  const Outcome outcome = BenchOnRanks(ranks, command, absl::StrCat(flags, " --json=", file));
  EXPECT_TRUE(outcome.ok()) << outcome.err;
  return json::parse(ReadFileOrEmpty(file), nullptr, /*allow_exceptions=*/false);
}

void BenchLayout(const std::string& command) {
  const json alone = BenchJson(command + kSmall);
  const json shards = JsonOfRanks(2, command, "");
  const json stages = JsonOfRanks(2, command, "--layout=pp=2");
  const json both = JsonOfRanks(4, command, "--layout=tp=2,pp=2");
  const auto of = [](const json& report, const char* what) {
    return double{report["rows"][0][what]};
  };
  // Shards read what one rank does, but for the vocabulary's padding.
  EXPECT_NEAR(of(shards, "bytes"), of(alone, "bytes"), 0.01 * of(alone, "bytes"));
  EXPECT_NEAR(of(shards, "operations"), of(alone, "operations"), 0.01 * of(alone, "operations"));
  for (const json* const report : {&stages, &both}) {
    if (command == "prefill") {  // a prompt goes through all stages
      EXPECT_NEAR(of(*report, "operations"), of(alone, "operations"),
                  0.01 * of(alone, "operations"));
    } else {  // the slowest one has half of the layers, and the output matrix or not
      EXPECT_GT(of(*report, "bytes"), 0.4 * of(alone, "bytes"));
      EXPECT_LT(of(*report, "bytes"), 0.7 * of(alone, "bytes"));
    }
  }
  EXPECT_THAT(BenchOnRanks(2, command, "--layout=pp=3").err,
              HasSubstr("--layout: tp=1,pp=3,dp=1 has 3 ranks; mpirun started 2"));
  EXPECT_THAT(Bench(command, "--layout=tp=2").err, HasSubstr("has 2 ranks; mpirun started 1"));
}

// It is taken, and changes nothing on CPUs; as OversubscribeDevices.
void BenchOversubscribeDevices(const std::string& command) {
  EXPECT_TRUE(BenchOnRanks(2, command, "--device=cpu --oversubscribe-devices").ok());
}

void BenchDeviceComm(const std::string& command) {
  EXPECT_THAT(Bench(command, "--device-comm=mpi").err,
              HasSubstr("--device-comm: must be auto, nccl, peers or host, not 'mpi'"));
  EXPECT_TRUE(BenchOnRanks(2, command, "--device=cpu --device-comm=nccl").ok());
}

// ---- worker probe ----

void ProbeDevice() {
  EXPECT_THAT(Run(WorkerWith("lacking"), "probe --device=cuda").err,
              HasSubstr("libskein_absent.so"));
  EXPECT_THAT(Run(WorkerWith("library"), "probe").err, HasSubstr("fake GPU 0 has no kernels"));
}

void ProbeDeviceComm() {
  EXPECT_THAT(Run(kWorker, "probe --device-comm=mpi").err,
              HasSubstr("--device-comm: must be auto, nccl, peers or host, not 'mpi'"));
}

// Of two ranks of this host, whose figures are all there, and some 5 s away at most.
void ProbeJson() {
  const std::string file = NewPath("probe.json");
  const Outcome outcome =
      Run("tests/mpi/mpirun.sh", absl::StrCat("2 ", kWorker, " probe --device=cpu --json=", file));
  EXPECT_TRUE(outcome.ok()) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("measured in "));
  const json report = json::parse(ReadFileOrEmpty(file), nullptr, /*allow_exceptions=*/false);
  ASSERT_EQ(report["hosts"].size(), 1);
  const json& host = report["hosts"][0];
  EXPECT_EQ(host["core_rates"]["origin"], "measured");
  EXPECT_GE(host["core_rates"]["reads"].size(), 3);
  EXPECT_GE(host["core_rates"]["products"].size(), 12);
  EXPECT_EQ(host["links"][0]["path"], "X");
  EXPECT_EQ(host["exchanges"].size(), 3);
  // The same without the file.
  EXPECT_TRUE(json::accept(Run(kWorker, "probe --device=cpu").out));
  EXPECT_THAT(Run(kWorker, "probe --device=cpu --json=/nowhere/probe.json").err,
              HasSubstr("--json: "));
}

FlagCases ProbeCases() {
  return {HelpCase(kWorker, "probe"),
          {{"probe", "--device"}, ProbeDevice},
          {{"probe", "--device-comm"}, ProbeDeviceComm},
          {{"probe", "--json"}, ProbeJson}};
}

FlagCases BenchCases() {
  FlagCases cases = {
      HelpCase(kWorker, "bench"),
      {{"bench decode", "--batch"}, BenchBatch},
      {{"bench decode", "--prompt-tokens"}, BenchPromptTokens},
      {{"bench decode", "--decode-tokens"}, BenchDecodeTokens},
      {{"bench prefill", "--prompt-tokens"}, BenchPrompts},
      {{"bench kernels", "--only"}, BenchOnly},
      {{"bench comm", "--device"}, CommDevice},
      {{"bench comm", "--json"}, CommJson},
      {{"bench comm", "--oversubscribe-devices"}, CommOversubscribeDevices},
  };
  for (const std::string command : {"decode", "prefill", "kernels", "comm"}) {
    cases.push_back(HelpCase(kWorker, "bench " + command));
    if (command == "comm") continue;
    const bool kernels = command == "kernels";
    const std::string name = "bench " + command;
    const std::string small = kernels ? kOneKernel : command + kSmall;
    cases.push_back({{name, "--device"}, [=] { BenchDevice("bench " + small); }});
    cases.push_back({{name, "--json"}, [=] { BenchJsonFile(small, kernels ? "1B o" : command); }});
    cases.push_back({{name, "--threads"}, [=] { BenchThreads(small); }});
    if (kernels) continue;
    cases.push_back({{name, "--profile"}, [=] { BenchProfile(command); }});
    cases.push_back({{name, "--deterministic"}, [=] { BenchDeterministic(command); }});
    cases.push_back({{name, "--model"}, [=] { BenchModel(command); }});
    cases.push_back({{name, "--min-fraction"}, [=] { BenchMinFraction(command); }});
    cases.push_back({{name, "--layout"}, [=] { BenchLayout(command); }});
    cases.push_back(
        {{name, "--oversubscribe-devices"}, [=] { BenchOversubscribeDevices(command); }});
    cases.push_back({{name, "--device-comm"}, [=] { BenchDeviceComm(command); }});
  }
  return cases;
}

// What the plan says of its figures, and the rank of when they were measured.
std::string FiguresWith(const std::string& cache, const std::vector<std::string>& flags) {
  unsetenv("SKEIN_NO_PROBE");
  setenv("XDG_CACHE_HOME", cache.c_str(), 1);
  Serving cluster(flags);
  const std::string plan = cluster.ServingJob(0).plan_table();
  const std::string log = cluster.job().Output();
  setenv("SKEIN_NO_PROBE", "1", 1);
  unsetenv("XDG_CACHE_HOME");
  std::string how = "never";
  if (absl::StrContains(log, "host: measured in ")) how = "now";
  if (absl::StrContains(log, "host: as they were measured ")) how = "before";
  return absl::StrCat(how, absl::StrContains(plan, "that were measured") ? "" : ", assumed");
}

void Probe() {
  const std::string cache = NewPath("cache");
  EXPECT_EQ(FiguresWith(cache, {"--no-probe"}), "never, assumed");
  EXPECT_EQ(FiguresWith(cache, {}), "now");
  EXPECT_EQ(FiguresWith(cache, {}), "before");
  EXPECT_EQ(FiguresWith(cache, {"--no-probe"}), "before");
  EXPECT_EQ(FiguresWith(NewPath("cache"), {"--probe"}), "now");
}

FlagCases WorkerCases() {
  return {
      HelpCase(kWorker, ""),
      VersionCase(kWorker),
      {{"", "--coordinator"}, Coordinator},
      {{"", "--model-root"}, ModelRoot},
      {{"", "--device"}, Device},
      {{"", "--oversubscribe-devices"}, OversubscribeDevices},
      {{"", "--device-comm"}, DeviceComm},
      {{"", "--backend"}, Backend},
      {{"", "--layout"}, Layout},
      {{"", "--probe"}, Probe},
      {{"", "--no-probe"}, Probe},
      {{"", "--profile"}, Profile},
      {{"", "--orphan-timeout"}, OrphanTimeout},
      {{"", "--step-timeout"}, StepTimeout},
      {{"", "--overlap"}, Overlap},
      {{"", "--no-overlap"}, NoOverlap},
      {{"", "--log-level"}, LogLevel},
  };
}

int Main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  RegisterFlagTests(kWorker, Concatenated({WorkerCases(), BenchCases(), ProbeCases()}));
  return RUN_ALL_TESTS();
}

}  // namespace
}  // namespace skein::testing

int main(int argc, char** argv) { return skein::testing::Main(argc, argv); }
