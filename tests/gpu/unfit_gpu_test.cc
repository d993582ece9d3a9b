// GPUs, drivers and NCCLs that a worker cannot use, or not as it would: what faulty_driver.cc makes
// of the real ones. Each is named before anything is loaded; who may do without it serves.
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "base/test_util.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cuda/device_testing.h"
#include "tests/cluster/cluster.h"
#include "tests/gpu/gpu_job.h"

namespace skein::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

struct Unfit {
  std::string name;   // of the case
  std::string fault;  // of faulty_driver.cc
  int ranks;
  std::vector<std::string> needs;  // flags of a worker that must have it
  std::string says;
  std::vector<std::string> does_without;  // flags of one that serves all the same; none: no worker
  std::string tells;                      // of that one
};

class UnfitGpuTest : public ::testing::TestWithParam<Unfit> {
 protected:
  void SetUp() override { SKEIN_NEED_GPU(); }
};

TEST_P(UnfitGpuTest, IsNamedBeforeLoading) {
  const Unfit& unfit = GetParam();
  Cluster cluster(
      {.layout = unfit.ranks == 2 ? "tp=2" : "tp=1", .coordinator_flags = SmallSteps()});
  const std::vector<std::string> faulty = FaultyDriver(unfit.fault);
  Process& refused = cluster.StartJob(unfit.ranks, unfit.needs, "", faulty);
  const std::optional<int> status = refused.Wait(absl::Seconds(30));
  ASSERT_TRUE(status.has_value()) << "it serves:\n" << refused.Output();
  EXPECT_NE(*status, 0);
  EXPECT_THAT(refused.Output(), HasSubstr(unfit.says));
  EXPECT_THAT(refused.Output(), Not(HasSubstr("| loaded ")));
  if (unfit.does_without.empty()) return;
  Process& serves = cluster.StartJob(unfit.ranks, unfit.does_without, "", faulty);
  ASSERT_TRUE(cluster.WaitForServing(1)) << serves.Output();
  EXPECT_THAT(serves.Output(), HasSubstr(unfit.tells));
  EXPECT_TRUE(cluster.Generate(GreedyRequest("ROMEO:", 5)).status.ok());
}

const std::string kByHost =
    "activations go from GPU to GPU by way of the hosts' memory, which is "
    "slow: ";

INSTANTIATE_TEST_SUITE_P(
    Gpus, UnfitGpuTest,
    ::testing::Values(
        Unfit{.name = "OldDriver",
              .fault = "old-driver",
              .ranks = 1,
              .needs = {"--device=cuda"},
              .says = "the GPU's driver supports CUDA 12.4; this was built for 13.",
              .does_without = {"--log-level=info"},
              .tells = "computing on CPUs, no GPU: the GPU's driver supports CUDA 12.4"},
        Unfit{.name = "OldGpu",
              .fault = "old-gpu",
              .ranks = 1,
              .needs = {"--device=cuda"},
              .says = " of compute capability 7.0 with ",
              .does_without = {"--device=cpu"}},
        Unfit{.name = "Slice",
              .fault = "slice",
              .ranks = 2,
              .needs = {"--device=cuda", "--oversubscribe-devices", "--device-comm=nccl"},
              .says = "--device-comm=nccl, but rank 0: NCCL reaches no slice of a GPU (NVIDIA H200 "
                      "MIG 1g.18gb, MIG-",
              .does_without = {"--device=cuda", "--oversubscribe-devices"},
              .tells = kByHost + "rank 0: NCCL reaches no slice of a GPU (NVIDIA H200 MIG "
                                 "1g.18gb, MIG-"},
        Unfit{.name = "OldNccl",
              .fault = "old-nccl",
              .ranks = 2,
              .needs = {"--device=cuda", "--oversubscribe-devices", "--device-comm=nccl"},
              .says = "--device-comm=nccl, but rank 0: NCCL is of version 2.27.7, older than this "
                      "was built for, 2.28",
              .does_without = {"--device=cuda", "--oversubscribe-devices"},
              .tells = kByHost + "rank 0: NCCL is of version 2.27.7"}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace skein::testing
