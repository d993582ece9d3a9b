// What is wrong with a set-up, by what its ranks say of themselves. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "topology/doctor/facts.h"

namespace skein::topology {

enum class Level : uint8_t { kOk, kWarning, kError };

struct Finding {
  Level level = Level::kOk;
  std::string check;   // "versions"
  std::string says;    // what was found, and on whom
  std::string advice;  // what to do; empty where all is well
};

// A finding for each check that can be made, in their order, or several where several are wrong:
// versions, model, clocks, host names, network, /dev/shm, limits, cores, GPUs, links, messages
// between hosts, exchanges of GPUs, port. Of at least one rank.
std::vector<Finding> Diagnose(absl::Span<const RankFacts> ranks);

// A line for each, with its advice below, and how many are wrong in the last one.
std::string FormatFindings(absl::Span<const Finding> findings);

}  // namespace skein::topology
