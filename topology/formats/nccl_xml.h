// Reads a topology of NCCL: what NCCL_TOPO_DUMP_FILE writes, and what clouds give for
// NCCL_TOPO_FILE.
//
//   <system version="1">
//     <cpu numaid="0" affinity="000000ff,ffff0000" arch="x86_64" ...>     a NUMA node
//       <pci busid="0000:10:00.0" class="0x060400" ...>                   a switch, may be nested
//         <pci busid="0000:11:00.0" class="0x030200" vendor="0x10de" ...>
//           <gpu dev="0" sm="80" rank="0" gdr="1">
//             <nvlink target="0000:12:00.0" count="4" tclass="0x030200"/> to a GPU
//             <nvlink target="0000:c1:00.0" count="2" tclass="0x068000"/> to an NVSwitch
//           </gpu>
//         </pci>
//         <pci busid="0000:13:00.0" class="0x020700" ...>
//           <nic><net name="mlx5_0" dev="0" speed="200000" .../></nic>    Mb/s
//         </pci>
//       </pci>
//       <nic><net name="eth0" .../></nic>                                 not on PCI
//     </cpu>
//   </system>
//
// Files of clouds leave out what NCCL finds on the host: <gpu>, <nic>, <nvlink>, and some even the
// class. What they leave out of that which a plan needs is asked for, never guessed.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "absl/status/statusor.h"
#include "topology/interconnect.h"

namespace skein::topology {

struct NcclXmlOptions {
  // What the file may leave out, since NCCL fills it in on the host itself. Unset: to leave it out
  // is an error.
  std::optional<int32_t> nvlinks;  // between each two GPUs; 0: there are none
};

// GPUs are in the order of `dev` and named by it where all have one, otherwise in the file's order.
// A NIC is a <net>, or a device of class 0x02 without one. Devices of other classes are passed
// over.
//
// Paths are as nvidia-smi calls them, where each device of class 0x06 in the tree is a switch: PIX,
// PXB, PHB directly below one <cpu> with no shared switch, NODE in two <cpu> of one numaid, and SYS
// between others, also between two whose numaid is not told (-1).
//
// NVLinks: a GPU with <nvlink> tells all of its own. Each two GPUs with links to switches are
// connected by the smaller number of these. A link of a GPU to itself tells nothing. Of a node with
// one GPU none is needed.
//
// InvalidArgument begins with "line N: " and says what is wrong: no XML, a <!DOCTYPE, a number that
// is none, a device without busid or class, two of one busid, links that differ by side, several
// hosts, more than 64 GPUs or NICs, or a MiB. FailedPrecondition says of which GPU the file leaves
// the NVLinks out and what to do; options.nvlinks are then taken. They may not contradict a file
// that tells them all.
absl::StatusOr<Interconnect> ParseNcclXml(std::string_view text,
                                          const NcclXmlOptions& options = {});

}  // namespace skein::topology
