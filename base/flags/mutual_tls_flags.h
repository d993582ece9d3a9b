#pragma once

#include "CLI/CLI.hpp"
#include "base/tls/mutual_tls.h"

namespace skein {

// Adds --tls-cert, --tls-key and --tls-ca: all three, or none.
void AddMutualTls(CLI::App& app, MutualTlsFiles& files);

}  // namespace skein
