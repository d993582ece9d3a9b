// Programs that commands start, or name.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace skein::client {

// The program of this name that was built, or unpacked, together with this one. NotFound says where
// it was looked for.
absl::StatusOr<std::string> FindProgram(const std::string& name);

// `named`, or the worker beside this program where none is named. NotFound says how to get one.
absl::StatusOr<std::string> FindWorker(const std::string& named);

}  // namespace skein::client
