// Machines as a picture. Pure and deterministic; any thread.
#pragma once

#include <string>
#include <string_view>

#include "absl/types/span.h"
#include "topology/draw/rank_label.h"
#include "topology/topology.h"

namespace skein::topology {

// A stand-alone SVG of what CheckTopology takes: a card for each host, in it NUMA nodes, GPUs and
// NICs by PCIe switch, NVLinks (a bar where all pairs are alike, else lines), PCIe between GPUs
// without NVLink, all with their rates; the fabric below each row of hosts. `ranks` stand on the
// GPUs that they have, or on their host; those of hosts and GPUs that are not there are left out.
// Above: `title`, or the topology's name. Of more than 8 hosts that are alike the first two and
// the last are drawn. Names may be anything: they are escaped, and shortened where there is no
// room, with the whole as a tooltip. Light or dark as the viewer asks. A host of 8 GPUs takes
// 15 KB.
std::string TopologySvg(const Topology& topology, absl::Span<const RankLabel> ranks = {},
                        std::string_view title = "");

}  // namespace skein::topology
