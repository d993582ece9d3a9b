// Measures the hosts of a job: its ranks' devices and the ways between them.
#pragma once

#include <functional>
#include <string_view>

#include "absl/status/statusor.h"
#include "parallel/comm/mpi/mpi_runtime.h"
#include "topology/topology.h"
#include "worker/device.h"
#include "worker/device_comm.h"

namespace skein::worker {

struct HostProbeOptions {
  RankDevice device;  // this rank's
  DeviceComm device_comm = DeviceComm::kAuto;
  int threads = 1;                                 // of this rank, on CPUs
  std::function<void(std::string_view)> progress;  // told what is measured next; may be null
};

// Fills in what `topology`, this rank's host alone, lacks: rates of its cores or, where ranks
// compute on GPUs, of these; links, exchanges, and the fabric where the job has several hosts. A
// call of all ranks, one to a device. Takes some 2 to 5 s on CPUs, on GPUs some 5 s and 2 s a pair;
// 0.5 GiB of memory a rank, or 10 GiB of a GPU. Errors are those of back ends and exchanges.
absl::Status ProbeHosts(comm::MpiRuntime& mpi, const HostProbeOptions& options,
                        topology::Topology& topology);

}  // namespace skein::worker
