// The constraints of a plan as flags, the same for the coordinator and for `skein plan`.
#pragma once

#include "CLI/CLI.hpp"
#include "parallel/planner/planner.h"

namespace skein::plan {

// `constraints` has the defaults. Takes the command's callback.
void DeclarePlanning(CLI::App& command, Constraints& constraints);

}  // namespace skein::plan
