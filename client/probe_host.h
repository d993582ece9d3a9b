// Measures this host, by ranks that mpirun starts on it; what was kept of that.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "CLI/CLI.hpp"
#include "absl/status/statusor.h"
#include "topology/topology.h"

namespace skein::client {

struct ProbeFlags {
  bool probe = false;
  std::optional<int32_t> ranks;
  std::string worker;  // the program; empty: beside this one
};

void DeclareProbeFlags(CLI::App& command, ProbeFlags& flags);

// Runs `worker probe`, whose progress goes to standard error. `visible_devices` is
// CUDA_VISIBLE_DEVICES' value. Takes seconds. NotFound where mpirun or the worker is not there;
// FailedPrecondition where it fails, which has said why on standard error.
absl::StatusOr<topology::Topology> ProbeHost(const ProbeFlags& flags,
                                             const std::optional<std::string>& visible_devices);

// How many ranks of this host are measured where nobody says.
int32_t RanksToProbe(const topology::Host& host);

// Gives `topology`, of this host alone, what was measured of jobs of so many ranks on its GPUs, or
// on its cores where it has none. False where none of that was kept.
bool TakeKeptFigures(int32_t ranks, topology::Topology& topology);

}  // namespace skein::client
