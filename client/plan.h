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
  bool this_host = false;             // flags are of a job on this host
  bool ranks_layouts = false;         // flags are of ranked layouts
  bool coordinator_is_named = false;  // not the one that is asked by default

  // Whether a coordinator is to be asked for its hosts: by default, where one answers.
  bool AsksCoordinator() const {
    return rank.topology.source == kLive || (rank.topology.source.empty() && !this_host);
  }
};

void DeclarePlan(CLI::App& command, PlanFlags& flags);
// Sets those of `flags` that say which others were given; behind parsing.
void TellGivenFlags(const CLI::App& command, PlanFlags& flags);

// Ranks layouts of the coordinator's cluster or of other machines. Or, where nobody names machines
// and no cluster is there, plans a job of `ranks` ranks on this host as a coordinator would: prints
// the plan and why other layouts lost. Returns the exit code, 3 where the model fits into none.
int Plan(PlanFlags flags);

}  // namespace skein::client
