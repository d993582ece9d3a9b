// Strings of different sizes from all ranks, for setting up: addresses, host names, reports.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "parallel/comm/communicator.h"

namespace skein::comm {

// Every rank's `text`, in rank order. A collective call of all ranks: two all-gathers, as wide as
// the longest text.
absl::StatusOr<std::vector<std::string>> GatherStrings(Communicator& group, std::string_view text);

// A text that some rank has.
struct RankText {
  int rank = 0;
  std::string text;
};
// The first of all ranks' texts that is not empty, the same on all of them: for what only works
// where it does on each. A call as above.
absl::StatusOr<std::optional<RankText>> FirstText(Communicator& group, std::string_view text);

// The same as an error, FailedPrecondition with "rank 3: " before its message; OK where each rank
// has none. A call as above: none goes on alone.
absl::Status FirstError(Communicator& group, const absl::Status& mine);

}  // namespace skein::comm
