// skein status, skein models
#pragma once

#include <optional>
#include <string>

#include "CLI/CLI.hpp"
#include "absl/time/time.h"
#include "client/endpoint.h"

namespace skein::client {

struct StatusFlags {
  std::optional<absl::Duration> wait;
  bool json = false;
};

void DeclareStatus(CLI::App& command, StatusFlags& flags);

// Prints plan, ranks, speed and memory; with --wait, as soon as a replica serves. Returns the exit
// code.
int Status(const Endpoint& coordinator, const StatusFlags& flags);

int Models(const Endpoint& coordinator, bool json);

}  // namespace skein::client
