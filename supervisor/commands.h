// A supervisor's options, and the command lines and environments that follow from them. Pure.
#pragma once

#include <string>
#include <vector>

#include "absl/time/time.h"
#include "base/tls/mutual_tls.h"
#include "supervisor/child.h"
#include "supervisor/job_info.h"
#include "supervisor/keeper.h"

namespace skein::supervisor {

struct Options {
  int jobs = 1;
  int ranks = 1;  // of each job
  std::string coordinator = "127.0.0.1:50051";
  // What all that is started is told, where its own flags name no --tls-cert.
  MutualTlsFiles tls;
  std::string model;  // what an own coordinator serves; empty: the coordinator is somebody else's
  std::string coordinator_program;
  std::string worker_program;
  std::string mpirun = "mpirun";
  std::string hostfile;                  // of mpirun; empty: this host
  std::vector<std::string> mpirun_args;  // before its own
  std::vector<std::string> coordinator_flags;
  std::vector<std::string> worker_flags;
  std::string home;            // of the jobs, where this process has none
  bool require_start = false;  // a program that fails before any job has served ends all
  Keeper::Options restart;
  // How long all ranks of a job may take to come to the coordinator, and a coordinator to give its
  // first answer.
  absl::Duration start_timeout = absl::Seconds(60);

  // True if mpirun may start ranks on other hosts.
  bool SeveralHosts() const { return !hostfile.empty() || !mpirun_args.empty(); }
};

// The command of one start of a coordinator, which has `folder` to itself.
Child::Options CoordinatorCommand(const Options& options, const std::string& folder);
// The command of one start of a job, which has `key` and `folder` to itself; starts that follow one
// another share a `slot`.
Child::Options JobCommand(const Options& options, const JobKey& key, const std::string& slot,
                          const std::string& folder);

}  // namespace skein::supervisor
