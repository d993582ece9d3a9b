// Sets up spdlog, which every other file uses directly.
#pragma once

#include <string_view>

#include "absl/status/status.h"

namespace skein {

// Makes spdlog's default logger write lines to standard error, with time, level, host and
// `component` ("coordinator", "rank 3"):
//
//   20:14:03.217 I node7 rank 3 | message
//
// `level` is one of trace, debug, info, warning, error, off. Any thread
// may log: a line is queued and written by a thread of its own (see LineWriter), so that a reader
// who is slow or gone, or a full disk, delays and ends nothing. Dropped lines are counted, and the
// log tells how many. Ignores SIGPIPE from here on. InvalidArgument quotes a level that is none of
// these. May be called again, once the component is known better.
absl::Status InitLogging(std::string_view component, std::string_view level);

// Waits until what was logged is written, for a second at most. exit() does it, _exit() does not.
void FlushLog();

}  // namespace skein
