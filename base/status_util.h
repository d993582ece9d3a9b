// Small helpers around absl::Status.
#pragma once

#include <string_view>

#include "absl/status/status.h"

namespace skein {

// The same code with "context: " put before the message; an OK status stays OK.
absl::Status Annotate(const absl::Status& status, std::string_view context);

// The status of a failed POSIX call: "<what>: <strerror(error_number)>", with the canonical code.
absl::Status ErrnoStatus(int error_number, std::string_view what);

}  // namespace skein
