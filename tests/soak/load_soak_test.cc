// 64 clients at once, who ask for much and little, cancel, and hang up: every accepted request ends
// exactly once, with the answer of a lone run; nothing is left of it.
//   load_soak_test [--requests=N]    (default 200; scripts/soak.sh runs 2,000)
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/cluster/cluster.h"
#include "tests/cluster/test_device.h"
#include "tests/soak/lone_answers.h"

namespace skein::testing {
namespace {

constexpr const char* kSkein = "client/skein";
constexpr int kClients = 64;
constexpr int kVariants = 48;
constexpr int kMaxNumSeqs = 24;
constexpr int64_t kMaxGrowthBytes = 8'000'000;  // of all processes together, in the second half

int g_requests = 200;

int64_t ResidentBytes(pid_t pid) {
  std::ifstream status(absl::StrCat("/proc/", pid, "/status"));
  for (std::string name; status >> name;) {
    int64_t kib = 0;
    if (name == "VmRSS:" && status >> kib) return kib << 10;
  }
  return 0;
}

struct Counts {
  std::atomic<int> answered = 0, cancelled = 0, timed_out = 0, hung_up = 0;
  std::atomic<int> killed = 0;  // of those that hung up, in the middle of an answer
};

class Load {
 public:
  Load(Cluster& cluster, const std::vector<LoneAnswer>& lone) : cluster_(cluster), lone_(lone) {}

  // Serves `requests` more.
  void Run(int requests) {
    std::atomic<int> left = requests;
    std::vector<std::thread> clients;
    for (int client = 0; client < kClients; ++client) {
      clients.emplace_back([&, client] {
        std::mt19937 random(rounds_ * kClients + client);
        while (left.fetch_sub(1) > 0) Ask(random);
      });
    }
    for (std::thread& client : clients) client.join();
    ++rounds_;
  }

  const Counts& counts() const { return counts_; }

 private:
  void Ask(std::mt19937& random) {
    const LoneAnswer& lone = lone_[random() % lone_.size()];
    v1::GenerateRequest request = lone.request;
    request.set_priority(static_cast<int32_t>(random() % 3));
    switch (random() % 10) {
      case 0:
        return Cancel(request, lone, random() % 20);
      case 1:
        return TimeOut(request, lone, absl::Milliseconds(random() % 300));
      case 2:
        return random() % 2 == 0 ? HangUp(request) : KillClient(request);
      default:
        return Finish(request, lone);
    }
  }

  void Finish(const v1::GenerateRequest& request, const LoneAnswer& lone) {
    lone.ExpectEqual(cluster_.Generate(request));
    ++counts_.answered;
  }

  // The whole answer, or its beginning before this status.
  static void ExpectEndOr(grpc::StatusCode early, const Answer& answer, const LoneAnswer& lone) {
    if (answer.status.ok()) return lone.ExpectEqual(answer);
    EXPECT_EQ(answer.status.error_code(), early) << answer.status.error_message();
    ASSERT_LE(answer.tokens.size(), lone.tokens.size());
    EXPECT_TRUE(std::equal(answer.tokens.begin(), answer.tokens.end(), lone.tokens.begin()));
    EXPECT_TRUE(lone.text.starts_with(answer.text));
  }

  void Cancel(const v1::GenerateRequest& request, const LoneAnswer& lone, size_t after) {
    grpc::ClientContext context;
    const auto stream = cluster_.inference().Generate(&context, request);
    Answer answer;
    v1::GenerateEvent event;
    while (stream->Read(&event)) {
      answer.Add(event);
      if (answer.tokens.size() >= after) context.TryCancel();
    }
    answer.status = stream->Finish();
    EXPECT_EQ(answer.Fault(), "");
    ExpectEndOr(grpc::StatusCode::CANCELLED, answer, lone);
    ++counts_.cancelled;
  }

  void TimeOut(const v1::GenerateRequest& request, const LoneAnswer& lone, absl::Duration time) {
    ExpectEndOr(grpc::StatusCode::DEADLINE_EXCEEDED, cluster_.Generate(request, time), lone);
    ++counts_.timed_out;
  }

  // The call and its channel go.
  void HangUp(const v1::GenerateRequest& request) {
    grpc::ChannelArguments own;
    own.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    const auto stub = v1::Inference::NewStub(
        grpc::CreateCustomChannel(cluster_.address(), grpc::InsecureChannelCredentials(), own));
    grpc::ClientContext context;
    const auto stream = stub->Generate(&context, request);
    v1::GenerateEvent event;
    stream->Read(&event);
    context.TryCancel();
    ++counts_.hung_up;
  }

  // A client is killed in the middle of its answer: its connection breaks without a word.
  void KillClient(const v1::GenerateRequest& request) {
    Process client(
        {.name = "client",
         .argv = {FindProgram(kSkein), "generate", "--coordinator=" + cluster_.address(),
                  "--prompt=" + request.prompt(), "--max-tokens=300", "--ignore-eos", "--json"}});
    EXPECT_TRUE(client.WaitForOutput("\"tokens\"", absl::Seconds(60))) << client.Output();
    client.Signal(SIGKILL);
    const std::optional<int> status = client.Wait(absl::Seconds(60));
    EXPECT_TRUE(status == 128 + SIGKILL || status == 0) << client.Output();
    counts_.killed += status != 0 ? 1 : 0;
    ++counts_.hung_up;
  }

  Cluster& cluster_;
  const std::vector<LoneAnswer>& lone_;
  int rounds_ = 0;
  Counts counts_;
};

struct SoakCase {
  std::string name;
  std::string layout;
  std::vector<int> jobs;  // ranks of each
};

void PrintTo(const SoakCase& c, std::ostream* out) { *out << c.name; }

class LoadSoakTest : public ::testing::TestWithParam<SoakCase> {};

std::map<pid_t, int64_t> ResidentBytesOfAll(Cluster& cluster) {
  std::map<pid_t, int64_t> bytes = {{cluster.coordinator().pid(), 0}};
  const cluster::v1::ClusterStatus status = cluster.Status();
  for (const auto& job : status.jobs()) {
    for (const auto& rank : job.ranks()) bytes[rank.pid()] = 0;
  }
  for (auto& [pid, resident] : bytes) {
    resident = ResidentBytes(pid);
    EXPECT_GT(resident, 0) << "process " << pid << " is gone";
  }
  return bytes;
}

int64_t Sum(const std::map<pid_t, int64_t>& bytes) {
  int64_t sum = 0;
  for (const auto& [pid, resident] : bytes) sum += resident;
  return sum;
}

// Nobody uses a page; each is free or kept for later prompts.
bool NothingIsLeft(const cluster::v1::ClusterStatus& status) {
  if (status.running_requests() != 0 || status.queued_requests() != 0) return false;
  for (const auto& job : status.jobs()) {
    for (const auto& replica : job.replicas()) {
      const cluster::v1::ReplicaLoad& load = replica.load();
      if (load.running() + load.waiting() + load.used_pages() != 0 ||
          load.free_pages() + load.cached_pages() != load.total_pages() ||
          load.free_swap_pages() != load.total_swap_pages()) {
        return false;
      }
    }
  }
  return true;
}

// Makes the pages resident, those of the swap pool too, so that what grows afterwards is something
// else: prompts that share nothing, more of them at once than there is room for.
void TouchPages(Cluster& cluster) {
  std::mt19937 random(5);
  std::vector<v1::GenerateRequest> requests(32 * cluster.Status().jobs_size());
  for (v1::GenerateRequest& request : requests) {
    for (int i = 0; i < 400; ++i) request.mutable_prompt_tokens()->add_ids(300 + random() % 700);
    request.set_max_tokens(40);
    request.mutable_sampling()->set_ignore_eos(true);
  }
  for (const Answer& answer : cluster.GenerateAll(requests)) {
    EXPECT_TRUE(answer.status.ok()) << answer.status.error_message();
  }
  EXPECT_TRUE(cluster.WaitForStatus(NothingIsLeft, absl::Seconds(10)));
  // All have been used; the last ones of sequences are not kept.
  const cluster::v1::ClusterStatus status = cluster.Status();
  for (const auto& job : status.jobs()) {
    for (const auto& replica : job.replicas()) {
      EXPECT_LE(replica.load().free_pages(), kMaxNumSeqs);
    }
  }
}

struct Totals {
  int64_t preemptions = 0, cached_tokens = 0;
};

Totals TotalsOf(const cluster::v1::ClusterStatus& status) {
  Totals totals;
  for (const auto& job : status.jobs()) {
    for (const auto& replica : job.replicas()) {
      const cluster::v1::ReplicaLoad& load = replica.load();
      totals.preemptions += load.preemptions_swapped() + load.preemptions_recomputed();
      totals.cached_tokens += load.cached_tokens();
    }
  }
  return totals;
}

TEST_P(LoadSoakTest, EveryRequestEndsOnceAndNothingIsLeft) {
  const std::vector<LoneAnswer> lone = MakeLoneAnswers(kVariants, 1, 64);
  // So few pages that sequences give way to each other, by swapping and by computing again. GPUs
  // keep keys and values in half of the bytes.
  Cluster cluster({.layout = GetParam().layout,
                   .coordinator_flags = {OnGpus() ? "--kv-memory=10MiB" : "--kv-memory=20MiB",
                                         OnGpus() ? "--swap-memory=2MiB" : "--swap-memory=4MiB",
                                         absl::StrCat("--max-num-seqs=", kMaxNumSeqs),
                                         "--context-length=512"}});
  for (size_t i = 0; i < GetParam().jobs.size(); ++i) {
    cluster.StartJob(GetParam().jobs[i]);
    ASSERT_TRUE(cluster.WaitForServing(static_cast<int>(i) + 1));
  }
  TouchPages(cluster);
  const Totals begin = TotalsOf(cluster.Status());
  Load load(cluster, lone);
  load.Run(g_requests / 2);
  EXPECT_TRUE(cluster.WaitForStatus(NothingIsLeft, absl::Seconds(10)));
  const std::map<pid_t, int64_t> before = ResidentBytesOfAll(cluster);
  load.Run(g_requests - g_requests / 2);
  EXPECT_TRUE(cluster.WaitForStatus(NothingIsLeft, absl::Seconds(10)))
      << cluster.Status().DebugString();
  const std::map<pid_t, int64_t> after = ResidentBytesOfAll(cluster);
  std::string growth;  // in KiB
  for (const auto& [pid, resident] : after) {
    ASSERT_TRUE(before.contains(pid)) << pid;
    absl::StrAppend(&growth, " ", (resident - before.at(pid)) >> 10);
  }
  EXPECT_EQ(after.size(), before.size());
  EXPECT_LE(Sum(after), Sum(before) + kMaxGrowthBytes) << "grown by, in KiB:" << growth;
  const Counts& counts = load.counts();
  EXPECT_EQ(counts.answered + counts.cancelled + counts.timed_out + counts.hung_up, g_requests);
  const Totals end = TotalsOf(cluster.Status());
  const int64_t preemptions = end.preemptions - begin.preemptions;
  const int64_t cached = end.cached_tokens - begin.cached_tokens;
  EXPECT_GT(counts.killed, 0);
  EXPECT_GT(preemptions, 0);
  EXPECT_GT(cached, 0);
  std::printf(
      "%s: %d answered, %d cancelled, %d timed out, %d hung up, %d of them killed; %ld "
      "preemptions, "
      "%ld prompt tokens from the cache\n"
      "resident after each half: %ld and %ld KiB; by process, KiB more:%s\n",
      GetParam().name.c_str(), counts.answered.load(), counts.cancelled.load(),
      counts.timed_out.load(), counts.hung_up.load(), counts.killed.load(),
      static_cast<long>(preemptions), static_cast<long>(cached),
      static_cast<long>(Sum(before) >> 10), static_cast<long>(Sum(after) >> 10), growth.c_str());
}

INSTANTIATE_TEST_SUITE_P(Layouts, LoadSoakTest,
                         ::testing::Values(SoakCase{"tp4", "tp=4", {4}},
                                           SoakCase{"pp4", "pp=4", {4}},
                                           SoakCase{"tp2_pp2", "tp=2,pp=2", {4}},
                                           SoakCase{"two_jobs_of_tp2", "tp=2,pp=1", {2, 2}}),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace skein::testing

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (!argument.starts_with("--requests=") ||
        !absl::SimpleAtoi(argument.substr(11), &skein::testing::g_requests)) {
      std::fprintf(stderr, "unknown argument '%s'; there is --requests=N\n", argv[i]);
      return 2;
    }
  }
  return RUN_ALL_TESTS();
}
