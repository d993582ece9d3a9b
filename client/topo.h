// skein topo
#pragma once

#include <string>

#include "CLI/CLI.hpp"
#include "client/probe_host.h"
#include "client/read_topology.h"

namespace skein::client {

struct TopoFlags {
  TopologyFlags topology;
  ProbeFlags probe;
  bool json = false;
  std::string svg_file;
  std::string dot_file;
};

void DeclareTopo(CLI::App& command, TopoFlags& flags);

// Shows this host, or machines that a file or a preset tells of: connections, islands of NVLink,
// each GPU's nearest NICs and processors, rates, and how this host's GPUs are. Returns the exit
// code.
int Topo(const TopoFlags& flags);

}  // namespace skein::client
