#include "tests/gpu/gpu_job.h"

#include <stdlib.h>

#include <cstdint>
#include <filesystem>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "tests/cluster/running_answer.h"
#include "tests/fault/faults.h"

namespace skein::testing {

std::vector<std::string> SmallSteps(const std::vector<std::string>& more) {
  std::vector<std::string> flags = {"--max-num-seqs=4", "--max-num-batched-tokens=64"};
  flags.insert(flags.end(), more.begin(), more.end());
  return flags;
}

std::vector<std::string> FaultyDriver(const std::string& fault) {
  const std::string library = FindProgram("tests/gpu/faulty_driver.so");
  return {"-x", "LD_PRELOAD=" + std::filesystem::absolute(library).string(), "-x",
          "SKEIN_FAULTY_DRIVER=" + fault};
}

Process& StartPair(Cluster& cluster, const std::vector<std::string>& second,
                   const std::string& comm, const std::vector<std::string>& flags) {
  setenv("NCCL_P2P_DISABLE", "1", 1);
  setenv("NCCL_SHM_DISABLE", "1", 1);
  setenv("NCCL_NET", "Socket", 1);
  setenv("NCCL_SOCKET_IFNAME", "lo", 1);
  std::vector<std::string> own = {"--device=cuda", "--oversubscribe-devices",
                                  "--device-comm=" + comm};
  own.insert(own.end(), flags.begin(), flags.end());
  std::vector<std::string> all = own;
  for (const char* word : {":", "-np", "1", "-x", "NCCL_HOSTID=1"}) all.emplace_back(word);
  all.insert(all.end(), second.begin(), second.end());
  all.push_back(FindProgram("worker/worker"));
  all.push_back("--coordinator=" + cluster.address());
  all.insert(all.end(), own.begin(), own.end());
  return cluster.StartJob(1, all);
}

v1::GenerateRequest LongRequest() {
  v1::GenerateRequest request = GreedyRequest("ROMEO:", 80);
  request.mutable_sampling()->set_ignore_eos(true);
  return request;
}

bool WaitForTokens(Cluster& cluster) {
  return cluster.WaitForStatus(
      [](const cluster::v1::ClusterStatus& status) {
        int64_t tokens = 0;
        for (const auto& job : status.jobs()) {
          for (const auto& replica : job.replicas()) tokens += replica.tokens_total();
        }
        return tokens >= 10;
      },
      absl::Seconds(30));
}

void ExpectEnds(Process& job, const cluster::v1::JobStatus& lost) {
  const absl::Time deadline = absl::Now() + kEnd;
  const std::optional<int> status = job.Wait(kEnd);
  ASSERT_TRUE(status.has_value()) << "mpirun still runs";
  EXPECT_NE(*status, 0);
  // mpirun does not wait for ranks that it has killed.
  for (const auto& rank : lost.ranks()) {
    EXPECT_TRUE(WaitUntil(deadline - absl::Now(), [&] { return !IsAlive(rank.pid()); }))
        << "rank " << rank.rank() << " still runs";
  }
}

std::string WhoIsLost(const cluster::v1::JobStatus& job, int rank) {
  return absl::StrCat("rank ", rank, " on ", HostName(), " (pid ", job.ranks(rank).pid(),
                      ") is lost: ");
}

}  // namespace skein::testing
