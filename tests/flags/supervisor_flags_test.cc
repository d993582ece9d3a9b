// What each flag of the supervisor does: with launchers, workers and coordinators that tell how
// they were started, and with real ones where a job must serve.
#include <signal.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/cluster/cluster.h"
#include "tests/flags/flag_cases.h"
#include "tests/flags/log_cases.h"
#include "tests/flags/run.h"
#include "tests/flags/tls_files.h"

namespace skein::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kSupervisor[] = "supervisor/supervisor";
constexpr absl::Duration kPatience = absl::Seconds(30);

void WriteProgram(const std::filesystem::path& path, const std::string& body) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path) << "#!/bin/sh\n" << body;
  std::filesystem::permissions(path, std::filesystem::perms::owner_all);
}

// A folder of programs: mpirun, a worker that dies at once, a coordinator that stays.
std::string FakePrograms() {
  const std::filesystem::path folder = NewPath("programs");
  WriteProgram(
      folder / "mpirun",
      "echo \"mpirun $*\"\nwhile [ \"$1\" != -np ]; do shift; done\nshift 2\nexec \"$@\"\n");
  WriteProgram(folder / "worker/worker", "echo \"worker $*\"\nexit 3\n");
  WriteProgram(folder / "coordinator/coordinator", "echo \"coordinator $*\"\nexec sleep 1000\n");
  return folder;
}

// The supervisor over such a folder.
class Fake {
 public:
  explicit Fake(const std::vector<std::string>& flags, const std::string& mpirun = "")
      : folder_(FakePrograms()),
        process_(Options(folder_, mpirun.empty() ? folder_ + "/mpirun" : mpirun, flags)) {}
  // What nobody says is found missing once this was said, which comes last.
  bool Says(const std::string& text) { return process_.WaitForOutput(text, kPatience); }
  std::string Output() { return process_.Output(); }
  const std::string& folder() const { return folder_; }

  ~Fake() {
    process_.Signal(SIGTERM);
    EXPECT_TRUE(process_.Wait(kPatience).has_value());
  }

 private:
  static Process::Options Options(const std::string& folder, const std::string& mpirun,
                                  const std::vector<std::string>& flags) {
    std::vector<std::string> argv = {kSupervisor, "--bin=" + folder, "--mpirun=" + mpirun};
    argv.insert(argv.end(), flags.begin(), flags.end());
    return {.name = "supervisor", .argv = argv};
  }

  const std::string folder_;
  Process process_;
};

void Jobs() {
  EXPECT_TRUE(Fake({"--jobs=2"}).Says("job 2: worker "));
  Fake one({"--first-wait=0.1"});
  EXPECT_TRUE(one.Says("starts again in 0.200 s"));
  EXPECT_THAT(one.Output(), Not(HasSubstr("job 2")));
}

void Ranks() { EXPECT_TRUE(Fake({"--ranks=3"}).Says("mpirun -np 3 ")); }

void Coordinator() {
  EXPECT_TRUE(Fake({"--coordinator=127.0.0.1:7"}).Says("worker --coordinator 127.0.0.1:7"));
}

void Model() {
  EXPECT_TRUE(Fake({"--model=a/model"}).Says("coordinator: coordinator --model a/model "));
}

void CoordinatorFlag() {
  EXPECT_TRUE(Fake({"--model=a/model", "--coordinator-flag=--max-queue=3"}).Says(" --max-queue=3"));
}

// Told to all that it starts, but where that has files of its own; that the supervisor's own
// question takes them is job_client_test's.
void Tls() {
  const TlsFiles files;
  std::vector<std::string> flags = TlsFlags(files.good());
  // It names them by their whole paths, in the usual form.
  const std::string told =
      absl::StrReplaceAll(absl::StrCat(flags[0], " ", flags[1], " ", flags[2]), {{"//", "/"}});
  flags.emplace_back("--model=a/model");
  Fake fake(flags);
  EXPECT_TRUE(fake.Says("worker --coordinator 127.0.0.1:50051 " + told));
  EXPECT_TRUE(fake.Says("coordinator --model a/model --listen 127.0.0.1:50051 " + told));
  flags.insert(flags.end(), {"--coordinator-flag=--tls-cert=x", "--", "--tls-cert", "y"});
  Fake others(flags);
  EXPECT_TRUE(others.Says("--listen 127.0.0.1:50051 --tls-cert=x\n"));
  EXPECT_TRUE(others.Says("worker --coordinator 127.0.0.1:50051 --tls-cert y\n"));
  const Outcome wrong = Run(kSupervisor, "--bin=." + files.with_wrong_key());
  EXPECT_EQ(wrong.exit_code, 1);
  EXPECT_THAT(wrong.err, HasSubstr("stranger.key: is not the key of "));
}

void Bin() {
  Fake fake({});
  // It names the folder by its real path.
  const std::string name = std::filesystem::path(fake.folder()).filename();
  EXPECT_TRUE(fake.Says(absl::StrCat("/", name, "/worker/worker ")));
  // Of a package all lie in one folder.
  const std::filesystem::path packaged = NewPath("packaged");
  WriteProgram(packaged / "worker", "exit 3\n");
  WriteProgram(packaged / "mpirun", "echo \"mpirun $*\"\n");
  Process supervisor({.name = "supervisor",
                      .argv = {kSupervisor, absl::StrCat("--bin=", packaged.string()),
                               absl::StrCat("--mpirun=", packaged.string(), "/mpirun")}});
  EXPECT_TRUE(supervisor.WaitForOutput(absl::StrCat("/", packaged.filename().string(), "/worker "),
                                       kPatience));
  supervisor.Signal(SIGTERM);
  EXPECT_TRUE(supervisor.Wait(kPatience).has_value());
}

void FirstWait() { EXPECT_TRUE(Fake({"--first-wait=0.123"}).Says("starts again in 0.123 s")); }

void LongestWait() {
  Fake fake({"--first-wait=0.1", "--longest-wait=0.15"});
  EXPECT_TRUE(fake.Says("starts again in 0.150 s"));
  EXPECT_THAT(fake.Output(), Not(HasSubstr("starts again in 0.200 s")));
}

// A job that served counts as new: its wait does not double.
void ResetAfter() {
  Cluster cluster({});
  Process launch({.name = "launch",
                  .argv = {"sh", "-c",
                           absl::StrCat(". scripts/env.sh && exec ", kSupervisor,
                                        " --bin=. --first-wait=0.1 --reset-after=0.001 "
                                        "--coordinator=",
                                        cluster.address())},
                  .environment = {{"TMPDIR", cluster.scratch()}, {"HOME", cluster.scratch()}}});
  for (int times = 0; times < 2; ++times) {
    ASSERT_TRUE(cluster.WaitForServing(1));
    const auto job = cluster.ServingJob(0);
    ASSERT_TRUE(launch.WaitForOutput("job 1 serves, as job " + job.job_id(), kPatience));
    ASSERT_EQ(kill(job.ranks(0).pid(), SIGKILL), 0);
    ASSERT_TRUE(cluster.WaitForStatus(
        [](const cluster::v1::ClusterStatus& status) { return !status.serving(); }, kPatience));
  }
  EXPECT_TRUE(launch.WaitForOutput("starts again in 0.100 s", kPatience));
  ASSERT_TRUE(cluster.WaitForServing(1));
  EXPECT_THAT(launch.Output(), Not(HasSubstr("starts again in 0.200 s")));
  launch.Signal(SIGTERM);
  EXPECT_TRUE(launch.Wait(kPatience).has_value());
}

// mpirun starts nothing. The default is a minute.
void StartTimeout() {
  Cluster cluster({});
  const std::string silent = NewPath("silent");
  WriteProgram(silent, "exec sleep 1000\n");
  Process launch({.name = "launch",
                  .argv = {kSupervisor, "--bin=.", "--mpirun=" + silent, "--start-timeout=1",
                           "--first-wait=0.1", "--coordinator=" + cluster.address()}});
  EXPECT_TRUE(launch.WaitForOutput("starts again in 0.100 s", kPatience));
  launch.Signal(SIGTERM);
  EXPECT_TRUE(launch.Wait(kPatience).has_value());
}

// The worker of this folder dies at once.
void RequireStart() {
  const std::string folder = FakePrograms();
  Process supervisor({.name = "supervisor",
                      .argv = {kSupervisor, "--bin=" + folder, "--mpirun=" + folder + "/mpirun",
                               "--require-start", "--first-wait=0.01"}});
  EXPECT_EQ(supervisor.Wait(kPatience), 1);
  EXPECT_THAT(supervisor.Output(), HasSubstr("job 1 has failed before any job served"));
}

void Mpirun() {
  const std::string other = NewPath("other");
  WriteProgram(other, "echo \"another launcher: $*\"\nexit 3\n");
  EXPECT_TRUE(Fake({}, other).Says("another launcher: -np 1 "));
}

void Hostfile() {
  const std::string hosts = NewPath("hosts");
  std::ofstream(hosts) << "localhost slots=4\n";
  EXPECT_TRUE(Fake({"--hostfile=" + hosts}).Says(absl::StrCat("mpirun --hostfile ", hosts, " ")));
}

void MpirunArg() {
  EXPECT_TRUE(Fake({"--mpirun-arg=--bind-to", "--mpirun-arg=core"}).Says(" --bind-to core -np 1 "));
}

void LogLevel() {
  Fake quiet({"--log-level=error"});
  EXPECT_TRUE(quiet.Says("job 1: worker "));
  EXPECT_THAT(quiet.Output(), Not(HasSubstr("job 1 starts")));
  EXPECT_TRUE(Fake({}).Says("job 1 starts"));
}

// On stderr, of one that was started and ended, without what its programs say.
std::string Logged(const std::vector<std::string>& flags) {
  Fake fake(flags);
  EXPECT_TRUE(fake.Says("job 1: worker "));
  return fake.Output();
}

FlagCases SupervisorCases() {
  const std::function<void()> tls = RunOnce(Tls);
  return {
      HelpCase(kSupervisor, ""),
      VersionCase(kSupervisor),
      {{"", "--jobs"}, Jobs},
      {{"", "--ranks"}, Ranks},
      {{"", "--coordinator"}, Coordinator},
      {{"", "--model"}, Model},
      {{"", "--tls-cert"}, tls},
      {{"", "--tls-key"}, tls},
      {{"", "--tls-ca"}, tls},
      {{"", "--bin"}, Bin},
      {{"", "--first-wait"}, FirstWait},
      {{"", "--longest-wait"}, LongestWait},
      {{"", "--reset-after"}, ResetAfter},
      {{"", "--start-timeout"}, StartTimeout},
      {{"", "--require-start"}, RequireStart},
      {{"", "--mpirun"}, Mpirun},
      {{"", "--hostfile"}, Hostfile},
      {{"", "--mpirun-arg"}, MpirunArg},
      {{"", "--coordinator-flag"}, CoordinatorFlag},
      {{"", "--log-level"}, LogLevel},
  };
}

int Main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  RegisterFlagTests(kSupervisor,
                    Concatenated({SupervisorCases(), LogCases(Logged), ConfigCases(kSupervisor)}));
  return RUN_ALL_TESTS();
}

}  // namespace
}  // namespace skein::testing

int main(int argc, char** argv) { return skein::testing::Main(argc, argv); }
