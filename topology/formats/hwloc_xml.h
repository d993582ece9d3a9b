// Reads hwloc's XML of version 2, as `lstopo --of xml` of any hwloc 2 writes it.
//
//   <!DOCTYPE topology SYSTEM "hwloc2.dtd">
//   <topology version="2.0">
//     <object type="Machine" cpuset="0x000000ff,0xffff0000" allowed_cpuset= nodeset= gp_index="1">
//       <info name="HostName" value="node7"/>
//       <object type="Package" ...> <info name="CPUModel" value="AMD EPYC 9654"/>
//         <object type="NUMANode" os_index="0" cpuset= nodeset= local_memory="810234351616"/>
//         <object type="L3Cache" cache_size="33554432" ...>  L2Cache, Core, PU, ... inside
//         <object type="Bridge" bridge_type="0-1" ...>          a host bridge
//           <object type="Bridge" bridge_type="1-1" ...>        a port: root, up, down, up, down
//           ...
//             <object type="PCIDev" pci_busid="0000:17:00.0" pci_type="0302 [10de:2330] ..." ...>
//               <object type="OSDev" name="nvml0" osdev_type="1" gp_index="802">
//                 <info name="GPUModel" value="NVIDIA H100 80GB HBM3"/>
//     <distances2 name="NVLinkBandwidth" type="OSDev" indexing="gp" nbobjs="2" ...>     MB/s
//       <indexes length="8">802 803 </indexes> <u64values length="..">1000000 450000
//       ...</u64values>
//     <distances2hetero ...>: the same, with "OSDev:802 PCIDev:449" for NVSwitches' sake
//
// Indexes and values may be spread over several elements of a name.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "absl/status/statusor.h"
#include "topology/topology.h"

namespace skein::topology {

struct HwlocXmlOptions {
  // What the file leaves out where hwloc was built without NVML, or did not know the NVLinks'
  // version. Unset: to leave it out is an error.
  std::optional<int32_t> nvlinks;  // between each two GPUs of NVIDIA; 0: there are none
};

// A host without rates, links and shm_bytes, and without a name where the file has none. Cores are
// those that the file allows; where it has none, processors. numa_nodes[i] is node i of the system;
// numbers that it leaves out, and those of GPUs' own memory, have neither processors nor memory.
//
// GPUs are devices of class 0x03 by NVIDIA, and compute cards of AMD and Intel (0x0302, 0x0380):
// other display adapters belong to boards. They are in the order of their addresses, as NVML counts
// them. A NIC is an OpenFabrics device, or a network device of a PCI device without one of these;
// class 0x0200 makes it ethernet, as RoCE is, and otherwise OpenFabrics InfiniBand.
//
// Paths are as nvidia-smi calls them: a switch is a port up with its ports down, PIX is one of them
// at most or one root port, PXB several, PHB one host bridge, NODE host bridges of one NUMA node,
// and SYS others, also where a device's NUMA node cannot be told.
//
// NVLinks: bandwidths are those of hwloc, 20,000 MB/s for a link of Pascal and 25,000 up to Hopper.
// Through switches each two GPUs are connected by the smaller number of links to these. They are
// left out where there is no such matrix, a GPU is not in it, or its numbers cannot be told.
//
// InvalidArgument begins with "line N: " and says what is wrong: no XML, a doctype that declares
// anything, a file of another version, a number that is none, two devices of one address, a matrix
// that is not square or not symmetric, more than 64 GPUs or NICs, or a MiB. FailedPrecondition says
// of which GPU the file leaves the NVLinks out and what to do; options.nvlinks are then taken. They
// may not contradict a file that tells them all.
absl::StatusOr<Host> ParseHwlocXml(std::string_view text, const HwlocXmlOptions& options = {});

}  // namespace skein::topology
