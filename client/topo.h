// skein topo
#pragma once

#include <string>

#include "CLI/CLI.hpp"
#include "client/read_topology.h"

namespace skein::client {

struct TopoFlags {
  TopologyFlags topology;
  bool json = false;
  std::string svg_file;
  std::string dot_file;
};

void DeclareTopo(CLI::App& command, TopoFlags& flags);

// Shows machines that a file or a preset tells of: connections, islands of NVLink, each GPU's
// nearest NICs and processors, rates. Returns the exit code.
int Topo(const TopoFlags& flags);

}  // namespace skein::client
