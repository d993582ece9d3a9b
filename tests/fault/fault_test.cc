// What happens when ranks, jobs and coordinators die: real processes, real signals.
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/cluster/cluster.h"
#include "tests/cluster/running_answer.h"

namespace skein::testing {
namespace {

using ::testing::HasSubstr;

// The bound that is promised to users for every loss.
constexpr absl::Duration kBound = absl::Seconds(5);
// Of a job that was named: its processes, mpirun among them.
constexpr absl::Duration kEnd = absl::Seconds(10);

// For jobs whose answers must be in their middle when something happens: one of kLong tokens takes
// more than half a minute.
constexpr const char* kFaultyWorker = "tests/fault/faulty_worker";
constexpr const char* kSlow = "--slow=20ms";

std::set<std::string> SharedMemory() {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm")) {
    names.insert(entry.path().filename().string());
  }
  return names;
}

bool WaitUntil(absl::Duration timeout, const std::function<bool()>& predicate) {
  const absl::Time deadline = absl::Now() + timeout;
  while (!predicate()) {
    if (absl::Now() > deadline) return false;
    absl::SleepFor(absl::Milliseconds(20));
  }
  return true;
}

// Whatever was there before may go: it is somebody else's.
bool NothingIsLeftBut(const std::set<std::string>& before) {
  return WaitUntil(kBound, [&] {
    const std::set<std::string> now = SharedMemory();
    return std::includes(before.begin(), before.end(), now.begin(), now.end());
  });
}

std::vector<pid_t> Pids(const cluster::v1::JobStatus& job) {
  std::vector<pid_t> pids;
  for (const auto& rank : job.ranks()) pids.push_back(rank.pid());
  return pids;
}

bool NoneAlive(const std::vector<pid_t>& pids) {
  for (pid_t pid : pids) {
    if (IsAlive(pid)) return false;
  }
  return true;
}

struct FaultCase {
  std::string name;
  int signal;
  int victim;  // rank
};

void PrintTo(const FaultCase& c, std::ostream* out) { *out << c.name; }

class RankFaultTest : public ::testing::TestWithParam<FaultCase> {};

// Two jobs serve; a rank of one is lost in mid-answer.
TEST_P(RankFaultTest, EndsItsJobAloneAndANewOneServes) {
  const std::set<std::string> shared_memory = SharedMemory();
  Cluster cluster({.layout = "tp=2,pp=2", .worker = kFaultyWorker});
  Process& job = cluster.StartJob(4, {kSlow});
  ASSERT_TRUE(cluster.WaitForServing(1));
  const cluster::v1::JobStatus victim_job = cluster.ServingJob(0);
  RunningAnswer moved(cluster);  // on the only job there is
  Process& other = cluster.StartJob(4);
  ASSERT_TRUE(cluster.WaitForServing(2));
  RunningAnswer kept(cluster);  // on the idle job

  const int victim = GetParam().victim;
  const std::string who = absl::StrCat("rank ", victim, " on ", HostName(), " (pid ",
                                       victim_job.ranks(victim).pid(), ") is lost");
  const absl::Time named = absl::Now() + kBound;
  ASSERT_EQ(kill(victim_job.ranks(victim).pid(), GetParam().signal), 0);
  EXPECT_TRUE(cluster.coordinator().WaitForOutput(who, named - absl::Now()));
  const std::optional<int> exit_status = job.Wait(kEnd);
  ASSERT_TRUE(exit_status.has_value()) << "mpirun still runs";
  EXPECT_NE(*exit_status, 0);
  EXPECT_TRUE(WaitUntil(kEnd, [&] { return NoneAlive(Pids(victim_job)); }));

  kept.Join();
  EXPECT_TRUE(kept.status().ok()) << kept.status().error_message();
  moved.Join();
  EXPECT_TRUE(moved.status().ok()) << moved.status().error_message();
  EXPECT_EQ(moved.text(), kept.text());
  EXPECT_FALSE(other.Wait(absl::ZeroDuration()).has_value());
  cluster.StartJob(4);
  ASSERT_TRUE(cluster.WaitForServing(2));
  EXPECT_TRUE(cluster.Generate(GreedyRequest("JULIET:", 5)).status.ok());

  cluster.coordinator().Signal(SIGTERM);
  EXPECT_EQ(cluster.coordinator().Wait(absl::Seconds(20)), 0);
  EXPECT_EQ(other.Wait(absl::Seconds(20)), 0);
  EXPECT_TRUE(NothingIsLeftBut(shared_memory));
}

INSTANTIATE_TEST_SUITE_P(Faults, RankFaultTest,
                         ::testing::Values(FaultCase{"kill_leader", SIGKILL, 0},
                                           FaultCase{"kill_last", SIGKILL, 3},
                                           FaultCase{"stop_leader", SIGSTOP, 0},
                                           FaultCase{"stop_shard", SIGSTOP, 1}),
                         [](const auto& info) { return info.param.name; });

TEST(MpirunFaultTest, KillOfMpirunEndsEveryRank) {
  const std::set<std::string> shared_memory = SharedMemory();
  Cluster cluster(
      {.layout = "tp=2,pp=2", .coordinator_flags = {"--replica-wait=0s"}, .worker = kFaultyWorker});
  Process& job = cluster.StartJob(4, {kSlow});
  ASSERT_TRUE(cluster.WaitForServing(1));
  const std::vector<pid_t> pids = Pids(cluster.ServingJob(0));
  RunningAnswer answer(cluster);
  const absl::Time fault = absl::Now();
  job.Signal(SIGKILL);
  EXPECT_TRUE(WaitUntil(kBound, [&] { return NoneAlive(pids); }));
  EXPECT_TRUE(NothingIsLeftBut(shared_memory));
  answer.Join();
  EXPECT_LT(answer.done() - fault, kBound);
  EXPECT_EQ(answer.status().error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_THAT(answer.error(), HasSubstr("--replica-wait"));  // the last event said so, too
  EXPECT_THAT(answer.error(), HasSubstr(absl::StrCat("on ", HostName())));
  EXPECT_TRUE(cluster.WaitForStatus([](const auto& status) { return !status.serving(); }, kBound));
}

TEST(CoordinatorFaultTest, WorkersWaitForItSayingSoAndEndAsOrphans) {
  Cluster cluster({});
  cluster.coordinator().Signal(SIGKILL);
  cluster.coordinator().Wait(absl::Seconds(5));
  Process& job = cluster.StartJob(2, {"--orphan-timeout=8s"});
  EXPECT_TRUE(
      job.WaitForOutput("waiting for a coordinator at " + cluster.address(), absl::Seconds(15)));
  const std::optional<int> status = job.Wait(absl::Seconds(30));
  ASSERT_TRUE(status.has_value());
  EXPECT_NE(*status, 0);
  EXPECT_THAT(job.Output(), HasSubstr("--orphan-timeout"));
}

TEST(CoordinatorFaultTest, OneThatComesAfterItsWorkersIsServed) {
  Cluster cluster({});
  cluster.coordinator().Signal(SIGKILL);  // leaves an address at which nobody listens
  cluster.coordinator().Wait(absl::Seconds(5));
  Process& job = cluster.StartJob(2);
  ASSERT_TRUE(
      job.WaitForOutput("waiting for a coordinator at " + cluster.address(), absl::Seconds(15)));
  cluster.RestartCoordinator();
  ASSERT_TRUE(cluster.WaitForServing(1)) << job.Output();
  EXPECT_TRUE(cluster.Generate(GreedyRequest("ROMEO:", 5)).status.ok());
}

TEST(CoordinatorFaultTest, ServingWorkersOutliveItForTheOrphanTimeoutOnly) {
  Cluster cluster({.layout = "tp=1,pp=1"});
  Process& job = cluster.StartJob(2, {"--orphan-timeout=3s"});
  ASSERT_TRUE(cluster.WaitForServing(1));
  cluster.coordinator().Signal(SIGKILL);
  cluster.coordinator().Wait(absl::Seconds(5));
  const absl::Time lost = absl::Now();
  const std::optional<int> status = job.Wait(absl::Seconds(13));
  ASSERT_TRUE(status.has_value());
  EXPECT_GT(absl::Now() - lost, absl::Milliseconds(2500)) << job.Output();
  EXPECT_NE(*status, 0);
  EXPECT_THAT(job.Output(), HasSubstr(absl::StrCat("no coordinator at ", cluster.address(),
                                                   " for 3s (--orphan-timeout)")));
}

TEST(CoordinatorFaultTest, AStoppedOneIsAsGoodAsNone) {
  Cluster cluster({.layout = "tp=1,pp=1", .coordinator_flags = {"--replica-wait=0s"}});
  Process& job = cluster.StartJob(2, {"--orphan-timeout=3s"});
  ASSERT_TRUE(cluster.WaitForServing(1));
  RunningAnswer answer(cluster);
  cluster.coordinator().Signal(SIGSTOP);
  const std::optional<int> status = job.Wait(absl::Seconds(15));
  cluster.coordinator().Signal(SIGCONT);
  ASSERT_TRUE(status.has_value());
  EXPECT_NE(*status, 0);
  EXPECT_THAT(job.Output(), HasSubstr("--orphan-timeout"));
}

TEST(CoordinatorFaultTest, ANewOneTakesTheJobUpAgain) {
  Cluster cluster({.layout = "tp=2,pp=1"});
  Process& job = cluster.StartJob(2);
  ASSERT_TRUE(cluster.WaitForServing(1));
  const std::vector<pid_t> pids = Pids(cluster.ServingJob(0));
  const Answer before = cluster.Generate(GreedyRequest("ROMEO:", 20));
  {
    RunningAnswer lost(cluster);
    cluster.coordinator().Signal(SIGKILL);
    cluster.coordinator().Wait(absl::Seconds(5));
  }
  cluster.RestartCoordinator();  // returns when it listens
  EXPECT_TRUE(cluster.coordinator().WaitForOutput("serves with 1 replica", absl::Seconds(2)));
  ASSERT_TRUE(cluster.WaitForServing(1));
  EXPECT_EQ(Pids(cluster.ServingJob(0)), pids);
  const Answer after = cluster.Generate(GreedyRequest("ROMEO:", 20));
  EXPECT_TRUE(after.status.ok()) << after.status.error_message();
  EXPECT_EQ(after.tokens, before.tokens);
  // The leader has spoken now, and keeps nothing of the answer that was lost.
  EXPECT_TRUE(cluster.WaitForStatus(
      [&](const auto& status) {
        if (status.jobs_size() != 1 || status.jobs(0).replicas_size() != 1) return false;
        const cluster::v1::ReplicaLoad& load = status.jobs(0).replicas(0).load();
        return load.steps() >= static_cast<int64_t>(before.tokens.size() + after.tokens.size()) &&
               load.running() + load.waiting() + load.used_pages() == 0 &&
               load.free_pages() + load.cached_pages() == load.total_pages();
      },
      kBound))
      << cluster.Status().DebugString();
  cluster.coordinator().Signal(SIGTERM);
  EXPECT_EQ(job.Wait(absl::Seconds(20)), 0) << job.Output();
}

TEST(CancelTest, ADeadlineFreesThePagesAtOnce) {
  Cluster cluster({.layout = "tp=1,pp=2", .worker = kFaultyWorker});
  cluster.StartJob(2, {kSlow});
  ASSERT_TRUE(cluster.WaitForServing(1));
  const auto load = [&] { return cluster.ServingJob(0).replicas(0).load(); };
  ASSERT_GT(load().total_pages(), 0);
  EXPECT_EQ(load().free_pages(), load().total_pages());
  std::thread request([&] {
    const Answer answer = cluster.Generate(GreedyRequest("ROMEO:", kLong), absl::Seconds(5));
    EXPECT_EQ(answer.status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  });
  EXPECT_TRUE(WaitUntil(absl::Seconds(5), [&] { return load().used_pages() >= 2; }));
  request.join();
  EXPECT_TRUE(WaitUntil(absl::Seconds(1), [&] { return load().used_pages() == 0; }));
  // What it has computed may stay for later prompts.
  EXPECT_EQ(load().free_pages() + load().cached_pages(), load().total_pages());
}

TEST(CancelTest, ACancellationFreesThePagesAtOnce) {
  Cluster cluster({.layout = "tp=1,pp=2", .worker = kFaultyWorker});
  cluster.StartJob(2, {kSlow});
  ASSERT_TRUE(cluster.WaitForServing(1));
  const auto load = [&] { return cluster.ServingJob(0).replicas(0).load(); };
  grpc::ClientContext context;
  const auto reader = cluster.inference().Generate(&context, GreedyRequest("ROMEO:", kLong));
  v1::GenerateEvent event;
  while (reader->Read(&event) && !event.has_tokens()) {
  }
  ASSERT_TRUE(WaitUntil(absl::Seconds(5), [&] { return load().used_pages() > 0; }));
  const absl::Time bound = absl::Now() + absl::Seconds(1);
  context.TryCancel();
  EXPECT_TRUE(WaitUntil(bound - absl::Now(), [&] { return load().used_pages() == 0; }));
  EXPECT_EQ(load().running(), 0);
  EXPECT_EQ(load().free_pages() + load().cached_pages(), load().total_pages());
  while (reader->Read(&event)) EXPECT_FALSE(event.has_finished());
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
}

// Nobody says a word to the coordinator: its connection breaks.
TEST(CancelTest, AKilledClientIsNoticedAndItsPagesAreFree) {
  constexpr int kAnswers = 8;
  Cluster cluster({.layout = "tp=1,pp=2", .worker = kFaultyWorker});
  cluster.StartJob(2, {kSlow});
  ASSERT_TRUE(cluster.WaitForServing(1));
  Process client({.name = "client",
                  .argv = {"client/skein", "--coordinator=" + cluster.address(), "generate",
                           "--prompt=ROMEO:", absl::StrCat("--n=", kAnswers),
                           absl::StrCat("--max-tokens=", kLong), "--ignore-eos", "--json"}});
  ASSERT_TRUE(client.WaitForOutput("\"tokens\"", absl::Seconds(30))) << client.Output();
  const absl::Time bound = absl::Now() + kBound;
  client.Signal(SIGKILL);
  ASSERT_EQ(client.Wait(kBound), 128 + SIGKILL);
  cluster::v1::ReplicaStatus replica;
  EXPECT_TRUE(cluster.WaitForStatus(
      [&](const auto& status) {
        replica = status.jobs(0).replicas(0);
        return status.running_requests() + replica.load().running() == 0 &&
               replica.load().used_pages() == 0;
      },
      bound - absl::Now()));
  EXPECT_GT(replica.tokens_total(), 0);
  EXPECT_LT(replica.tokens_total(), kAnswers * kLong);  // it has not gone on to the end
}

TEST(DrainTest, RunningAnswersFinishAndEveryoneLeavesWithZero) {
  Cluster cluster({.layout = "tp=2,pp=1", .worker = kFaultyWorker});
  Process& job = cluster.StartJob(2, {"--slow=3ms"});  // it is to end
  ASSERT_TRUE(cluster.WaitForServing(1));
  RunningAnswer answer(cluster);
  cluster.coordinator().Signal(SIGTERM);
  ASSERT_TRUE(WaitUntil(absl::Seconds(5), [&] {
    return cluster.Generate(GreedyRequest("x", 2)).status.error_code() ==
           grpc::StatusCode::UNAVAILABLE;
  }));
  const absl::Time refused = absl::Now();
  answer.Join();
  EXPECT_TRUE(answer.status().ok()) << answer.status().error_message();
  EXPECT_GT(answer.done(), refused);
  EXPECT_EQ(cluster.coordinator().Wait(absl::Seconds(30)), 0);
  EXPECT_EQ(job.Wait(absl::Seconds(30)), 0) << job.Output();
}

// Signals that come together count as one: repeats one until the process has ended.
std::optional<int> SignalUntilItEnds(Process& process, int signal, absl::Duration timeout) {
  std::optional<int> status;
  WaitUntil(timeout, [&] {
    status = process.Wait(absl::ZeroDuration());
    if (!status.has_value()) process.Signal(signal);
    return status.has_value();
  });
  return status;
}

// The answer cannot end: a rank stops in its eleventh step.
TEST(DrainTest, ASecondSignalEndsAtOnce) {
  Cluster cluster({.layout = "tp=2,pp=1", .worker = kFaultyWorker});
  cluster.StartJob(
      2, {"--fault=tp of replica 0, stage 0:1:before:all-reduce 200", "--step-timeout=10m"});
  ASSERT_TRUE(cluster.WaitForServing(1));
  RunningAnswer answer(cluster);
  cluster.coordinator().Signal(SIGTERM);
  ASSERT_TRUE(cluster.coordinator().WaitForOutput("draining", absl::Seconds(5)));
  EXPECT_EQ(SignalUntilItEnds(cluster.coordinator(), SIGTERM, absl::Seconds(3)), 1);
  answer.Join();
  EXPECT_FALSE(answer.status().ok());
}

TEST(DrainTest, ASecondSignalEndsACoordinatorThatWaitsForItsClients) {
  Cluster cluster({});
  const auto stub = cluster::v1::Cluster::NewStub(cluster.channel());
  grpc::ClientContext context;
  const auto silent = stub->Attach(&context);  // holds the server up for as long as it may
  cluster.Status();                            // comes after it
  cluster.coordinator().Signal(SIGTERM);
  ASSERT_TRUE(cluster.coordinator().WaitForOutput("drained", absl::Seconds(10)));
  // 0 if it had waited.
  EXPECT_EQ(SignalUntilItEnds(cluster.coordinator(), SIGTERM, absl::Seconds(3)), 1);
  context.TryCancel();
}

// Whether a process is the program, and not the shell or the runtime before it, and blocks it.
bool BlocksSignal(pid_t pid, const std::string& program, int signal) {
  std::ifstream status(absl::StrCat("/proc/", pid, "/status"));
  for (std::string name; status >> name;) {
    if (name == "Name:") {
      std::string is;
      if (status >> is; is != program) return false;
    } else if (name == "SigBlk:") {
      uint64_t mask = 0;
      status >> std::hex >> mask;
      return ((mask >> (signal - 1)) & 1) != 0;
    }
  }
  return false;
}

// It logs into a pipe that is full, and so never gets beyond its first line.
TEST(DrainTest, ASecondSignalEndsACoordinatorThatHangsWhileItLoads) {
  const std::string pipe = absl::StrCat(::testing::TempDir(), "/full");
  std::filesystem::remove(pipe);
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  const int end = open(pipe.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC);
  ASSERT_GE(end, 0);
  const std::string page(4096, 'x');
  while (write(end, page.data(), page.size()) > 0) {
  }
  Process coordinator({.name = "coordinator",
                       .argv = {"sh", "-c",
                                "exec coordinator/coordinator --model=checkpoints/bard "
                                "--listen=127.0.0.1:0 >\"$FULL\" 2>&1"},
                       .environment = {{"FULL", pipe}}});
  ASSERT_TRUE(WaitUntil(absl::Seconds(20),
                        [&] { return BlocksSignal(coordinator.pid(), "coordinator", SIGTERM); }));
  coordinator.Signal(SIGTERM);
  EXPECT_FALSE(coordinator.Wait(absl::Milliseconds(300)).has_value());
  EXPECT_EQ(SignalUntilItEnds(coordinator, SIGINT, absl::Seconds(3)), 1);
  close(end);
}

TEST(RefusalTest, LayoutsThatCannotBeAreRefusedBeforeLoading) {
  struct Case {
    std::string layout;
    std::string kv_memory;
    int ranks;
    std::vector<std::string> says;
  };
  const Case cases[] = {
      {"tp=5,pp=1",
       "0.5",
       5,
       {"layout tp=5,pp=1 does not work for bard on 5 ranks:",
        "tp=5: 4 heads cannot be split into 5 shards\n",
        "Nearest that work: tp=1,pp=1,dp=5; tp=1,pp=5,dp=1\n"}},
      {"tp=1,pp=9",
       "0.5",
       9,
       {"layout tp=1,pp=9 does not work for bard on 9 ranks:",
        "pp=9: 9 stages of 8 layers cannot be, since a stage holds at least one\n",
        "Nearest that work: tp=1,pp=3,dp=3; tp=1,pp=1,dp=9\n"}},
      {"tp=1,pp=1",
       "6MiB",
       2,
       {"tp=1,pp=1,dp=2: KV caches of 6.0 MiB per rank have 48 pages of 16 tokens; 1 sequence of "
        "1024 tokens needs 64, 8.0 MiB per rank\n",
        "Nearest that work: tp=", "tp=2,pp=1,dp=1", "tp=1,pp=2,dp=1"}},
      {"tp=2,pp=1",
       "100TiB",
       2,
       {absl::StrCat("tp=2,pp=1,dp=1: node ", HostName(), " would need 200.00 TiB for "),
        ", 100.00 TiB per rank and has ", "No other layout of these ranks works either\n"}},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.layout);
    Cluster cluster({.layout = c.layout, .coordinator_flags = {"--kv-memory=" + c.kv_memory}});
    Process& job = cluster.StartJob(c.ranks);
    const std::optional<int> status = job.Wait(absl::Seconds(30));
    ASSERT_TRUE(status.has_value());
    EXPECT_NE(*status, 0);
    for (const std::string& text : c.says) EXPECT_THAT(job.Output(), HasSubstr(text));
    EXPECT_THAT(job.Output(), ::testing::Not(HasSubstr("loaded")));
  }
}

TEST(RefusalTest, AMissingOrDifferentModelNamesNodeAndPath) {
  Cluster cluster({.layout = "tp=1,pp=1"});
  const std::string root = cluster.scratch() + "/models";
  std::filesystem::create_directories(root);
  Process& missing = cluster.StartJob(1, {"--model-root=" + root});
  ASSERT_TRUE(missing.Wait(absl::Seconds(20)).has_value());
  EXPECT_THAT(missing.Output(), HasSubstr(root + "/bard"));
  EXPECT_THAT(missing.Output(), HasSubstr("rank 0 on " + HostName()));

  std::filesystem::copy("checkpoints/bard", root + "/bard",
                        std::filesystem::copy_options::recursive);
  std::filesystem::permissions(root + "/bard/config.json", std::filesystem::perms::owner_write,
                               std::filesystem::perm_options::add);
  FILE* config = std::fopen((root + "/bard/config.json").c_str(), "a");
  ASSERT_NE(config, nullptr);
  std::fputs("\n", config);
  std::fclose(config);
  Process& different = cluster.StartJob(1, {"--model-root=" + root});
  ASSERT_TRUE(different.Wait(absl::Seconds(20)).has_value());
  EXPECT_THAT(different.Output(), HasSubstr(root + "/bard"));
  EXPECT_THAT(different.Output(), HasSubstr("another one"));
  EXPECT_TRUE(cluster.coordinator().WaitForOutput(root + "/bard", absl::Seconds(5)));
}

// Bard's weights below `root`, which a job reads instead of the coordinator's.
std::string CopyBard(const std::string& root) {
  const std::string folder = root + "/bard";
  std::filesystem::create_directories(root);
  std::filesystem::copy("checkpoints/bard", folder, std::filesystem::copy_options::recursive);
  return folder;
}

// Inverts a bit of a file's last byte, which is a weight's.
void FlipLastByte(const std::string& path) {
  std::filesystem::permissions(path, std::filesystem::perms::owner_write,
                               std::filesystem::perm_options::add);
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(-1, std::ios::end);
  const char last = static_cast<char>(file.get());
  file.seekp(-1, std::ios::end);
  file.put(static_cast<char>(last ^ 1));
  ASSERT_TRUE(file.good());
}

// One byte differs, of a file of the same size and header.
TEST(RefusalTest, OtherWeightsThanAServingReplicasAreRefusedByTheNamesOfBothCopies) {
  Cluster cluster({.layout = "tp=1,pp=1"});
  const std::string first = cluster.scratch() + "/first";
  const std::string second = cluster.scratch() + "/second";
  const std::string theirs = CopyBard(first);
  const std::string ours = CopyBard(second);
  Process& serving = cluster.StartJob(1, {"--model-root=" + first});
  ASSERT_TRUE(cluster.WaitForServing(1));
  // The copies are equal still.
  Process& alike = cluster.StartJob(1, {"--model-root=" + second});
  ASSERT_TRUE(cluster.WaitForServing(2)) << alike.Output();

  FlipLastByte(ours + "/model.safetensors");
  Process& refused = cluster.StartJob(1, {"--model-root=" + second});
  const std::optional<int> status = refused.Wait(absl::Seconds(30));
  ASSERT_TRUE(status.has_value()) << "it serves";
  EXPECT_NE(*status, 0);
  const std::string says = absl::StrCat("the copies ", HostName(), ":", ours, " and ", HostName(),
                                        ":", theirs, " differ");
  EXPECT_THAT(refused.Output(), HasSubstr(says));
  EXPECT_TRUE(cluster.coordinator().WaitForOutput(says, absl::Seconds(5)));
  EXPECT_FALSE(serving.Wait(absl::ZeroDuration()).has_value());
  EXPECT_TRUE(cluster.Generate(GreedyRequest("ROMEO:", 5)).status.ok());
}

}  // namespace
}  // namespace skein::testing
