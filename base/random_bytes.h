// What nobody can guess: keys, nonces, cookies.
#pragma once

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"

namespace skein {

// Of the kernel; 256 at most come whole.
absl::StatusOr<std::string> RandomBytes(size_t bytes);
// The same in twice as many hexadecimal digits.
absl::StatusOr<std::string> RandomHex(size_t bytes);

}  // namespace skein
