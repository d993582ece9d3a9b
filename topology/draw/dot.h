// Machines for Graphviz. Pure and deterministic; any thread.
#pragma once

#include <string>

#include "absl/types/span.h"
#include "topology/draw/rank_label.h"
#include "topology/topology.h"

namespace skein::topology {

// An undirected graph in the DOT language of what CheckTopology takes: `dot -Tsvg` draws it. A
// cluster for each host, in it for NUMA nodes and PCIe groups; nodes for GPUs, with the ranks that
// have them, NICs and switches; edges with NVLinks and rates. Of more than 8 hosts that are alike
// the first two and the last are there. Names may be anything: they are escaped. Ranks of hosts and
// GPUs that are not there are left out.
std::string TopologyDot(const Topology& topology, absl::Span<const RankLabel> ranks = {});

}  // namespace skein::topology
