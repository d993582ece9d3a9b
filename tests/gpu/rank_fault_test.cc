// Ranks with a GPU that die or stop inside a step whose sums a captured graph makes: real jobs over
// NCCL, of two ranks that share one GPU and pass for two hosts.
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <future>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/test_util.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/device_testing.h"
#include "tests/cluster/cluster.h"
#include "tests/cluster/running_answer.h"
#include "topology/host/nvml.h"

namespace skein::testing {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;

constexpr absl::Duration kBound = absl::Seconds(5);  // that is promised for a lost rank
constexpr absl::Duration kEnd = absl::Seconds(10);   // of all its job's processes
// On a GPU that ranks share a step takes some 80 ms, since their kernels take turns.
constexpr int kTokens = 150;

// NCCL takes ranks of unlike host ids for ranks of two hosts.
Process& StartPair(Cluster& cluster) {
  const std::vector<std::string> flags = {"--device=cuda", "--oversubscribe-devices",
                                          "--device-comm=nccl"};
  std::vector<std::string> all = flags;
  for (const char* word : {":", "-np", "1", "-x", "NCCL_HOSTID=1"}) all.push_back(word);
  all.push_back(FindProgram("worker/worker"));
  all.push_back("--coordinator=" + cluster.address());
  all.insert(all.end(), flags.begin(), flags.end());
  return cluster.StartJob(1, all);
}

int64_t Tokens(const cluster::v1::ClusterStatus& status) {
  int64_t tokens = 0;
  for (const auto& job : status.jobs()) {
    for (const auto& replica : job.replicas()) tokens += replica.tokens_total();
  }
  return tokens;
}

struct Fault {
  std::string name;
  int signal;
  std::string says;  // of rank 1
};

class RankFaultTest : public ::testing::TestWithParam<Fault> {
 protected:
  void SetUp() override {
    SKEIN_NEED_GPU();
    setenv("NCCL_P2P_DISABLE", "1", 1);
    setenv("NCCL_SHM_DISABLE", "1", 1);
    setenv("NCCL_NET", "Socket", 1);
    setenv("NCCL_SOCKET_IFNAME", "lo", 1);
  }
};

TEST_P(RankFaultTest, IsNamedAndItsAnswerGoesOnWithTheNextJob) {
  Cluster cluster({.layout = "tp=2",
                   // Little to warm up: few graphs, few sizes.
                   .coordinator_flags = {"--max-num-seqs=4", "--max-num-batched-tokens=64"}});
  Process& job = StartPair(cluster);
  ASSERT_TRUE(cluster.WaitForServing(1)) << job.Output();
  EXPECT_THAT(job.Output(), HasSubstr("from GPU to GPU over NCCL"));
  const cluster::v1::JobStatus lost = cluster.ServingJob(0);
  ASSERT_EQ(lost.ranks_size(), 2);
  v1::GenerateRequest request = GreedyRequest("ROMEO:", kTokens);
  request.mutable_sampling()->set_ignore_eos(true);
  std::future<Answer> answer =
      std::async(std::launch::async, [&] { return cluster.Generate(request); });
  ASSERT_TRUE(cluster.WaitForStatus([](const auto& status) { return Tokens(status) >= 10; },
                                    absl::Seconds(30)));
  const absl::Time fault = absl::Now();
  ASSERT_EQ(kill(lost.ranks(1).pid(), GetParam().signal), 0);
  const std::string who = absl::StrCat("rank 1 on ", HostName(), " (pid ", lost.ranks(1).pid(),
                                       ") is lost: ", GetParam().says);
  EXPECT_TRUE(cluster.coordinator().WaitForOutput(who, kBound)) << cluster.coordinator().Output();
  std::printf("named after %s\n", absl::FormatDuration(absl::Now() - fault).c_str());
  const std::optional<int> status = job.Wait(kEnd);
  ASSERT_TRUE(status.has_value()) << "mpirun still runs";
  EXPECT_NE(*status, 0);
  for (const auto& rank : lost.ranks()) EXPECT_FALSE(IsAlive(rank.pid())) << rank.rank();
  if (GetParam().signal == SIGSTOP) {
    // The other one's graph has the sums of the step.
    EXPECT_THAT(cluster.coordinator().Output(),
                ContainsRegex("rank 0 has waited in all-reduce [0-9]+ of 'tp of replica 0, stage "
                              "0' \\(step [0-9]+\\) for [0-9.]+ s"));
  }
  Process& next = StartPair(cluster);
  ASSERT_TRUE(cluster.WaitForServing(1)) << next.Output();
  const Answer got = answer.get();
  EXPECT_TRUE(got.status.ok()) << got.status.error_message();
  EXPECT_EQ(got.tokens.size(), kTokens);
  EXPECT_EQ(cluster.Status().migrations(), 1);
}

INSTANTIATE_TEST_SUITE_P(Signals, RankFaultTest,
                         ::testing::Values(Fault{"Kill", SIGKILL, ""},
                                           Fault{"Stop", SIGSTOP, "it has been silent"}),
                         [](const auto& info) { return info.param.name; });

// topology/host/nvml_test's library pretends; this is the real one.
TEST(NvmlTest, NamesThisProcessAndWhatItHas) {
  SKEIN_NEED_GPU();
  SKEIN_ASSERT_OK_AND_ASSIGN(const std::vector<std::string> uuids, kernels::ListCudaDevices());
  SKEIN_ASSERT_OK(kernels::DescribeCudaDevice(0).status());
  SKEIN_ASSERT_OK_AND_ASSIGN(const topology::GpuState before, topology::AskNvml(uuids.front()));
  constexpr int64_t kTaken = int64_t{3} << 30;
  const kernels::cuda::DeviceBytes taken(kTaken);
  SKEIN_ASSERT_OK_AND_ASSIGN(const topology::GpuState after, topology::AskNvml(uuids.front()));
  std::printf("%s: %s\n", after.uuid.c_str(), topology::FormatGpuUsers(after).c_str());
  EXPECT_EQ(after.uuid.substr(0, 4), after.mig ? "MIG-" : "GPU-");
  EXPECT_NEAR(static_cast<double>(before.free_bytes - after.free_bytes), kTaken, kTaken / 100.0);
  const auto own = std::find_if(after.processes.begin(), after.processes.end(),
                                [](const auto& process) { return process.pid == getpid(); });
  if (own == after.processes.end()) GTEST_SKIP() << "NVML numbers processes as another namespace";
  EXPECT_EQ(own->name, "rank_fault_test");
  EXPECT_GT(own->bytes, kTaken);
}

}  // namespace
}  // namespace skein::testing
