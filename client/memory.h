// skein memory
#pragma once

#include <string>

#include "CLI/CLI.hpp"
#include "parallel/planner/layout_memory.h"

namespace skein::client {

struct MemoryFlags {
  std::string model;
  plan::MemoryTask task;
  bool json = false;
};

void DeclareMemory(CLI::App& command, MemoryFlags& flags);

// Prints what a rank of each layout takes, without a cluster. Returns the exit code.
int Memory(const MemoryFlags& flags);

}  // namespace skein::client
