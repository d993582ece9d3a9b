// Jobs that a command starts for its work.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace skein::client {

// Arguments by which mpirun starts so many ranks of a command: `more` are further ones of mpirun as
// a user writes them, "--hostfile hosts", parted at spaces.
std::vector<std::string> RanksOf(int32_t ranks, std::string_view more,
                                 const std::vector<std::string>& command);

// Runs mpirun with these arguments, and returns what it says on standard output, once it has ended;
// its standard error is this program's. NotFound where it is not in PATH; FailedPrecondition,
// "mpirun has ended with status 1, see above; ...", where it fails.
absl::StatusOr<std::string> OutputOfMpirun(const std::vector<std::string>& arguments);

}  // namespace skein::client
