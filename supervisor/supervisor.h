// Keeps jobs, and where it is told to a coordinator, up.
#pragma once

#include <memory>

#include "absl/status/status.h"
#include "base/log/line_writer.h"
#include "supervisor/commands.h"
#include "supervisor/job_info.h"
#include "supervisor/scratch.h"

namespace skein::supervisor {

// Runs until all is over, and leaves nothing running. SIGTERM, SIGINT, SIGHUP and SIGCHLD must be
// blocked in all threads (or ignored and not blocked, where they are to do nothing), and the
// process must be a subreaper. What the programs say goes to `output`. The exit status: 0 when
// every job has ended with 0, which is after a drain; 2 when a program refuses its flags; 128 + the
// signal that ended it; else 1.
int Supervise(const Options& options, JobInfoSource* jobs, Scratch* scratch, LineWriter* output);

}  // namespace skein::supervisor
