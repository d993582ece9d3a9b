// Keeps jobs, and where it is told to a coordinator, up.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/log/line_writer.h"
#include "supervisor/job_info.h"
#include "supervisor/keeper.h"
#include "supervisor/scratch.h"

namespace skein::supervisor {

struct Options {
  int jobs = 1;
  int ranks = 1;  // of each job
  std::string coordinator = "127.0.0.1:50051";
  std::string model;  // what an own coordinator serves; empty: the coordinator is somebody else's
  std::string coordinator_program;
  std::string worker_program;
  std::string mpirun = "mpirun";
  std::string hostfile;                  // of mpirun; empty: this host
  std::vector<std::string> mpirun_args;  // before its own
  std::vector<std::string> coordinator_flags;
  std::vector<std::string> worker_flags;
  std::string home;  // of the jobs, where this process has none
  Keeper::Options restart;
  // For all ranks of a job to come to the coordinator, and for a coordinator's first answer.
  absl::Duration start_timeout = absl::Seconds(60);

  // mpirun may start ranks elsewhere.
  bool SeveralHosts() const { return !hostfile.empty() || !mpirun_args.empty(); }
};

// Runs until all is over, and leaves nothing running. SIGTERM, SIGINT, SIGHUP and SIGCHLD must be
// blocked in all threads (or ignored and not blocked, where they are to do nothing), and the
// process must be a subreaper. What the programs say goes to `output`. The exit status: 0 when
// every job has ended with 0, which is after a drain; 2 when a program refuses its flags; 128 + the
// signal that ended it; else 1.
int Supervise(const Options& options, JobInfoSource* jobs, Scratch* scratch, LineWriter* output);

}  // namespace skein::supervisor
