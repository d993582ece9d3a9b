// NVLinks between the GPUs of a node, where a file may leave them out: that is asked, not guessed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "topology/interconnect.h"

namespace skein::topology {

inline constexpr int32_t kMostNvlinks = 1000;  // of a GPU; those of today have 18

// What a reader found: links between two GPUs, [gpus][gpus], symmetric; nothing: left out.
using NvlinksBetween = std::vector<std::vector<std::optional<int32_t>>>;

// Sets the connections of GPUs that have NVLinks. What `between` leaves out is `nvlinks`, and where
// that is not given, either, the error is FailedPrecondition with left_out(i, j), "line 7: nothing
// tells the NVLinks of GPU0", and what to do. InvalidArgument for `nvlinks` that is no number of 0
// to kMostNvlinks, or that contradicts a file which leaves nothing out.
absl::Status ConnectByNvlinks(const NvlinksBetween& between, std::optional<int32_t> nvlinks,
                              const std::function<std::string(size_t, size_t)>& left_out,
                              Interconnect& into);

}  // namespace skein::topology
