// Jobs that a command starts for its work.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace skein::client {

// Runs mpirun with these arguments, and returns what it says on standard output, once it has ended;
// its standard error is this program's. NotFound where it is not in PATH; FailedPrecondition,
// "mpirun has ended with status 1, see above; ...", where it fails.
absl::StatusOr<std::string> OutputOfMpirun(const std::vector<std::string>& arguments);

}  // namespace skein::client
