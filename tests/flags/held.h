// Requests whose replica holds still, for as long as a test likes.
#pragma once

#include <sys/types.h>

#include <future>
#include <string>
#include <vector>

#include "tests/cluster/cluster.h"

namespace skein::testing {

// Its heartbeats stop, too: the coordinator's --heartbeat-timeout says how long that may last.
class StoppedRank {
 public:
  explicit StoppedRank(Cluster& cluster, int rank = 0);  // of the first job
  ~StoppedRank() { Continue(); }

  void Continue();
  void Kill();
  pid_t pid() const { return pid_; }

 private:
  const pid_t pid_;
};

// Sends a request that a replica, or the queue, then has, and returns at once.
std::future<Answer> AskInBackground(Cluster& cluster, const v1::GenerateRequest& request);

// Until the coordinator has so many requests at its replicas and in its queue.
bool WaitForRequests(Cluster& cluster, int running, int queued);

}  // namespace skein::testing
