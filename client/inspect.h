// skein inspect
#pragma once

#include <string>

#include "CLI/CLI.hpp"

namespace skein::client {

struct InspectFlags {
  std::string model;
  bool json = false;
};

void DeclareInspect(CLI::App& command, InspectFlags& flags);

// Prints what a model's files hold. Returns the exit code: 3 where Skein does not run it.
int Inspect(const InspectFlags& flags);

}  // namespace skein::client
