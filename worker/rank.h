// The life of one rank: attach, take the plan, load the shard, serve until told to stop.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/device_kind.h"
#include "base/log/log_options.h"
#include "base/port_range.h"
#include "base/tls/mutual_tls.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/ops/backend.h"
#include "parallel/comm/communicator.h"
#include "parallel/comm/mpi/mpi_runtime.h"
#include "parallel/plan/plan.h"
#include "worker/device_comm.h"
#include "worker/job_identity.h"
#include "worker/probe/job_topology.h"

namespace skein::worker {

struct RankOptions {
  std::string coordinator = "127.0.0.1:50051";
  std::optional<MutualTls> tls;  // to the coordinator; none: plain
  // Where this node keeps models; empty: the coordinator's path is taken as it is.
  std::string model_root;
  std::optional<DeviceKind> device;    // none: a GPU where there is one
  bool oversubscribe_devices = false;  // several ranks may have one GPU
  DeviceComm device_comm = DeviceComm::kAuto;
  std::optional<PortRange> control_ports;  // of its replica's leader; none: any
  // mpirun has bound this process without being asked how: a lone rank to one core.
  bool bound_by_default = false;
  std::string backend = "cpu";  // on CPUs; or "reference"
  // Before the rank attaches, what its host does in a second (probe/job_topology.h).
  Probing probing = Probing::kNever;
  std::string probe_folder;        // where that is kept; empty: nowhere
  std::string figures_file;        // instead (proto/convert/figure_files.h)
  plan::LayoutRequest layout;      // of this job, the same on all ranks; empty: the coordinator's
  std::string model;               // likewise: one of its names
  std::optional<JobIdentity> job;  // of rank 0 counts; nothing: a random one
  absl::Duration orphan_timeout = absl::Seconds(60);
  // The longest that one exchange between ranks, or a step of a rank that is alone, may take;
  // unset: 10 times what its step should take, at least 30 s.
  std::optional<absl::Duration> step_timeout;
  // From the moment that all ranks have loaded.
  absl::Duration warm_up_timeout = absl::Minutes(2);
  kernels::DecodeForm decode = kernels::DecodeForm::kAuto;  // on GPUs
  int profile_steps = 0;   // of GPUs: the first ones are marked for profilers; 0: none
  bool overlap = true;     // the next step is planned and sent while one runs
  LogOptions log;          // each rank has a file of its own, worker-3.log for worker.log
  std::string job_number;  // of a supervisor's jobs: theirs are worker-1-3.log; "": it has none
  // For tests, which hold up calls: sees every group before its first call. May be null.
  std::function<void(comm::Communicator&)> on_group;
  // For tests: what computes in the back end's place. May be null.
  std::function<std::unique_ptr<kernels::Backend>(std::unique_ptr<kernels::Backend>)> wrap_backend;
};

// Runs this process's rank to its end. OK after a drain. An error was reported to the coordinator
// where there is one; the process must then say it and exit without another call to MPI. What the
// rank had is not given back. A refusal
// or a job that failed elsewhere ends the process from within, with exit code 1: other threads may
// be inside a collective that never returns.
absl::Status RunRank(const RankOptions& options, comm::MpiRuntime& mpi);

}  // namespace skein::worker
