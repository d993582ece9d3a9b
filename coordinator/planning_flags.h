// The flags of what jobs are planned with, the same for the coordinator and for `skein plan`.
#pragma once

#include "CLI/CLI.hpp"
#include "parallel/planner/planner.h"

namespace skein::coordinator {

// `constraints` has the defaults. Takes the command's callback.
void DeclarePlanning(CLI::App& command, plan::Constraints& constraints);

}  // namespace skein::coordinator
