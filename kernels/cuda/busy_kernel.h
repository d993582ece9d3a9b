// For tests: a kernel that keeps a multiprocessor to itself.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "base/stream.h"

namespace skein::kernels::cuda {

// Of memory that the host and the device see.
struct BusyWords {
  volatile int32_t begun;  // becomes 1
  volatile int32_t over;   // the kernel ends when this is 1
};

// Enqueues one block that takes all of the shared memory that a block may have, and waits until it
// runs.
absl::Status BeginBusy(BusyWords* words, Stream stream);

}  // namespace skein::kernels::cuda
