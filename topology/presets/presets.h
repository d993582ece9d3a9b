// Machines that are sold, for planning without them. All figures are of datasheets, and are marked
// as modelled.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "topology/topology.h"

namespace skein::topology {

struct Preset {
  std::string name;   // "dgx-h100"
  std::string about;  // "8 x H100 80 GB, NVSwitch, 8 x 400 Gb/s InfiniBand"
};
const std::vector<Preset>& Presets();
bool IsPreset(std::string_view name);

// "ib-ndr" and so on.
const std::vector<std::string>& FabricNames();

// `nodes` alike hosts called node0, node1, ..., or the one called by the preset's name. The fabric
// is the preset's own where none is named. NotFound for names that are unknown, with those that
// are; InvalidArgument for a number of nodes that cannot be.
absl::StatusOr<Topology> MakePreset(std::string_view name, int32_t nodes = 1,
                                    std::string_view fabric = "");

// Gives `topology` the figures that it lacks, as those of a preset: of its hosts, GPUs, links and
// of the fabric. What it tells stays. NotFound as above.
absl::Status CompleteLike(std::string_view preset, Topology& topology);

// Gives `topology` what it lacks where nobody measured: its GPUs and links by the makers' names, or
// as of a GPU of some years ago; cores as of a small server. The figures are marked as modelled.
void AssumeFigures(Topology& topology);

// Of a name, as above.
absl::StatusOr<Fabric> MakeFabric(std::string_view name);

}  // namespace skein::topology
