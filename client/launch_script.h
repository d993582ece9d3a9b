// A planned layout as commands that start it. Pure; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/port_range.h"
#include "base/tls/mutual_tls.h"
#include "parallel/planner/goal.h"
#include "parallel/planner/search.h"
#include "topology/topology.h"

namespace skein::client {

enum class Starter : uint8_t { kMpirun, kSlurm };
// InvalidArgument for other than "mpirun" and "slurm".
absl::StatusOr<Starter> ParseStarter(const std::string& text);

struct LaunchTask {
  Starter starter = Starter::kMpirun;
  std::string model;  // the folder, at the same place on every host
  // The programs' paths, on every host.
  std::string coordinator;
  std::string worker;
  // What the coordinator is told beside model, layout and address: "--context-length=4096".
  std::vector<std::string> coordinator_flags;
  // Told to the coordinator where it is not what that plans for by itself; a job has its part of
  // the requests at once. Concurrency 0: not told.
  plan::Goal goal;
  MutualTlsFiles tls;              // of all, at the same place on every host; none: plain
  std::optional<PortRange> ports;  // none: the coordinator's own one, and free ones
  std::string interface;           // of the network between hosts; empty: all are tried
  // What CUDA_VISIBLE_DEVICES names on this host, in its order; empty: it is not set.
  std::string this_host;
  std::vector<std::string> visible_devices;
};

// A script of bash for the first host that the choice has ranks on, or for sbatch: it starts a
// coordinator where it runs, and a job for each replica, or one of all where they share cores,
// whose ranks go where the choice puts them. INT and TERM drain the coordinator, with which all
// ends. InvalidArgument, naming the flag, for a range with too few ports, which says how many it
// takes, and for hosts whose names are none.
absl::StatusOr<std::string> LaunchScript(const topology::Topology& topology,
                                         const plan::Choice& choice, const LaunchTask& task);

}  // namespace skein::client
