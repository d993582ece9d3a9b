// What exchanges between the memories of GPUs cost in a graph, as steps have them.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "parallel/comm/communicator.h"

namespace skein::worker {

struct DeviceCommBenchOptions {
  int gpu = 0;       // CUDA's number
  std::string host;  // equal texts on ranks of one host
  absl::Duration timeout;
  // Of the rank, told in the order in which they come. `carried`: bytes that the rank sends at
  // least. The first row, where there is one, is the copy from each rank's device to the next
  // one's: the others' ceiling.
  struct Row {
    std::string name;
    int64_t message_bytes = 0;
    double carried = 0;
    double seconds = 0;
    int samples = 0;
    bool is_copy = false;
  };
  std::function<void(const Row&)> add;
  std::function<void(const std::string&)> note;  // why there are no such rows
};

// A call of all ranks of `group`, which has two or more, and exchanges by the host: copies between
// devices, sums over peer memory in one shot and in two, and sums and hops over NCCL. What cannot
// be is noted, and left out on all ranks. Errors are those of what is timed.
absl::Status TimeDeviceComm(comm::Communicator& group, const DeviceCommBenchOptions& options);

}  // namespace skein::worker
