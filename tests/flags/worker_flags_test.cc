// What each flag of the worker does.
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>
#include <future>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/file.h"
#include "base/test_util.h"
#include "base/tls/mutual_tls.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/cluster/cluster.h"
#include "tests/flags/ask.h"
#include "tests/flags/flag_cases.h"
#include "tests/flags/held.h"
#include "tests/flags/log_cases.h"
#include "tests/flags/run.h"
#include "tests/flags/tls_files.h"
#include "tests/flags/worker_cases.h"

namespace skein::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// Every job of a test is given the coordinator's address by this flag; none listens at the default.
void Coordinator() { EXPECT_EQ(Serving().ServingJob(0).ranks_size(), 1); }

// All three show: with them the rank serves a coordinator that asks for certificates, and without
// it is told of them. Files that cannot serve end the program.
void Tls() {
  const TlsFiles files;
  SKEIN_ASSERT_OK_AND_ASSIGN(const MutualTls tls, LoadMutualTls(files.good(), absl::Now()));
  Cluster cluster({.coordinator_flags = TlsFlags(files.good()), .tls = tls});
  Process& plain = cluster.StartJob(1);
  EXPECT_TRUE(plain.WaitForOutput("the coordinator may want TLS: --tls-cert", absl::Seconds(30)));
  cluster.StartJob(1, TlsFlags(files.good()));
  EXPECT_TRUE(cluster.WaitForServing(1));
  const std::string flags = "--coordinator=127.0.0.1:1 --orphan-timeout=1ms --device=cpu";
  const Outcome key = Run(kWorker, flags + files.with_wrong_key());
  EXPECT_EQ(key.exit_code, 1);
  EXPECT_THAT(key.err, HasSubstr(files.stranger.key_file + ": is not the key of "));
  const std::string wanted = absl::StrCat("--coordinator=", cluster.address(),
                                          " --orphan-timeout=3s --device=cpu --no-probe");
  EXPECT_THAT(Said(Run(kWorker, wanted + files.with_wrong_certificate())),
              HasSubstr("may not trust --tls-cert"));
  EXPECT_THAT(Said(Run(kWorker, wanted + files.with_wrong_ca())), HasSubstr("not of --tls-ca"));
}

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
  // CUDA numbers GPUs as NVML does, unless somebody wants it otherwise.
  const std::string with_gpus = WorkerWith("library");
  EXPECT_THAT(Said(Run(with_gpus, flags)),
              AllOf(HasSubstr("status 1\n"),
                    HasSubstr("fake GPU 0 has no kernels, CUDA_DEVICE_ORDER=PCI_BUS_ID")));
  EXPECT_THAT(Said(Run(with_gpus, flags, {{"CUDA_DEVICE_ORDER", "FASTEST_FIRST"}})),
              HasSubstr("fake GPU 0 has no kernels, CUDA_DEVICE_ORDER=FASTEST_FIRST"));
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

// A port that the test has is taken by nobody else.
void ControlPorts() {
  const int taken = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in any = {};
  any.sin_family = AF_INET;
  socklen_t size = sizeof(any);
  ASSERT_EQ(bind(taken, reinterpret_cast<sockaddr*>(&any), size), 0);
  ASSERT_EQ(listen(taken, 1), 0);
  ASSERT_EQ(getsockname(taken, reinterpret_cast<sockaddr*>(&any), &size), 0);
  const int port = ntohs(any.sin_port);
  // A replica of two ranks, whose first one gives orders.
  const std::vector<std::string> flags = {"--layout=tp=2",
                                          absl::StrCat("--control-ports=", port, "-", port)};
  Cluster cluster({});
  EXPECT_TRUE(cluster.StartJob(2, flags).WaitForOutput(
      absl::StrCat("all ports from ", port, " to ", port), absl::Seconds(30)));
  close(taken);
  cluster.StartJob(2, flags);
  EXPECT_TRUE(cluster.WaitForServing(1));
}

// There is nothing to mark on CPUs; that GPUs' kernels are marked is cuda_backend_test's.
void Profile() {
  const Outcome outcome = Run(kWorker, "--coordinator=127.0.0.1:1 --device=cpu --profile=2");
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(Said(outcome), HasSubstr("--profile marks the kernels of GPUs"));
}

// As above. That it reaches GPUs' workers is tests/gpu/rank_fault_test's.
void DecodeForm() {
  EXPECT_THAT(Said(Run(kWorker, "--decode=fast")),
              HasSubstr("--decode: must be auto, graph or persistent, not 'fast'"));
  const Outcome outcome = Run(kWorker, "--coordinator=127.0.0.1:1 --device=cpu --decode=graph");
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(Said(outcome), HasSubstr("--decode=graph is for GPUs"));
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
  EXPECT_THAT(SaidBy({}), AllOf(HasSubstr("loaded "), HasSubstr("B/s, ")));
  EXPECT_THAT(SaidBy({"--log-level=error"}), Not(HasSubstr("loaded ")));
}

// Without it, the one with the fewest jobs: the first.
void Model() {
  Cluster cluster({.coordinator_flags = {"--model=chat=checkpoints/bard"}});
  cluster.StartJob(1, {"--model=chat"});
  ASSERT_TRUE(cluster.WaitForServing(1));
  EXPECT_EQ(cluster.ServingJob(0).model_name(), "chat");
  cluster.StartJob(1);
  ASSERT_TRUE(cluster.WaitForServing(2));
  EXPECT_EQ(cluster.ServingJob(1).model_name(), "bard");
}

// Each rank has its own file.
std::string FileOfRank0(const std::string& path) {
  return absl::StrReplaceAll(path, {{".txt", "-0.txt"}});
}

// All jobs of a supervisor have the same flags.
void LogFilesOfASupervisorsJobs() {
  const std::string path = NewPath("log") + ".txt";
  setenv("SKEIN_JOB_SLOT", "a-supervisor.2", 1);
  const std::string said = SaidBy({"--log-file=" + path, "--log-format=json"});
  unsetenv("SKEIN_JOB_SLOT");
  EXPECT_THAT(ReadFileOrEmpty(absl::StrReplaceAll(path, {{".txt", "-2-0.txt"}})),
              HasSubstr("\"source\":\"job 2: rank 0\""))
      << said;
}

FlagCases WorkerCases() {
  const std::function<void()> tls = RunOnce(Tls);
  return {
      HelpCase(kWorker, ""),
      VersionCase(kWorker),
      {{"", "--coordinator"}, Coordinator},
      {{"", "--tls-cert"}, tls},
      {{"", "--tls-key"}, tls},
      {{"", "--tls-ca"}, tls},
      {{"", "--model"}, Model},
      {{"", "--model-root"}, ModelRoot},
      {{"", "--device"}, Device},
      {{"", "--oversubscribe-devices"}, OversubscribeDevices},
      {{"", "--decode"}, DecodeForm},
      {{"", "--device-comm"}, DeviceComm},
      {{"", "--backend"}, Backend},
      {{"", "--layout"}, Layout},
      {{"", "--control-ports"}, ControlPorts},
      {{"", "--profile"}, Profile},
      {{"", "--orphan-timeout"}, OrphanTimeout},
      {{"", "--step-timeout"}, StepTimeout},
      {{"", "--overlap"}, Overlap},
      {{"", "--no-overlap"}, NoOverlap},
      {{"", "--log-level"}, LogLevel},
  };
}

void CompletesValuesAndCommands() {
  using ::testing::ElementsAre;
  using ::testing::IsEmpty;
  EXPECT_THAT(Completed(kWorker, "worker --backend ''"), ElementsAre("cpu", "reference"));
  EXPECT_THAT(Completed(kWorker, "worker --backend = re"), ElementsAre("reference"));
  EXPECT_THAT(Completed(kWorker, "worker --backend ="), ElementsAre("cpu", "reference"));
  EXPECT_THAT(Completed(kWorker, "worker --figures ''"), IsEmpty());  // files
  EXPECT_THAT(Completed(kWorker, "worker --figures bench pr"), ElementsAre("probe"));
  EXPECT_THAT(Completed(kWorker, "worker --overlap bench de"), ElementsAre("decode"));
  EXPECT_THAT(Completed(kWorker, "worker bench --"), ElementsAre("--help"));
  EXPECT_THAT(Completed(kWorker, "worker -- --"), IsEmpty());
}

int Main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  RegisterFlagTests(
      kWorker, Concatenated({WorkerCases(), LogCases(SaidBy, FileOfRank0), WorkerBenchCases(),
                             WorkerEvaluateCases(), WorkerProbeCases(), ConfigCases(kWorker)}));
  RegisterTest("worker", "CompletesValuesAndCommands", CompletesValuesAndCommands);
  RegisterTest("worker", "LogFilesOfASupervisorsJobs", LogFilesOfASupervisorsJobs);
  return RUN_ALL_TESTS();
}

}  // namespace
}  // namespace skein::testing

int main(int argc, char** argv) { return skein::testing::Main(argc, argv); }
