// `skein serve`: a coordinator with HTTP and its workers, on this host.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "base/flags/config.h"
#include "base/tls/mutual_tls.h"

namespace skein::client {

struct ServeFlags {
  std::string model;
  std::optional<int> ranks;  // of each job; none: a GPU each, or a NUMA node each
  int jobs = 1;
  std::string http = "127.0.0.1:8000";
  std::string listen = "127.0.0.1:50051";
  MutualTlsFiles tls;  // of all that is started, and of this program
  bool verbose = false;
  std::vector<std::string> coordinator_flags;        // what the command does not know
  std::vector<std::string> worker_flags;             // behind --
  std::optional<ConfigForOther> coordinator_config;  // is passed on
  std::optional<ConfigForOther> worker_config;
};

void DeclareServe(CLI::App& command, ServeFlags& flags);

// Serves until SIGINT, SIGTERM or SIGHUP, which drain; a second one ends all at once. Shows
// progress until a replica serves, then the URL; after that, and before, warnings and errors of all
// programs. Nothing that was started outlives it. Returns kExitOk after a drain that was asked for,
// kExitUsage where a program refuses its flags.
int Serve(const ServeFlags& flags);

}  // namespace skein::client
