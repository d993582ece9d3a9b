// skein top
#pragma once

#include "CLI/CLI.hpp"
#include "absl/time/time.h"
#include "client/endpoint.h"

namespace skein::client {

struct TopFlags {
  absl::Duration interval = absl::Seconds(1);
  bool once = false;
};

void DeclareTop(CLI::App& command, TopFlags& flags);

// Shows the cluster on the whole terminal, again and again, until q, Ctrl-C or a signal; the
// terminal is as it was then. A coordinator that does not answer is told, and asked again. Once, or
// where the output is no terminal: prints what it would show, as it is now. Returns the exit code.
int Top(const Endpoint& coordinator, const TopFlags& flags);

}  // namespace skein::client
