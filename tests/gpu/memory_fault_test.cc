// A GPU whose memory another process has: before a job comes, between its plan and its load, in the
// middle of its load, and while it serves.
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
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
using ::testing::Not;

constexpr int64_t kMiB = int64_t{1} << 20;
constexpr int64_t kGiB = int64_t{1} << 30;
constexpr absl::Duration kStart = absl::Seconds(30);

class MemoryFaultTest : public ::testing::Test {
 protected:
  void SetUp() override {
    SKEIN_NEED_GPU();
    const kernels::cuda::DeviceBytes context(1);  // taken from here on
  }

  // This process takes all of the GPU's memory but so much.
  void Take(int64_t left) {
    SKEIN_ASSERT_OK_AND_ASSIGN(const int64_t free, kernels::cuda::FreeMemoryBytes());
    ASSERT_GT(free, left);
    taken_.emplace(free - left);
  }
  void GiveBack() { taken_.reset(); }

  // That this process has it, where NVML knows its number and name.
  void ExpectNamed(const std::string& output) {
    EXPECT_THAT(output, ContainsRegex("[0-9.]+ [MG]iB of [0-9.]+ GiB are free; "));
    SKEIN_ASSERT_OK_AND_ASSIGN(const std::vector<std::string> uuids, kernels::ListCudaDevices());
    SKEIN_ASSERT_OK_AND_ASSIGN(const topology::GpuState gpu, topology::AskNvml(uuids.front()));
    const bool known = std::any_of(gpu.processes.begin(), gpu.processes.end(),
                                   [](const auto& process) { return process.pid == getpid(); });
    if (known) EXPECT_THAT(output, HasSubstr(absl::StrCat("(pid ", getpid(), ") has ")));
  }

  static Process& Start(Cluster& cluster, const std::vector<std::string>& launch = {}) {
    return cluster.StartJob(1, {"--device=cuda"}, "", launch);
  }
  static void ExpectRefused(Process& job) {
    const std::optional<int> status = job.Wait(kStart);
    ASSERT_TRUE(status.has_value()) << "it serves:\n" << job.Output();
    EXPECT_NE(*status, 0);
  }

  std::optional<kernels::cuda::DeviceBytes> taken_;
};

TEST_F(MemoryFaultTest, ALackIsToldBeforeAnythingIsLoadedAndServesOnceItIsOver) {
  Cluster cluster({.layout = "tp=1", .coordinator_flags = SmallSteps({"--kv-memory=16GiB"})});
  Take(8 * kGiB);
  Process& job = Start(cluster);
  ExpectRefused(job);
  EXPECT_THAT(job.Output(),
              ContainsRegex("the device of rank 0 \\(.*\\) would need [0-9.]+ "
                            "GiB for .* and has [67]\\.[0-9]+ GiB to use .*; [0-9]+ pages "
                            "would fit, [0-9.]+ GiB per rank"));
  EXPECT_THAT(job.Output(), Not(HasSubstr("| loaded ")));
  ExpectNamed(job.Output());
  GiveBack();
  Process& next = Start(cluster);
  EXPECT_TRUE(cluster.WaitForServing(1)) << next.Output();
}

TEST_F(MemoryFaultTest, WhatGoesBetweenPlanAndLoadIsToldBeforeAnythingIsLoaded) {
  Cluster cluster({.layout = "tp=1", .coordinator_flags = SmallSteps({"--kv-memory=16GiB"})});
  const std::string taken = cluster.scratch() + "/taken";
  Process& job = Start(cluster, FaultyDriver("late-check:" + taken));
  ASSERT_TRUE(job.WaitForOutput("faulty driver: late-check waits", kStart)) << job.Output();
  Take(8 * kGiB);
  std::ofstream(taken).flush();
  ExpectRefused(job);
  EXPECT_THAT(job.Output(), ContainsRegex("the device has [78]\\.[0-9]+ GiB free and the plan "
                                          "needs .*; another process has taken memory since it "
                                          "was made; [0-9]+ pages of the plan's [0-9]+ would fit: "
                                          "--kv-memory=[0-9]+B"));
  EXPECT_THAT(job.Output(), Not(HasSubstr("| loaded ")));
  ExpectNamed(job.Output());
  EXPECT_TRUE(cluster.coordinator().WaitForOutput("another process has taken memory", kNamed));
}

TEST_F(MemoryFaultTest, WhatGoesWhileARankLoadsIsToldByTheAllocationThatFails) {
  Cluster cluster({.layout = "tp=1", .coordinator_flags = SmallSteps({"--kv-memory=16GiB"})});
  const std::string taken = cluster.scratch() + "/taken";
  Process& job = Start(cluster, FaultyDriver("late-load:" + taken));
  ASSERT_TRUE(job.WaitForOutput("faulty driver: late-load waits", kStart)) << job.Output();
  Take(kGiB);
  std::ofstream(taken).flush();
  ExpectRefused(job);
  EXPECT_THAT(job.Output(),
              ContainsRegex("no [0-9.]+ [MG]iB of the GPU's memory for [^:]*: [0-9.]+ [MG]iB of "
                            "[0-9.]+ GiB are free; as this rank reported, [0-9.]+ GiB of its GPU "
                            "were free for it, and now "));
  ExpectNamed(job.Output());
  EXPECT_TRUE(cluster.coordinator().WaitForOutput("of the GPU's memory for", kNamed));
}

// Steps take no memory: the prompts are of many sizes, the longest of several chunks.
TEST_F(MemoryFaultTest, AJobThatServesNeedsNoMore) {
  Cluster cluster(
      {.layout = "tp=1", .coordinator_flags = SmallSteps({"--kv-memory=1GiB", "--deterministic"})});
  Process& job = Start(cluster);
  ASSERT_TRUE(cluster.WaitForServing(1)) << job.Output();
  std::vector<v1::GenerateRequest> requests;
  for (const int words : {1, 2, 9, 70, 200}) {
    std::string prompt;
    for (int i = 0; i < words; ++i) absl::StrAppend(&prompt, "word ", i * words % 7, " ");
    requests.push_back(GreedyRequest(prompt, 40));
    requests.push_back(requests.back());
    requests.back().mutable_sampling()->set_temperature(0.8f);
    requests.back().mutable_sampling()->set_seed(words);
  }
  const std::vector<Answer> want = cluster.GenerateAll(requests);
  Take(256 * kMiB);
  const std::vector<Answer> got = cluster.GenerateAll(requests);
  for (size_t i = 0; i < requests.size(); ++i) {
    EXPECT_TRUE(got[i].status.ok()) << got[i].status.error_message();
    EXPECT_EQ(got[i].tokens, want[i].tokens) << i;
    EXPECT_FALSE(got[i].tokens.empty());
  }
  EXPECT_FALSE(job.Wait(absl::ZeroDuration()).has_value());
}

}  // namespace
}  // namespace skein::testing
