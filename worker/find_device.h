// What a rank computes on, as the ranks of its host share the GPUs.
#pragma once

#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/device_kind.h"
#include "parallel/comm/communicator.h"
#include "parallel/comm/mpi/mpi_runtime.h"
#include "worker/device.h"

namespace skein::worker {

// A call of all ranks, which tell each other of the GPUs that they see. `asked` and `oversubscribe`
// as DeviceChoice's; errors as ChooseDevice's.
absl::StatusOr<RankDevice> FindDevice(comm::MpiRuntime& mpi, std::optional<DeviceKind> asked,
                                      bool oversubscribe);

// FailedPrecondition, the same on all ranks, where some of `world` compute on GPUs and others on
// CPUs: they would take different ways from here on. A call of all its ranks.
absl::Status AgreeOnKind(comm::Communicator& world, const RankDevice& device);

}  // namespace skein::worker
