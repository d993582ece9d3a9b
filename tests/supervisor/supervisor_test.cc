// scripts/launch.sh with real coordinators, mpiruns and workers: whatever is stopped or killed, the
// jobs serve again, and nothing is left.
#include <arpa/inet.h>
#include <grpcpp/grpcpp.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/cluster.grpc.pb.h"
#include "tests/cluster/cluster.h"
#include "tests/cluster/process.h"

namespace skein::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr absl::Duration kPoll = absl::Milliseconds(20);
constexpr absl::Duration kStart = absl::Seconds(60);
// From a job's naming until nothing of it is left and another one starts in its place.
constexpr absl::Duration kEnd = absl::Seconds(10);
// What happens is in the log soon: a thread of its own writes it.
constexpr absl::Duration kSaid = absl::Seconds(5);

bool WaitUntil(const std::function<bool()>& holds, absl::Duration timeout) {
  const absl::Time deadline = absl::Now() + timeout;
  while (!holds()) {
    if (absl::Now() > deadline) return false;
    absl::SleepFor(kPoll);
  }
  return true;
}

// Of /proc/PID/stat: "PID (NAME) STATE PARENT ...".
pid_t Parent(pid_t pid) {
  const std::string stat = ReadFileOrEmpty(absl::StrCat("/proc/", pid, "/stat"));
  const size_t name_end = stat.rfind(')');
  if (name_end == std::string::npos) return 0;
  return static_cast<pid_t>(std::stol(stat.substr(name_end + 4)));
}

// Processes that live and were given this text in their environment.
std::vector<pid_t> StartedWith(const std::string& text) {
  std::vector<pid_t> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    pid_t pid = 0;
    if (!absl::SimpleAtoi(entry.path().filename().string(), &pid)) continue;
    const bool has = ReadFileOrEmpty(entry.path() / "environ").find(text) != std::string::npos;
    if (has && IsAlive(pid)) found.push_back(pid);
  }
  return found;
}

std::vector<std::string> NamesIn(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    names.push_back(entry.path().filename());
  }
  return names;
}

// A port that was free a moment ago.
int FreePort() {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {.s_addr = htonl(INADDR_LOOPBACK)}};
  socklen_t size = sizeof(address);
  EXPECT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&address), size), 0);
  EXPECT_EQ(getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size), 0);
  close(fd);
  return ntohs(address.sin_port);
}

// scripts/launch.sh, with a folder of its own for temporary files.
class Launch {
 public:
  explicit Launch(const std::vector<std::string>& flags, const std::string& redirection = "")
      : folder_(MakeFolder()) {
    std::vector<std::string> argv = {"bash", "-c",
                                     "exec scripts/launch.sh --bin . --first-wait 0.2 "
                                     "--longest-wait 0.2 \"$@\" " +
                                         redirection,
                                     "launch"};
    argv.insert(argv.end(), flags.begin(), flags.end());
    process_ = std::make_unique<Process>(Process::Options{
        .name = "launch", .argv = argv, .environment = {{"TMPDIR", folder_}, {"HOME", folder_}}});
  }
  ~Launch() {
    process_->Signal(SIGKILL);
    ExpectNothingLeft();
    std::filesystem::remove_all(folder_);
  }

  Process& process() { return *process_; }

  // Whether it has started a job of another id.
  bool RunsJobBut(const std::string& id) const {
    const std::vector<pid_t> old = StartedWith("SKEIN_JOB_ID=" + id);
    return absl::c_any_of(StartedWith("TMPDIR=" + folder_), [&](pid_t pid) {
      const std::string environment = ReadFileOrEmpty(absl::StrCat("/proc/", pid, "/environ"));
      return absl::StrContains(environment, "SKEIN_JOB_ID=") && !absl::c_linear_search(old, pid);
    });
  }

  // In time, since the guard needs some after a SIGKILL.
  void ExpectNothingLeft() {
    const auto clean = [this] {
      process_->Wait(absl::ZeroDuration());
      return StartedWith("TMPDIR=" + folder_).empty() && NamesIn(folder_).empty();
    };
    if (WaitUntil(clean, absl::Seconds(10))) return;
    EXPECT_THAT(StartedWith("TMPDIR=" + folder_), IsEmpty());
    EXPECT_THAT(NamesIn(folder_), IsEmpty());
  }

 private:
  static std::string MakeFolder() {
    std::string path = "/tmp/launch.XXXXXX";
    if (mkdtemp(path.data()) == nullptr) std::abort();
    return path;
  }

  const std::string folder_;
  std::unique_ptr<Process> process_;
};

std::vector<std::string> JobFlags(const std::string& address, int ranks) {
  return {"--coordinator", address, "--ranks", absl::StrCat(ranks)};
}

const cluster::v1::JobStatus* Find(const cluster::v1::ClusterStatus& status,
                                   const std::string& job_id) {
  for (const auto& job : status.jobs()) {
    if (job.job_id() == job_id) return &job;
  }
  return nullptr;
}

// --- Jobs: the coordinator is the test's ---

struct Fault {
  std::string name;
  int ranks;
  std::function<void(const std::vector<pid_t>& ranks, pid_t mpirun)> happens;
  std::string said;
};

class JobFaultTest : public ::testing::TestWithParam<Fault> {};

TEST_P(JobFaultTest, ANamedJobIsEndedAndServesAgain) {
  const Fault& fault = GetParam();
  Cluster cluster({});
  Launch launch(JobFlags(cluster.address(), fault.ranks));
  ASSERT_TRUE(cluster.WaitForServing(1));
  const cluster::v1::JobStatus job = cluster.ServingJob(0);
  std::vector<pid_t> ranks;
  for (const auto& rank : job.ranks()) ranks.push_back(rank.pid());
  const pid_t mpirun = Parent(ranks[0]);
  ASSERT_EQ(Parent(mpirun), launch.process().pid());

  fault.happens(ranks, mpirun);
  ASSERT_TRUE(cluster.WaitForStatus(
      [&](const auto& status) {
        const auto* const one = Find(status, job.job_id());
        return one == nullptr || one->state() == "lost" || one->state() == "ended";
      },
      absl::Seconds(10)))
      << "nobody named it";
  const absl::Time named = absl::Now();
  const auto replaced = [&] {
    return !IsAlive(mpirun) && absl::c_none_of(ranks, IsAlive) && launch.RunsJobBut(job.job_id());
  };
  ASSERT_TRUE(WaitUntil(replaced, kEnd)) << launch.process().Output();
  RecordProperty("replaced_after_ms", absl::ToInt64Milliseconds(absl::Now() - named));
  ASSERT_TRUE(cluster.WaitForServing(1)) << launch.process().Output();
  RecordProperty("serves_again_after_ms", absl::ToInt64Milliseconds(absl::Now() - named));
  EXPECT_NE(cluster.ServingJob(0).job_id(), job.job_id());
  EXPECT_TRUE(launch.process().WaitForOutput(fault.said, kSaid));

  launch.process().Signal(SIGTERM);
  EXPECT_EQ(launch.process().Wait(absl::Seconds(30)), 128 + SIGTERM);
  launch.ExpectNothingLeft();
}

void SignalAll(const std::vector<pid_t>& pids, int signal) {
  for (const pid_t pid : pids) ASSERT_EQ(kill(pid, signal), 0);
}

constexpr const char* kNamed = "job 1 is to end, by force in 3s: the coordinator names it as lost";

INSTANTIATE_TEST_SUITE_P(
    , JobFaultTest,
    ::testing::Values(Fault{"TheOnlyRankIsStopped", 1,
                            [](const auto& ranks, pid_t) { SignalAll(ranks, SIGSTOP); }, kNamed},
                      Fault{"AllRanksAreStopped", 2,
                            [](const auto& ranks, pid_t) { SignalAll(ranks, SIGSTOP); }, kNamed},
                      Fault{"MpirunIsStoppedAndARankKilled", 2,
                            [](const auto& ranks, pid_t mpirun) {
                              SignalAll({mpirun}, SIGSTOP);
                              SignalAll({ranks[1]}, SIGKILL);
                            },
                            kNamed},
                      Fault{"MpirunAndAllRanksAreStopped", 2,
                            [](const auto& ranks, pid_t mpirun) {
                              SignalAll({mpirun}, SIGSTOP);
                              SignalAll(ranks, SIGSTOP);
                            },
                            kNamed},
                      Fault{"MpirunIsKilled", 2,
                            [](const auto&, pid_t mpirun) { SignalAll({mpirun}, SIGKILL); },
                            "job 1 was killed by SIGKILL after "}),
    [](const auto& info) { return info.param.name; });

TEST(SupervisorTest, SignalledWhileMpirunIsStoppedItLeavesNothing) {
  Cluster cluster({});
  Launch launch(JobFlags(cluster.address(), 2));
  ASSERT_TRUE(cluster.WaitForServing(1));
  const pid_t mpirun = Parent(cluster.ServingJob(0).ranks(0).pid());
  ASSERT_EQ(kill(mpirun, SIGSTOP), 0);
  launch.process().Signal(SIGINT);
  EXPECT_EQ(launch.process().Wait(absl::Seconds(30)), 128 + SIGINT);
  launch.ExpectNothingLeft();
}

TEST(SupervisorTest, EndsWithZeroOnlyAfterADrain) {
  Cluster cluster({});
  Launch launch(JobFlags(cluster.address(), 2));
  ASSERT_TRUE(cluster.WaitForServing(1));
  cluster.coordinator().Signal(SIGTERM);
  EXPECT_EQ(launch.process().Wait(absl::Seconds(30)), 0);
  EXPECT_THAT(launch.process().Output(), HasSubstr("job 1 ended with status 0"));
  launch.ExpectNothingLeft();
}

TEST(SupervisorTest, KilledItLeavesNothing) {
  Cluster cluster({});
  Launch launch(JobFlags(cluster.address(), 2));
  ASSERT_TRUE(cluster.WaitForServing(1));
  const cluster::v1::JobStatus job = cluster.ServingJob(0);
  ASSERT_EQ(kill(job.ranks(1).pid(), SIGSTOP), 0);
  launch.process().Signal(SIGKILL);
  launch.ExpectNothingLeft();
  for (const auto& rank : job.ranks()) {
    // A process that is being killed loses its environment, by which it was looked for, some
    // milliseconds before it is dead.
    const absl::Time until = absl::Now() + absl::Seconds(1);
    while (IsAlive(rank.pid()) && absl::Now() < until) absl::SleepFor(absl::Milliseconds(5));
    EXPECT_FALSE(IsAlive(rank.pid()));
  }
}

class OutputTest : public ::testing::TestWithParam<const char*> {};

TEST_P(OutputTest, JobsStayUpWhateverBecomesOfWhatIsSaid) {
  Cluster cluster({});
  Launch launch(JobFlags(cluster.address(), 1), GetParam());
  ASSERT_TRUE(cluster.WaitForServing(1));
  const cluster::v1::JobStatus job = cluster.ServingJob(0);
  ASSERT_EQ(kill(job.ranks(0).pid(), SIGKILL), 0);
  ASSERT_TRUE(cluster.WaitForStatus(
      [&](const auto& status) {
        return status.serving() && Find(status, job.job_id())->state() == "lost";
      },
      kStart));
  launch.process().Signal(SIGTERM);
  EXPECT_EQ(launch.process().Wait(absl::Seconds(30)), 128 + SIGTERM);
  launch.ExpectNothingLeft();
}

INSTANTIATE_TEST_SUITE_P(, OutputTest,
                         ::testing::Values(">/dev/full 2>&1", ">/dev/full", ">&- 2>&-",
                                           // A reader that is gone.
                                           "2>&1 > >(true)"));

// --- The coordinator is the launcher's ---

// That soon finds a coordinator which was started again.
std::shared_ptr<grpc::Channel> Channel(const std::string& address) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 500);
  return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
}

class OwnCoordinator : public ::testing::Test {
 protected:
  cluster::v1::ClusterStatus Status() {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(500));
    cluster::v1::ClusterStatus status;
    if (!stub_->GetStatus(&context, {}, &status).ok()) status.Clear();
    return status;
  }

  // The pid of the launcher's coordinator that is not `other`; 0: there is none.
  pid_t Coordinator(pid_t other) {
    for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
      pid_t pid = 0;
      if (!absl::SimpleAtoi(entry.path().filename().string(), &pid) || pid == other) continue;
      if (Parent(pid) == launch_.process().pid() &&
          ReadFileOrEmpty(entry.path() / "comm") == "coordinator\n" && IsAlive(pid)) {
        return pid;
      }
    }
    return 0;
  }

  bool WaitForServing(absl::Duration timeout) {
    return WaitUntil([this] { return Status().serving(); }, timeout);
  }

  const std::string address_ = absl::StrCat("127.0.0.1:", FreePort());
  const std::unique_ptr<cluster::v1::Cluster::Stub> stub_ =
      cluster::v1::Cluster::NewStub(Channel(address_));
  Launch launch_{{"--coordinator", address_, "--model", "checkpoints/bard", "--ranks", "2",
                  "--coordinator-flag=--layout=tp=2,pp=1", "--", "--orphan-timeout=60s"}};
};

TEST_F(OwnCoordinator, IsStartedAgainWhenItIsStoppedAndTakesTheJobBack) {
  ASSERT_TRUE(WaitForServing(kStart));
  const std::string job = Status().jobs(0).job_id();
  const pid_t stopped = Coordinator(0);
  ASSERT_NE(stopped, 0);
  ASSERT_EQ(kill(stopped, SIGSTOP), 0);
  const absl::Time before = absl::Now();
  ASSERT_TRUE(WaitUntil([&] { return !IsAlive(stopped); }, absl::Seconds(20)));
  EXPECT_GE(absl::Now() - before, absl::Seconds(8));  // a hiccup costs no coordinator
  ASSERT_TRUE(WaitForServing(absl::Seconds(20)));
  EXPECT_TRUE(launch_.process().WaitForOutput("the coordinator runs, but has not ", kSaid));
  EXPECT_TRUE(launch_.process().WaitForOutput("coordinator was killed by SIGKILL after ", kSaid));
  EXPECT_NE(Coordinator(stopped), 0);
  EXPECT_EQ(Status().jobs(0).job_id(), job);
  launch_.process().Signal(SIGTERM);
  EXPECT_EQ(launch_.process().Wait(absl::Seconds(60)), 128 + SIGTERM);
  EXPECT_THAT(launch_.process().Output(), HasSubstr("job 1 ended with status 0"));
  launch_.ExpectNothingLeft();
}

TEST_F(OwnCoordinator, IsToldAndStartedAgainWhenItIsKilled) {
  ASSERT_TRUE(WaitForServing(kStart));
  const pid_t killed = Coordinator(0);
  ASSERT_EQ(kill(killed, SIGKILL), 0);
  ASSERT_TRUE(WaitUntil([&] { return Coordinator(killed) != 0; }, absl::Seconds(10)));
  EXPECT_TRUE(launch_.process().WaitForOutput("coordinator was killed by SIGKILL after ", kSaid));
  ASSERT_TRUE(WaitForServing(absl::Seconds(20)));
  launch_.process().Signal(SIGKILL);
  launch_.ExpectNothingLeft();
}

}  // namespace
}  // namespace skein::testing
