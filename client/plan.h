// skein plan
#pragma once

#include <cstdint>
#include <string>

#include "CLI/CLI.hpp"
#include "client/rank_layouts.h"
#include "parallel/planner/planner.h"

namespace skein::client {

struct PlanFlags {
  std::string model;
  int32_t ranks = 1;
  plan::Constraints constraints;
  std::string gantt_file;
  RankFlags rank;
};

void DeclarePlan(CLI::App& command, PlanFlags& flags);

// Plans a job of `ranks` ranks on this host as a coordinator would, without one: prints the plan
// and why other layouts lost. Or ranks layouts of other machines. Returns the exit code, 3 where
// the model fits into none.
int Plan(PlanFlags flags);

}  // namespace skein::client
