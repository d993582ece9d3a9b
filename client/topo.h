// skein topo
#pragma once

#include <string>

#include "CLI/CLI.hpp"

namespace skein::client {

struct TopoFlags {
  std::string file;
  bool json = false;
};

void DeclareTopo(CLI::App& command, TopoFlags& flags);

// Shows what a file of `nvidia-smi topo -m` says: connections, islands of NVLink, each GPU's
// nearest NICs and processors. Returns the exit code.
int Topo(const TopoFlags& flags);

}  // namespace skein::client
