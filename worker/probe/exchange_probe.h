// Measures what ranks take to exchange data, over the groups and by the operations that serve.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "parallel/comm/mpi/mpi_runtime.h"
#include "topology/rates.h"
#include "worker/device.h"
#include "worker/device_comm.h"
#include "worker/probe/host_links.h"

namespace skein::worker {

struct ExchangeProbeOptions {
  RankDevice device;  // this rank's
  DeviceComm device_comm = DeviceComm::kAuto;
  int32_t cores = 0;  // of this host, where ranks compute on them
  // Told what is measured next; may be null.
  std::function<void(std::string_view)> progress;
};

struct ProbedExchanges {
  // Within this host, by groups of 2, 4, 8, ... ranks, and of as many as leave none of some host
  // over, as far as it has so many: of all groups at once and, where it has fewer cores than ranks,
  // of one `alone`; and `across`: sums of the groups over hosts (Places::GroupsAcross), and
  // messages of the slowest pair of hosts.
  std::vector<topology::ExchangeCurve> curves;
  std::vector<PairRate> pairs;  // of this host
  bool crowded = false;         // some host has fewer cores than ranks
};

// A call of all ranks of a job; hosts measure at the same time. What a group of one host takes is
// what its first rank saw. Empty where the job has one rank. Errors are those of the groups' calls.
absl::StatusOr<ProbedExchanges> ProbeExchanges(comm::MpiRuntime& mpi,
                                               const ExchangeProbeOptions& options);

// What each rank has, by rank, as JSON; empty of ranks that had no part. A call of all ranks.
absl::StatusOr<std::vector<std::string>> GatherCurves(comm::MpiRuntime& mpi,
                                                      const topology::ExchangeCurve& mine);
absl::StatusOr<topology::ExchangeCurve> ParseCurve(const std::string& json);

}  // namespace skein::worker
