// Programs that a command starts for its work.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace skein::client {

// Runs a command, which is looked for in PATH, and returns what it says on standard output, once it
// has ended; its standard error is this program's. NotFound where it cannot be started;
// FailedPrecondition where it ends with a status that is not 0, or by a signal: "mpirun has ended
// with status 1".
absl::StatusOr<std::string> OutputOf(const std::vector<std::string>& command);

}  // namespace skein::client
