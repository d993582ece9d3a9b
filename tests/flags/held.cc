#include "tests/flags/held.h"

#include <signal.h>

#include "absl/time/time.h"

namespace skein::testing {

StoppedRank::StoppedRank(Cluster& cluster, int rank)
    : pid_(cluster.ServingJob(0).ranks(rank).pid()) {
  kill(pid_, SIGSTOP);
}

void StoppedRank::Continue() { kill(pid_, SIGCONT); }

void StoppedRank::Kill() { kill(pid_, SIGKILL); }

std::future<Answer> AskInBackground(Cluster& cluster, const v1::GenerateRequest& request) {
  return std::async(std::launch::async, [&cluster, request] { return cluster.Generate(request); });
}

bool WaitForRequests(Cluster& cluster, int running, int queued) {
  return cluster.WaitForStatus(
      [=](const cluster::v1::ClusterStatus& status) {
        return status.running_requests() == running && status.queued_requests() == queued;
      },
      absl::Seconds(30));
}

}  // namespace skein::testing
