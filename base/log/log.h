// Sets up spdlog, which every other file uses directly.
#pragma once

#include <string_view>

#include "absl/status/status.h"
#include "base/log/log_options.h"

namespace skein {

// Makes spdlog's default logger write lines, with time, level, host, `component` ("coordinator",
// "rank 3") and fields (see WithLogFields), to standard error:
//
//   20:14:03.217 I node7 rank 3 | message name=value
//
// or in JSON, an object on each line, whose time is UTC:
//
//   {"time":"2026-03-01T19:14:03.217Z","level":"info","host":"node7","source":"rank 3",
//    "message":"message","name":"value"}
//
// or to a file, with the day before the time; errors go to standard error, too. Any thread
// may log: a line is queued and written by a thread of its own (see LineWriter), so that a reader
// who is slow or gone, or a full disk, delays and ends nothing. Dropped lines are counted, and the
// log tells how many. Ignores SIGPIPE from here on. InvalidArgument quotes a level that is none of
// LogOptions'; LogFile::Open's errors. May be called again, once the component is known better, as
// long as the file is another one.
absl::Status InitLogging(std::string_view component, const LogOptions& options);

// Waits until what was logged is written, for a second at most. exit() does it, _exit() does not.
void FlushLog();

}  // namespace skein
