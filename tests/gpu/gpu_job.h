// Jobs of ranks with GPUs, which fault tests start: on a machine of one GPU, too.
#pragma once

#include <string>
#include <vector>

#include "absl/time/time.h"
#include "proto/cluster.pb.h"
#include "tests/cluster/cluster.h"

namespace skein::testing {

inline constexpr absl::Duration kNamed = absl::Seconds(5);  // as is promised for a lost rank
inline constexpr absl::Duration kEnd = absl::Seconds(10);   // of all its job's processes

// For coordinators: little to warm up, with few graphs of few sizes; and `more`.
std::vector<std::string> SmallSteps(const std::vector<std::string>& more = {"--kv-memory=1GiB"});

// mpirun's arguments that preload faulty_driver.cc with this fault.
std::vector<std::string> FaultyDriver(const std::string& fault);

// Two ranks that have a GPU each, or share one, and exchange over NCCL, which takes them for two
// hosts, or over `comm`. `second` are mpirun's arguments for rank 1.
Process& StartPair(Cluster& cluster, const std::vector<std::string>& second = {},
                   const std::string& comm = "nccl", const std::vector<std::string>& flags = {});

// Returns an answer's request that takes a second and more, where a rank's driver is a slow one.
v1::GenerateRequest LongRequest();
// Waits until some tokens of the first answer have come.
bool WaitForTokens(Cluster& cluster);

// mpirun and all ranks end within kEnd, and not as if nothing were wrong.
void ExpectEnds(Process& job, const cluster::v1::JobStatus& lost);

// "rank 1 on host (pid 12) is lost: "
std::string WhoIsLost(const cluster::v1::JobStatus& job, int rank);

}  // namespace skein::testing
