// Hosts that are alike, so that what is the same on them is judged once. Pure; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "parallel/planner/placement.h"
#include "topology/topology.h"

namespace skein::plan {

class HostKinds {
 public:
  explicit HostKinds(const topology::Topology& topology);

  // Equal for stages whose sites are alike and share hosts alike, whichever hosts those are.
  std::string KeyOf(absl::Span<const Group> stages) const;

 private:
  std::vector<int32_t> kinds_;  // by host: the first that is alike
};

// Measurements of two hosts are never quite the same. Of clusters of more than 16 hosts, those that
// are built alike, with rates within 10% of each other and times within 30% or 500 ns, get the
// figures of the first of them, and the least memory of all. Returns how many have got others'.
int FoldAlikeHosts(topology::Topology& topology);
// Says so, as a sentence.
std::string FoldedText(int hosts);

}  // namespace skein::plan
