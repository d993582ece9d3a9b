// Ranks the layouts of machines that a file, a preset or a coordinator tells of, and shows them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "CLI/CLI.hpp"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/launch_script.h"
#include "client/read_topology.h"
#include "model/config/model_config.h"
#include "parallel/planner/search.h"

namespace skein::client {

struct RankFlags {
  TopologyFlags topology;
  plan::SearchTask task;
  bool all = false;
  bool json = false;
  std::string svg_file;
  std::string gantt_file;
  std::string pareto_file;
  std::optional<Starter> emit;  // as commands instead
  LaunchTask launch;

  bool used() const { return !topology.source.empty(); }
};

void DeclareRankFlags(CLI::App& command, RankFlags& flags);

// Behind DeclareRankFlags.
void DeclareLaunchFlags(CLI::App& command, RankFlags& flags);

// Prints the ranked layouts and where the best one puts ranks, or the commands that start it, and
// draws what is asked for. Returns whether any layout fits.
absl::StatusOr<bool> RankLayouts(RankFlags flags, const std::string& model_name,
                                 const model::ModelConfig& model);

}  // namespace skein::client
