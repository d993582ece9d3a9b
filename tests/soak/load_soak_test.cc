// 64 clients at once, who ask for much and little, cancel, and hang up: every accepted request ends
// exactly once, with the answer of a lone run; nothing is left of it.
//   load_soak_test [--requests=N]    (default 200; scripts/soak.sh runs 2,000)
#include <algorithm>
#include <atomic>
#include <fstream>
#include <map>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/cluster/cluster.h"
#include "tests/soak/lone_answers.h"

namespace skein::testing {
namespace {

constexpr int kClients = 64;
constexpr int kVariants = 48;
constexpr int64_t kMaxGrowthBytes = 8 << 20;

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
        return HangUp(request);
      default:
        return Finish(request, lone);
    }
  }

  void Finish(const v1::GenerateRequest& request, const LoneAnswer& lone) {
    const Answer answer = cluster_.Generate(request);
    EXPECT_TRUE(answer.status.ok()) << answer.status.error_message();
    EXPECT_EQ(answer.tokens, lone.tokens);
    EXPECT_EQ(answer.text, lone.text);
    EXPECT_NE(answer.reason, v1::Finished::REASON_UNSPECIFIED);
    ++counts_.answered;
  }

  // What came before the end is the beginning of the lone answer.
  static void ExpectBeginning(const std::vector<uint32_t>& tokens, const LoneAnswer& lone) {
    ASSERT_LE(tokens.size(), lone.tokens.size());
    EXPECT_TRUE(std::equal(tokens.begin(), tokens.end(), lone.tokens.begin()));
  }

  void Cancel(const v1::GenerateRequest& request, const LoneAnswer& lone, size_t after) {
    grpc::ClientContext context;
    const auto stream = cluster_.inference().Generate(&context, request);
    std::vector<uint32_t> tokens;
    int ends = 0;
    v1::GenerateEvent event;
    while (stream->Read(&event)) {
      for (const v1::Token& token : event.tokens().tokens()) tokens.push_back(token.id());
      ends += event.has_finished() ? 1 : 0;
      if (tokens.size() >= after) context.TryCancel();
    }
    const grpc::Status status = stream->Finish();
    EXPECT_TRUE(status.ok() || status.error_code() == grpc::StatusCode::CANCELLED)
        << status.error_message();
    EXPECT_LE(ends, 1);
    ExpectBeginning(tokens, lone);
    ++counts_.cancelled;
  }

  void TimeOut(const v1::GenerateRequest& request, const LoneAnswer& lone, absl::Duration time) {
    const Answer answer = cluster_.Generate(request, time);
    EXPECT_TRUE(answer.status.ok() ||
                answer.status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED)
        << answer.status.error_message();
    ExpectBeginning(answer.tokens, lone);
    ++counts_.timed_out;
  }

  // The connection goes, not only the call.
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
  for (auto& [pid, resident] : bytes) resident = ResidentBytes(pid);
  return bytes;
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

TEST_P(LoadSoakTest, EveryRequestEndsOnceAndNothingIsLeft) {
  const std::vector<LoneAnswer> lone = MakeLoneAnswers(kVariants, 1, 64);
  // So few pages that sequences give way to each other, by swapping and by computing again.
  Cluster cluster({.layout = GetParam().layout,
                   .coordinator_flags = {"--kv-memory=20MiB", "--swap-memory=4MiB",
                                         "--max-sequences=24", "--context-length=512"}});
  for (size_t i = 0; i < GetParam().jobs.size(); ++i) {
    cluster.StartJob(GetParam().jobs[i]);
    ASSERT_TRUE(cluster.WaitForServing(static_cast<int>(i) + 1));
  }
  Load load(cluster, lone);
  load.Run(g_requests / 2);
  const std::map<pid_t, int64_t> before = ResidentBytesOfAll(cluster);
  load.Run(g_requests - g_requests / 2);
  EXPECT_TRUE(cluster.WaitForStatus(NothingIsLeft, absl::Seconds(10)))
      << cluster.Status().DebugString();
  for (const auto& [pid, resident] : ResidentBytesOfAll(cluster)) {
    EXPECT_LE(resident, before.at(pid) + kMaxGrowthBytes) << pid;
  }
  const Counts& counts = load.counts();
  EXPECT_EQ(counts.answered + counts.cancelled + counts.timed_out + counts.hung_up, g_requests);
  int64_t preemptions = 0, cached = 0;
  const cluster::v1::ClusterStatus status = cluster.Status();
  for (const auto& job : status.jobs()) {
    for (const auto& replica : job.replicas()) {
      preemptions += replica.load().preemptions_swapped() + replica.load().preemptions_recomputed();
      cached += replica.load().cached_tokens();
    }
  }
  EXPECT_GT(preemptions, 0);
  EXPECT_GT(cached, 0);
  std::printf(
      "%s: %d answered, %d cancelled, %d timed out, %d hung up; %ld preemptions, %ld "
      "prompt tokens from the cache\n",
      GetParam().name.c_str(), counts.answered.load(), counts.cancelled.load(),
      counts.timed_out.load(), counts.hung_up.load(), static_cast<long>(preemptions),
      static_cast<long>(cached));
}

INSTANTIATE_TEST_SUITE_P(Layouts, LoadSoakTest,
                         ::testing::Values(SoakCase{"tp2_pp2", "tp=2,pp=2", {4}},
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
