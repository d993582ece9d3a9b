// Why a GPU's memory does not suffice, although a plan counted on it.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "topology/host/nvml.h"

namespace skein::worker {

// Adds to a ResourceExhausted what was free when the rank reported, what is now, and who has the
// rest: `now` is NVML's answer, or why there is none. Returns any other status as it is.
absl::Status ExplainLack(const absl::Status& status, int64_t planned_bytes,
                         const absl::StatusOr<topology::GpuState>& now);

}  // namespace skein::worker
