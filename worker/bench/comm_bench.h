// What exchanges between ranks cost, and copies between a GPU and its host.
#pragma once

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "base/device_kind.h"

namespace skein::worker {

struct CommBenchOptions {
  std::optional<DeviceKind> device;    // none: GPUs where there are some
  bool oversubscribe_devices = false;  // DeviceChoice
  std::string json_file;               // of rank 0; "": none
};

// Started by mpirun: all of its ranks form one group, over what workers use, and sum arrays of 8
// KiB to 64 MiB (all-reduce); ranks 0 and 1 send such to and fro (hop). What a row carries: for a
// sum the bytes that a rank sends at least, 2 (n - 1) / n of the array's; for a hop the array's. On
// CPUs the ceiling is what one thread reads from memory.
//
// On GPUs the arrays lie in their memory. In graphs, by the devices' clocks: sums and hops over
// NCCL, and sums over peer memory, held against copies from each rank's device to the next one's,
// by all at once. By the host's clock: sums and hops by way of the hosts' memory, which have no
// ceiling, and rank 0's copies of pinned memory. Ranks that share a GPU take turns on it, and their
// NCCL goes over sockets; a line says so.
//
// Rank 0 prints. InvalidArgument for one rank without a GPU. After an error MPI is not finalized:
// the process is to exit.
absl::Status RunCommBench(const CommBenchOptions& options);

}  // namespace skein::worker
