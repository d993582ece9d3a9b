// Groups of ranks that each have a GPU exchange over NCCL. libnccl.so.2 is opened at run time.
//
// Programs call it in every build; one without --config=cuda knows of no NCCL.
#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "base/device_events.h"
#include "parallel/comm/communicator.h"
#include "parallel/comm/device_transport.h"

namespace skein::comm {

// A variable that NCCL, or CUDA for it, reads when it starts.
struct NcclVariable {
  const char* name;
  const char* value;
};
// What a program sets before it starts anything else.
absl::Span<const NcclVariable> NcclEnvironment();

// Opens the library. Unimplemented where there is none, or this build knows of none;
// FailedPrecondition, with both versions, for one that is older than what this was built for, and,
// with what the loader says, for one that cannot be opened.
absl::Status OpenNccl();

// Makes a group's transport, named `self` in the others' errors ("rank 3 on node-b"), for what lies
// on `device`, each rank's own. A call of all ranks of `group`, over which they meet; sets its
// time-out. It sums F32, BF16 and F16, and keeps memory of the device, some 500 MiB for the first
// group and 90 MiB for each further one, and 616 MiB more for sums over NVLink. Its kernels have up
// to `most_blocks` blocks, which ranks give alike; 0: as many as NCCL takes. Errors name the ranks
// and their hosts. All ranks fail alike, and at once: with FailedPrecondition, where one was
// refused, and why; with DeadlineExceeded, where they have not met within `timeout`.
//
// Behind any error, of this or of what it made, a thread may wait in NCCL for good.
absl::StatusOr<std::unique_ptr<DeviceTransport>> MakeNcclTransport(
    Communicator& group, const std::string& self, std::shared_ptr<DeviceEvents> device,
    absl::Duration timeout, int most_blocks = 0);

}  // namespace skein::comm
