// A rank that never enters a sum over peer memory: real jobs, of two ranks that have a GPU each, or
// share one. That the kernel of the rank that waits ends before its process does is nccl_test's
// PeersTest.
#include <signal.h>

#include <cstdio>
#include <fstream>
#include <future>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/dtype.h"
#include "base/test_util.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cuda/device_testing.h"
#include "tests/cluster/cluster.h"
#include "tests/gpu/gpu_job.h"

namespace skein::testing {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;

constexpr absl::Duration kDeadline = absl::Seconds(4);

// A kernel that spun on would take turns with what this process does: of the 200 copies each would
// wait for its turn.
void ExpectGpuIsFree() {
  const std::vector<float> values(1024, 3.0f);
  const absl::Time begin = absl::Now();
  for (int i = 0; i < 200; ++i) {
    const kernels::cuda::DeviceArray<float> array(values);
    ASSERT_EQ(kernels::cuda::Decoded(DType::kF32, array), values);
  }
  const absl::Duration took = absl::Now() - begin;
  std::printf("200 copies took %s\n", absl::FormatDuration(took).c_str());
  EXPECT_LT(took, absl::Seconds(1));
}

// By how small batches are decoded.
class PeerFaultTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    SKEIN_NEED_GPU();
    const kernels::cuda::DeviceBytes context(1);
    cluster_.emplace(Cluster::Options{
        .layout = "tp=2",
        .coordinator_flags = SmallSteps({"--kv-memory=1GiB", "--replica-wait=0s"})});
    now_ = cluster_->scratch() + "/now";
    job_ =
        &StartPair(*cluster_, FaultyDriver("stuck:" + now_), "peers",
                   {"--step-timeout=" + absl::FormatDuration(kDeadline), "--decode=" + GetParam()});
    ASSERT_TRUE(cluster_->WaitForServing(1)) << job_->Output();
    EXPECT_THAT(job_->Output(), HasSubstr("go over peer memory, larger ones over NCCL"));
    if (GetParam() == "persistent") {
      EXPECT_THAT(job_->Output(), HasSubstr("are decoded by one kernel a step"));
    }
    lost_ = cluster_->ServingJob(0);
    answer_ = std::async(std::launch::async, [this] { return cluster_->Generate(LongRequest()); });
    ASSERT_TRUE(WaitForTokens(*cluster_));
  }
  void Stick() { std::ofstream(now_).flush(); }

  std::optional<Cluster> cluster_;
  std::string now_;
  Process* job_ = nullptr;
  cluster::v1::JobStatus lost_;
  std::future<Answer> answer_;
};

TEST_P(PeerFaultTest, ARankThatNeverEntersASumIsNamedWithItsOperationAndWhoWaits) {
  Stick();
  EXPECT_TRUE(cluster_->coordinator().WaitForOutput(WhoIsLost(lost_, 1), kDeadline + 2 * kNamed))
      << job_->Output();
  EXPECT_THAT(cluster_->coordinator().Output(),
              ContainsRegex("all-reduce [0-9]+ of 'tp of replica 0, stage 0' \\(step [0-9]+\\)"));
  EXPECT_THAT(cluster_->coordinator().Output(), ContainsRegex("rank 0 has waited in all-reduce"));
  ExpectEnds(*job_, lost_);
  EXPECT_THAT(answer_.get().error, HasSubstr(WhoIsLost(lost_, 1)));
  ExpectGpuIsFree();
}

// The coordinator hears nothing: the rank that waits gives up by itself.
TEST_P(PeerFaultTest, WhereNobodyHearsTheRankThatWaitsNamesTheOther) {
  cluster_->coordinator().Signal(SIGSTOP);
  Stick();
  EXPECT_TRUE(job_->WaitForOutput("this rank's device waits for rank 1 on ", absl::Seconds(20)))
      << job_->Output();
  EXPECT_THAT(job_->Output(),
              ContainsRegex("rank 0 .*all-reduce [0-9]+ of 'tp of replica 0, stage 0' \\(step "
                            "[0-9]+\\).* was not over within .*: this rank's device waits for rank "
                            "1 on [^ ]+ in sum [0-9]+ of step [0-9]+"));
  ExpectEnds(*job_, lost_);
  cluster_->coordinator().Signal(SIGCONT);
  answer_.wait();
  ExpectGpuIsFree();
}

INSTANTIATE_TEST_SUITE_P(Decode, PeerFaultTest, ::testing::Values("graph", "persistent"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace skein::testing
