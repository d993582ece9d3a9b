// Reads what `nvidia-smi topo -m` prints, as people paste it.
//
//         GPU0    GPU1    NIC0    CPU Affinity    NUMA Affinity   GPU NUMA ID
//   GPU0   X      NV18    PIX     0-31            0               N/A
//   GPU1  NV18     X      SYS     32-63           1               N/A
//   NIC0  PIX     SYS      X
//
//   Legend: [...]
//   NIC Legend:
//
//     NIC0: mlx5_0
//
// A header of devices, a row for each, with tabs between cells; older versions name NICs by their
// device, mlx5_0, and have no NIC Legend. Colours may be there, with or without their escape
// character, tabs may have become spaces, legends may be cut.
#pragma once

#include <string_view>

#include "absl/status/statusor.h"
#include "topology/interconnect.h"

namespace skein::topology {

// InvalidArgument begins with "line N: ": a word that is no connection, a row that is missing, cut
// or twice there, two devices that differ in what lies between them, more than 64 devices or a MiB.
absl::StatusOr<Interconnect> ParseNvidiaSmi(std::string_view text);

}  // namespace skein::topology
