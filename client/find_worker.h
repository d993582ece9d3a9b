// The worker program, for commands that it carries out.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace skein::client {

// `named`, or the one beside this program where none is named. NotFound says how to get one.
absl::StatusOr<std::string> FindWorker(const std::string& named);

}  // namespace skein::client
