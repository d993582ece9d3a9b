// Machines that a user names: a preset, or a file in any format that is known.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/status/statusor.h"
#include "client/endpoint.h"
#include "topology/draw/rank_label.h"
#include "topology/topology.h"

namespace skein::client {

inline constexpr char kLive[] = "live";

struct TopologyFlags {
  // A preset, a file, "-" for standard input, kLive for the hosts of the coordinator's jobs; empty:
  // this host.
  std::string source;
  Endpoint coordinator;                       // where kLive is the source
  std::optional<topology::Topology> fetched;  // of it, where it is here already
  int32_t nodes = 1;
  std::string fabric;
  std::string like;
  std::optional<int32_t> nvlinks;
  std::optional<std::string> visible_devices;  // of this host: CUDA_VISIBLE_DEVICES' value
};

// Declares all but the source.
void DeclareTopologyFlags(CLI::App& command, TopologyFlags& flags);

// Formats are told apart by what they begin with: "{" is Skein's JSON, "<" XML of NCCL or of hwloc,
// anything else what `nvidia-smi topo -m` printed. Errors name the file and the line. A file, and
// this host, may lack figures: what plans checks them. ranks: gets those of kLive's jobs, where it
// is not null.
absl::StatusOr<topology::Topology> ReadTopology(const TopologyFlags& flags,
                                                std::vector<topology::RankLabel>* ranks = nullptr);

// "live: the hosts of the coordinator's jobs; or a preset: dgx-1v, ...", for help texts.
std::string SourceNames();

}  // namespace skein::client
