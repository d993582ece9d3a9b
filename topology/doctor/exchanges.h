// What is wrong with how ranks exchange, by what they tried. Pure.
#pragma once

#include <vector>

#include "absl/types/span.h"
#include "topology/doctor/diagnose.h"
#include "topology/doctor/facts.h"

namespace skein::topology {

// Hosts, and pairs of hosts, whose messages are carried at less than half the rate of the best way:
// a host of which each way is slow is named once. Nothing where no two hosts tried.
std::vector<Finding> FindSlowWays(absl::Span<const RankFacts> ranks);

// Why GPUs exchange by way of their hosts, or do not write into each other's memory. Nothing where
// no GPUs tried.
std::vector<Finding> FindExchanges(absl::Span<const RankFacts> ranks);

}  // namespace skein::topology
