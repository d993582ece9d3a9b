// Whole files that a user names.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace skein {

// Also of a pipe. An error names the path and quotes the system.
absl::StatusOr<std::string> ReadFile(const std::string& path);

// Makes the file, or overwrites it. An error names the path and quotes the system.
absl::Status WriteFile(const std::string& path, const std::string& contents);

// Whether WriteFile has a chance, told before the work whose result is to be written. Leaves the
// file as it is, or absent.
absl::Status CheckWritable(const std::string& path);

}  // namespace skein
