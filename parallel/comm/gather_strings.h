// Strings of different sizes from all ranks, for setting up: addresses, host names, reports.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "parallel/comm/communicator.h"

namespace skein::comm {

// Every rank's `text`, in rank order. A collective call of all ranks: two all-gathers, as wide as
// the longest text.
absl::StatusOr<std::vector<std::string>> GatherStrings(Communicator& group, std::string_view text);

}  // namespace skein::comm
