// Ranks with a GPU that die or stop, or whose GPU fails, inside a step whose sums a captured graph
// or a persistent kernel makes: real jobs over NCCL, or over peer memory, of two ranks that have a
// GPU each, or share one, and pass for two hosts. Errors that no test can bring about are injected.
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <future>
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
#include "tests/gpu/gpu_job.h"
#include "topology/host/nvml.h"

namespace skein::testing {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;

struct Fault {
  std::string name;
  int signal = 0;
  std::string driver;  // of faulty_driver.cc
  std::string says;    // of rank 1
  bool persistent = false;
};

class RankFaultTest : public ::testing::TestWithParam<Fault> {
 protected:
  void SetUp() override { SKEIN_NEED_GPU(); }
};

// Looks at the coordinator's output until it is so.
bool WaitForRegex(Cluster& cluster, const std::string& regex, absl::Duration timeout) {
  const absl::Time deadline = absl::Now() + timeout;
  while (!::testing::Matches(ContainsRegex(regex))(cluster.coordinator().Output())) {
    if (absl::Now() > deadline) return false;
    absl::SleepFor(absl::Milliseconds(20));
  }
  return true;
}

TEST_P(RankFaultTest, IsNamedAndItsAnswerGoesOnWithTheNextJob) {
  const Fault& fault = GetParam();
  Cluster cluster({.layout = "tp=2", .coordinator_flags = SmallSteps()});
  const std::string now = cluster.scratch() + "/now";
  const auto start = [&](const std::vector<std::string>& second) -> Process& {
    return fault.persistent ? StartPair(cluster, second, "peers", {"--decode=persistent"})
                            : StartPair(cluster, second);
  };
  Process& job = start(FaultyDriver((fault.driver.empty() ? "slow" : fault.driver) + ":" + now));
  ASSERT_TRUE(cluster.WaitForServing(1)) << job.Output();
  EXPECT_THAT(job.Output(), HasSubstr(fault.persistent ? "are decoded by one kernel a step"
                                                       : "from GPU to GPU over NCCL"));
  const cluster::v1::JobStatus lost = cluster.ServingJob(0);
  ASSERT_EQ(lost.ranks_size(), 2);
  const v1::GenerateRequest request = LongRequest();
  std::future<Answer> answer =
      std::async(std::launch::async, [&] { return cluster.Generate(request); });
  ASSERT_TRUE(WaitForTokens(cluster));
  const absl::Time begin = absl::Now();
  if (fault.driver.empty()) {
    ASSERT_EQ(kill(lost.ranks(1).pid(), fault.signal), 0);
  } else {
    std::ofstream(now).flush();
  }
  const std::string who =
      absl::StrCat("rank 1 on ", HostName(), " \\(pid ", lost.ranks(1).pid(), "\\) is lost: ");
  EXPECT_TRUE(WaitForRegex(cluster, who + fault.says, kNamed)) << cluster.coordinator().Output();
  std::printf("named after %s\n", absl::FormatDuration(absl::Now() - begin).c_str());
  ExpectEnds(job, lost);
  if (fault.signal == SIGSTOP) {
    // The other one's graph, or kernel, has the sums of the step.
    EXPECT_THAT(cluster.coordinator().Output(),
                ContainsRegex("rank 0 has waited in all-reduce [0-9]+ of 'tp of replica 0, stage "
                              "0' \\(step [0-9]+\\) for [0-9.]+ s"));
  }
  Process& next = start({});
  ASSERT_TRUE(cluster.WaitForServing(1)) << next.Output();
  const Answer got = answer.get();
  EXPECT_TRUE(got.status.ok()) << got.status.error_message();
  EXPECT_EQ(got.tokens.size(), request.max_tokens());
  EXPECT_EQ(cluster.Status().migrations(), 1);
}

INSTANTIATE_TEST_SUITE_P(
    Signals, RankFaultTest,
    ::testing::Values(Fault{.name = "Kill", .signal = SIGKILL},
                      Fault{.name = "Stop", .signal = SIGSTOP, .says = "it has been silent"},
                      Fault{.name = "KillInOneKernel", .signal = SIGKILL, .persistent = true},
                      Fault{.name = "StopInOneKernel",
                            .signal = SIGSTOP,
                            .says = "it has been silent",
                            .persistent = true}),
    [](const auto& info) { return info.param.name; });

// The rank itself names step and operation, mostly within half a second.
INSTANTIATE_TEST_SUITE_P(
    Driver, RankFaultTest,
    ::testing::Values(Fault{.name = "IllegalAddress",
                            .driver = "illegal-address",
                            .says = ".*step [0-9]+: .*cuda[A-Za-z]*: cudaErrorIllegalAddress"},
                      Fault{.name = "Trap",
                            .driver = "trap",
                            // Driver 580 tells it, or never answers again, on any thread.
                            .says = ".*step [0-9]+: .*(cuda[A-Za-z]*: cudaErrorLaunchFailure|the "
                                    "device's driver has not answered for 3s)"},
                      Fault{.name = "Ecc",
                            .driver = "ecc",
                            .says = ".*step [0-9]+: .*cuda[A-Za-z]*: cudaErrorECCUncorrectable"}),
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
