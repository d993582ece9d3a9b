// The hosts of a job, as planners see them: what they consist of, and what they do in a second, as
// it was measured now or before, or else as it is assumed.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "parallel/comm/mpi/mpi_runtime.h"
#include "topology/topology.h"
#include "worker/device.h"
#include "worker/device_comm.h"
#include "worker/probe/device_lock.h"

namespace skein::worker {

enum class Probing : uint8_t {
  kNever,    // what was measured before counts, or assumptions
  kWhenNew,  // where nothing was measured before
  kAlways,
};

struct JobTopologyOptions {
  RankDevice device;  // this rank's
  DeviceComm device_comm = DeviceComm::kAuto;
  Probing probing = Probing::kWhenNew;
  std::string folder;        // where measurements are kept; empty: nowhere
  std::string figures_file;  // proto/convert/figure_files.h; where it is, nobody measures
  std::function<void(std::string_view)> progress;  // may be null
  std::string cores_folder = "/dev/shm";           // that stands for the host's cores (DeviceLock)
  absl::Duration patience = absl::Seconds(30);     // for measurements of another job to end
};

struct JobTopology {
  // This rank's host alone, without GPUs where ranks compute on cores, else with its ranks' GPUs in
  // the order of the ranks.
  topology::Topology topology;
  int threads = 1;        // of each rank of the host, on CPUs
  bool measured = false;  // now, on all ranks
  std::string why_not;    // it was not measured now
  std::string says;       // where the figures come from, for the log
  DeviceLock lock;        // of who serves; while it is there, nobody measures this device
};

// A call of all ranks, which compute on devices of one kind and have a file of figures all or none.
// It measures, where each rank is to, unless somebody serves on one of the devices or several ranks
// share one. Measurements that fail are no error: `says` tells. A file of figures
// that cannot be read, or that lacks what is here, is one, the same on all ranks.
absl::StatusOr<JobTopology> FindJobTopology(comm::MpiRuntime& mpi,
                                            const JobTopologyOptions& options);

// The hosts of all ranks, on rank 0. A call of all ranks.
absl::StatusOr<topology::Topology> GatherHosts(comm::MpiRuntime& mpi,
                                               const topology::Topology& mine);

// A rank's GPU, as it tells its host's other ranks.
struct RankGpu {
  std::string model;
  std::string pci_address;
  int64_t memory_bytes = 0;
};
// `host` with the GPUs of its ranks in the place of all that it has. Two ranks of one GPU, and GPUs
// that were not found, are taken to be connected by a PCIe switch or a host bridge. Pure.
void KeepGpusOfRanks(const std::vector<RankGpu>& ranks, topology::Host& host);

}  // namespace skein::worker
