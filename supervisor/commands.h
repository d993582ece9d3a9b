// What a supervisor is told, and the command lines and environments that follow from it. Pure.
#pragma once

#include <string>
#include <vector>

#include "absl/time/time.h"
#include "supervisor/child.h"
#include "supervisor/job_info.h"
#include "supervisor/keeper.h"

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

// `folder` is the start's own.
Child::Options CoordinatorCommand(const Options& options, const std::string& folder);
// `key` is the start's own; starts that follow one another share a `slot`.
Child::Options JobCommand(const Options& options, const JobKey& key, const std::string& slot,
                          const std::string& folder);

}  // namespace skein::supervisor
