// The set-up of spdlog, which every other file uses directly.
#pragma once

#include <string_view>

#include "absl/status/status.h"

namespace skein {

// Makes spdlog's default logger write lines like
//   20:14:03.217 I node7 rank 3 | message
// to standard error: time, level, host and `component` ("coordinator", "rank 3"). `level` is one of
// trace, debug, info, warning, error, off. Lines are written at once, from any thread.
// InvalidArgument quotes a level that is none of these. Call it again when the component is known
// better.
absl::Status InitLogging(std::string_view component, std::string_view level);

}  // namespace skein
