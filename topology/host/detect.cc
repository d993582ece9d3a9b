#include "topology/host/detect.h"

#include <errno.h>
#include <hwloc.h>
#include <sys/statvfs.h>

#include <cstddef>
#include <limits>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/printable.h"
#include "base/status_macros.h"
#include "base/status_util.h"
#include "topology/host/host.h"
#include "topology/host/near_cpus.h"
#include "topology/host/nics.h"
#include "topology/host/pci.h"
#include "topology/host/processors.h"

namespace skein::topology {
namespace {

struct Destroyer {
  void operator()(hwloc_topology_t topology) const { hwloc_topology_destroy(topology); }
};

absl::Status FindProcessors(const std::string& synthetic, Host& host) {
  hwloc_topology_t raw = nullptr;
  if (hwloc_topology_init(&raw) != 0) return ErrnoStatus(errno, "hwloc_topology_init");
  const std::unique_ptr<hwloc_topology, Destroyer> topology(raw);
  // The whole node, as its GPUs' places refer to it, and not what a cgroup leaves.
  if (hwloc_topology_set_flags(raw, HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED) != 0) {
    return ErrnoStatus(errno, "hwloc_topology_set_flags");
  }
  if (!synthetic.empty() && hwloc_topology_set_synthetic(raw, synthetic.c_str()) != 0) {
    return absl::InvalidArgumentError(absl::StrCat("synthetic_processors: hwloc does not read '",
                                                   Printable(synthetic, kMaxNameBytes), "'"));
  }
  if (hwloc_topology_load(raw) != 0) return ErrnoStatus(errno, "hwloc_topology_load");
  DescribeProcessors(raw, host);
  return absl::OkStatus();
}

int64_t FreeBytesOf(const std::string& folder) {
  struct statvfs info;
  if (statvfs(folder.c_str(), &info) != 0) return 0;
  const long double bytes = static_cast<long double>(info.f_bavail) * info.f_frsize;
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  return bytes < static_cast<long double>(kMost) ? static_cast<int64_t>(bytes) : kMost;
}

// Where there is one NUMA node, all is there. One that the node does not have is not told.
PciPlace PlaceOn(const Host& host, const std::string& bus_id, const std::string& root) {
  PciPlace place = PlaceOf(bus_id, root);
  if (host.numa_nodes.size() == 1) place.numa_node = 0;
  if (place.numa_node >= static_cast<int32_t>(host.numa_nodes.size())) place.numa_node = -1;
  return place;
}

// Over PCIe. NVML knows it where /sys hides the devices, as in some containers.
Path PathOfGpus(const PciPlace& a, const PciPlace& b, const std::optional<Path>& by_nvml) {
  const bool told = !a.chain.empty() && !b.chain.empty();
  return told || !by_nvml ? PathBetween(a, b) : *by_nvml;
}

Interconnect Assemble(FoundGpus found, std::vector<Nic> nics, const Host& host,
                      const std::string& root) {
  Interconnect all{.gpus = std::move(found.gpus), .nics = std::move(nics)};
  all.nvswitches = found.nvswitches;
  std::vector<PciPlace> places;  // [gpus + nics]
  for (Gpu& gpu : all.gpus) {
    places.push_back(PlaceOn(host, gpu.bus_id, root));
    gpu.numa_node = places.back().numa_node;
    gpu.cpus = CpusNear(gpu.bus_id, root);
  }
  for (const Nic& nic : all.nics) places.push_back(PlaceOn(host, nic.bus_id, root));
  const size_t devices = places.size(), gpus = all.gpus.size();
  all.connections.assign(devices, std::vector<Connection>(devices));
  for (size_t i = 0; i < devices; ++i) {
    for (size_t j = 0; j < i; ++j) {
      Connection connection{.path = PathBetween(places[i], places[j])};
      if (i < gpus) {
        connection.path = PathOfGpus(places[i], places[j], found.parents[i][j]);
        const int32_t nvlinks = found.nvlinks[i][j];
        if (nvlinks > 0) connection = {.path = Path::kNvlink, .nvlinks = nvlinks};
      }
      all.connections[i][j] = all.connections[j][i] = connection;
    }
  }
  return all;
}

}  // namespace

absl::StatusOr<DetectedHost> DetectHostAndHealth(const DetectOptions& options) {
  DetectedHost detected;
  Host& host = detected.host;
  SKEIN_ASSIGN_OR_RETURN(const Node node, DescribeHost({.root = options.root}));
  host.name = node.host;
  host.cores = node.cores;
  host.memory_bytes = node.memory_bytes;
  host.cpu = DescribeCpu({.root = options.root}).name;
  host.shm_bytes = FreeBytesOf(options.root + "/dev/shm");
  SKEIN_RETURN_IF_ERROR(FindProcessors(options.synthetic_processors, host));
  SKEIN_ASSIGN_OR_RETURN(FoundGpus found,
                         FindGpus(options.visible_devices, options.nvml_libraries));
  detected.health = std::move(found.health);
  host.interconnect = Assemble(std::move(found), FindNics(options.root), host, options.root);
  return detected;
}

absl::StatusOr<Host> DetectHost(const DetectOptions& options) {
  SKEIN_ASSIGN_OR_RETURN(DetectedHost detected, DetectHostAndHealth(options));
  return std::move(detected.host);
}

}  // namespace skein::topology
