// The sampling fields of a request as flags.
#pragma once

#include "CLI/CLI.hpp"
#include "proto/inference.pb.h"

namespace skein::client {

// Flags that are given set their fields; `sampling` lives until the command line is parsed.
void DeclareSampling(CLI::App& command, v1::Sampling& sampling);

}  // namespace skein::client
