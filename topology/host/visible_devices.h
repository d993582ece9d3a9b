// Which GPUs CUDA_VISIBLE_DEVICES leaves a process.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/types/span.h"

namespace skein::topology {

// Indices into `uuids` ("GPU-..."), in the order that `value` gives: numbers, or UUIDs of which the
// first characters are enough. As CUDA has it, the first entry says which of both they are; one
// that is wrong, or that several UUIDs begin with, hides itself and all behind it; one that comes
// twice hides everything; what stands behind a number's digits is ignored.
std::vector<int> VisibleDevices(std::string_view value, absl::Span<const std::string> uuids);

// The UUID of the slice of a GPU, "MIG-...", that `value` names first; empty for others. CUDA gives
// a process one slice and no more. The UUID is not completed: NVML finds a slice by all of it.
std::string VisibleSlice(std::string_view value);

}  // namespace skein::topology
