#include "topology/presets/presets.h"

#include <algorithm>
#include <array>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "topology/has_rates.h"

namespace skein::topology {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;
constexpr int64_t kGiB = int64_t{1} << 30;
constexpr double kGigabit = 1e9 / 8;

// What datasheets do not tell: round figures of what a message takes before its first byte is
// there, launch of the kernel that waits for it included.
constexpr absl::Duration kNvlinkLatency = absl::Microseconds(3);
constexpr absl::Duration kPcieLatency = absl::Microseconds(10);
constexpr absl::Duration kInfiniBandLatency = absl::Microseconds(10);
constexpr absl::Duration kEthernetLatency = absl::Microseconds(30);
// A step's order, launch and reply.
constexpr absl::Duration kStep = absl::Microseconds(50);

struct GpuKind {
  const char* model;
  int64_t memory_bytes;  // as the driver tells it
  double read_bytes_per_s;
  double operations_per_s;    // of 16-bit products, dense
  DType dtype;                // that those are for, with F16
  double nvlink_bytes_per_s;  // of one link, each way
  double pcie_bytes_per_s;  // of 16 lanes, each way, less a fifth for packets' headers and credits
};
constexpr GpuKind kV100 = {
    "Tesla V100-SXM2-32GB", 32768 * kMiB, 900e9, 125e12, DType::kF16, 25e9, 12.5e9};
constexpr GpuKind kA100 = {
    "NVIDIA A100-SXM4-80GB", 81920 * kMiB, 2039e9, 312e12, DType::kBF16, 25e9, 25e9};
constexpr GpuKind kA100Pcie = {
    "NVIDIA A100 80GB PCIe", 81920 * kMiB, 1935e9, 312e12, DType::kBF16, 25e9, 25e9};
constexpr GpuKind kH100 = {
    "NVIDIA H100 80GB HBM3", 81559 * kMiB, 3350e9, 989e12, DType::kBF16, 25e9, 50e9};
constexpr GpuKind kH200 = {"NVIDIA H200", 143771 * kMiB, 4800e9, 989e12, DType::kBF16, 25e9, 50e9};
constexpr GpuKind kL40S = {"NVIDIA L40S", 46068 * kMiB, 864e9, 362e12, DType::kBF16, 0, 25e9};

struct Machine {
  Preset preset;
  GpuKind gpu;
  int32_t gpus;
  int32_t gpus_of_switch;  // of PCIe; 1: each has a root port of its own
  // All alike, through so many NVSwitches; or NVLinks of pairs 0-1, 2-3, ... where there are none.
  int32_t nvlinks, nvswitches;
  bool cube_mesh;  // of a DGX-1 instead
  const char* cpu;
  int32_t sockets, cores;  // cores of all sockets
  int64_t memory_bytes;
  int32_t nics;  // spread over the switches, or over the sockets where there are none
  NicKind nic;
  double nic_gigabits;
  const char* fabric;
};

const std::vector<Machine>& Machines() {
  static const auto& machines = *new std::vector<Machine>{
      {{"dgx-1v", "8 x V100 32 GB, NVLink as a hybrid cube mesh, 4 x 100 Gb/s InfiniBand"},
       kV100,
       8,
       2,
       0,
       0,
       true,
       "Intel Xeon E5-2698 v4",
       2,
       40,
       512 * kGiB,
       4,
       NicKind::kInfiniBand,
       100,
       "ib-edr"},
      {{"dgx-a100", "8 x A100 80 GB, NVSwitch, 8 x 200 Gb/s InfiniBand"},
       kA100,
       8,
       2,
       12,
       6,
       false,
       "AMD EPYC 7742",
       2,
       128,
       2048 * kGiB,
       8,
       NicKind::kInfiniBand,
       200,
       "ib-hdr"},
      {{"dgx-h100", "8 x H100 80 GB, NVSwitch, 8 x 400 Gb/s InfiniBand"},
       kH100,
       8,
       1,
       18,
       4,
       false,
       "Intel Xeon Platinum 8480C",
       2,
       112,
       2048 * kGiB,
       8,
       NicKind::kInfiniBand,
       400,
       "ib-ndr"},
      {{"dgx-h200", "8 x H200 141 GB, NVSwitch, 8 x 400 Gb/s InfiniBand"},
       kH200,
       8,
       1,
       18,
       4,
       false,
       "Intel Xeon Platinum 8480C",
       2,
       112,
       2048 * kGiB,
       8,
       NicKind::kInfiniBand,
       400,
       "ib-ndr"},
      {{"pcie-4", "4 x L40S 48 GB on 2 sockets, PCIe 4 without NVLink, 100 Gb/s Ethernet"},
       kL40S,
       4,
       1,
       0,
       0,
       false,
       "",
       2,
       64,
       512 * kGiB,
       1,
       NicKind::kEthernet,
       100,
       "ethernet-100g"},
      {{"pcie-8", "8 x L40S 48 GB on 2 sockets, PCIe 4 without NVLink, 100 Gb/s Ethernet"},
       kL40S,
       8,
       2,
       0,
       0,
       false,
       "",
       2,
       96,
       1024 * kGiB,
       2,
       NicKind::kEthernet,
       100,
       "ethernet-100g"},
      {{"pcie-4-bridged", "4 x A100 80 GB PCIe, NVLink bridges of 2 pairs, 100 Gb/s Ethernet"},
       kA100Pcie,
       4,
       1,
       12,
       0,
       false,
       "",
       2,
       64,
       512 * kGiB,
       1,
       NicKind::kEthernet,
       100,
       "ethernet-100g"},
  };
  return machines;
}

// NVLinks of a DGX-1 with V100: two squares with their diagonals, and an edge from each corner to
// the other square's.
constexpr std::array<std::array<int8_t, 8>, 8> kCubeMesh = {{{0, 1, 1, 2, 2, 0, 0, 0},
                                                             {1, 0, 2, 1, 0, 2, 0, 0},
                                                             {1, 2, 0, 2, 0, 0, 1, 0},
                                                             {2, 1, 2, 0, 0, 0, 0, 1},
                                                             {2, 0, 0, 0, 0, 1, 1, 2},
                                                             {0, 2, 0, 0, 1, 0, 2, 1},
                                                             {0, 0, 1, 0, 1, 2, 0, 2},
                                                             {0, 0, 0, 1, 2, 1, 2, 0}}};

int32_t Nvlinks(const Machine& machine, int32_t i, int32_t j) {
  if (machine.cube_mesh) return kCubeMesh[i][j];
  return machine.nvswitches > 0 || i / 2 == j / 2 ? machine.nvlinks : 0;
}

// Where a device is on PCIe.
struct Place {
  int32_t socket = 0;
  int32_t port = 0;  // of a switch, or of the socket itself; devices of one port share it
};

Connection Between(const Place& a, const Place& b) {
  if (a.socket != b.socket) return {Path::kSystem};
  return {a.port == b.port ? Path::kSwitch : Path::kNode};
}

Place PlaceOfGpu(const Machine& machine, int32_t gpu) {
  return {gpu / (machine.gpus / machine.sockets), gpu / machine.gpus_of_switch};
}

Place PlaceOfNic(const Machine& machine, int32_t nic) {
  const int32_t ports = machine.gpus / machine.gpus_of_switch;
  // A NIC of an Ethernet server has a root port of its own.
  if (machine.nic == NicKind::kEthernet) return {nic * machine.sockets / machine.nics, ports + nic};
  const int32_t port = nic * ports / machine.nics;
  return {port / (ports / machine.sockets), port};
}

Interconnect InterconnectOf(const Machine& machine) {
  Interconnect of;
  std::vector<Place> places;
  const int32_t cores_of_socket = machine.cores / machine.sockets;
  for (int32_t i = 0; i < machine.gpus; ++i) {
    const GpuKind& kind = machine.gpu;
    Gpu gpu{.name = absl::StrCat("GPU", i), .model = kind.model, .memory_bytes = kind.memory_bytes};
    places.push_back(PlaceOfGpu(machine, i));
    gpu.numa_node = places.back().socket;
    for (int32_t core = 0; core < cores_of_socket; ++core) {
      gpu.cpus.push_back(gpu.numa_node * cores_of_socket + core);
    }
    gpu.rates.origin = Origin::kModelled;
    gpu.rates.reads = {{kind.memory_bytes, kind.read_bytes_per_s, kind.read_bytes_per_s}};
    if (kind.dtype == DType::kBF16) {
      gpu.rates.products.push_back({DType::kBF16, 0, 1, kind.operations_per_s});
    }
    gpu.rates.products.push_back({DType::kF16, 0, 1, kind.operations_per_s});
    gpu.rates.overheads = {{.step = kStep}};
    gpu.to_host = {Origin::kModelled, kPcieLatency, kind.pcie_bytes_per_s};
    of.gpus.push_back(gpu);
  }
  for (int32_t i = 0; i < machine.nics; ++i) {
    of.nics.push_back({.name = absl::StrCat("NIC", i),
                       .kind = machine.nic,
                       .bytes_per_s = machine.nic_gigabits * kGigabit});
    places.push_back(PlaceOfNic(machine, i));
  }
  for (size_t i = 0; i < places.size(); ++i) {
    std::vector<Connection>& row = of.connections.emplace_back();
    for (size_t j = 0; j < places.size(); ++j) {
      const bool gpus = std::max(i, j) < of.gpus.size();
      const int32_t nvlinks =
          gpus && i != j ? Nvlinks(machine, static_cast<int32_t>(i), static_cast<int32_t>(j)) : 0;
      row.push_back(i == j        ? Connection{}
                    : nvlinks > 0 ? Connection{Path::kNvlink, nvlinks}
                                  : Between(places[i], places[j]));
    }
  }
  of.nvswitches = machine.nvswitches;
  return of;
}

Host HostOf(const Machine& machine) {
  Host host{.name = machine.preset.name,
            .cpu = machine.cpu,
            .sockets = machine.sockets,
            .cores = machine.cores,
            .memory_bytes = machine.memory_bytes,
            .shm_bytes = machine.memory_bytes / 2};  // Linux's default
  const int32_t cores = machine.cores / machine.sockets;
  for (int32_t i = 0; i < machine.sockets; ++i) {
    NumaNode& numa = host.numa_nodes.emplace_back();
    for (int32_t core = 0; core < cores; ++core) numa.cpus.push_back(i * cores + core);
    numa.memory_bytes = machine.memory_bytes / machine.sockets;
  }
  host.interconnect = InterconnectOf(machine);
  const auto add = [&host](Path path, absl::Duration latency, double bytes_per_s) {
    host.links.push_back({path, {Origin::kModelled, latency, bytes_per_s}});
  };
  const GpuKind& gpu = machine.gpu;
  if (gpu.nvlink_bytes_per_s > 0) add(Path::kNvlink, kNvlinkLatency, gpu.nvlink_bytes_per_s);
  for (const Path path : {Path::kSwitch, Path::kSwitches, Path::kBridge, Path::kNode}) {
    add(path, kPcieLatency, gpu.pcie_bytes_per_s);
  }
  // GPUs of two sockets meet on the link between those.
  add(Path::kSystem, kPcieLatency, gpu.pcie_bytes_per_s / 2);
  return host;
}

struct NamedFabric {
  const char* name;
  const char* says;
  double gigabits;
  absl::Duration latency;
};
constexpr std::array kFabrics = {
    NamedFabric{"ib-edr", "InfiniBand EDR", 100, kInfiniBandLatency},
    NamedFabric{"ib-hdr", "InfiniBand HDR", 200, kInfiniBandLatency},
    NamedFabric{"ib-ndr", "InfiniBand NDR", 400, kInfiniBandLatency},
    NamedFabric{"ethernet-10g", "10 Gb/s Ethernet", 10, kEthernetLatency},
    NamedFabric{"ethernet-25g", "25 Gb/s Ethernet", 25, kEthernetLatency},
    NamedFabric{"ethernet-100g", "100 Gb/s Ethernet", 100, kEthernetLatency},
};

void CompleteGpu(const Gpu& like, Gpu& gpu) {
  if (gpu.model.empty()) gpu.model = like.model;
  if (gpu.memory_bytes == 0) gpu.memory_bytes = like.memory_bytes;
  if (!HasRates(gpu.rates)) gpu.rates = like.rates;
  if (gpu.to_host.bytes_per_s == 0) gpu.to_host = like.to_host;
}

// The preset whose figures GPUs of this name have.
std::string_view PresetLike(const std::string& model) {
  for (const auto& [part, preset] : {std::pair{"H200", "dgx-h200"},
                                     {"H100", "dgx-h100"},
                                     {"V100", "dgx-1v"},
                                     {"L40", "pcie-8"}}) {
    if (absl::StrContains(model, part)) return preset;
  }
  return "dgx-a100";
}

// A core of a small server, and two ranks that exchange through its memory.
DeviceRates AssumedCore() {
  return {.origin = Origin::kModelled,
          .reads = {{32 * kMiB, 20e9, 20e9}, {kGiB, 10e9, 6e9}},
          .products = {{DType::kBF16, 0, 1, 10e9},
                       {DType::kBF16, 0, 16, 60e9},
                       {DType::kQ8_0, 0, 1, 40e9},
                       {DType::kQ8_0, 0, 16, 120e9}},
          .overheads = {{.step = absl::Microseconds(100), .layer = absl::Microseconds(30)}}};
}
constexpr LinkRate kAssumedMemory = {Origin::kModelled, absl::Microseconds(20), 4e9};
constexpr double kAssumedFabricGigabits = 10;

}  // namespace

const std::vector<Preset>& Presets() {
  static const auto& presets = *[] {
    auto* names = new std::vector<Preset>;
    for (const Machine& machine : Machines()) names->push_back(machine.preset);
    return names;
  }();
  return presets;
}

bool IsPreset(std::string_view name) {
  return std::any_of(Presets().begin(), Presets().end(),
                     [&](const Preset& preset) { return preset.name == name; });
}

const std::vector<std::string>& FabricNames() {
  static const auto& names = *[] {
    auto* list = new std::vector<std::string>;
    for (const NamedFabric& fabric : kFabrics) list->push_back(fabric.name);
    return list;
  }();
  return names;
}

absl::StatusOr<Fabric> MakeFabric(std::string_view name) {
  for (const NamedFabric& fabric : kFabrics) {
    if (fabric.name == name) {
      return Fabric{fabric.says, {Origin::kModelled, fabric.latency, fabric.gigabits * kGigabit}};
    }
  }
  return absl::NotFoundError(absl::StrCat("no fabric is called '", std::string(name),
                                          "'; there are: ", absl::StrJoin(FabricNames(), ", ")));
}

absl::StatusOr<Topology> MakePreset(std::string_view name, int32_t nodes, std::string_view fabric) {
  const auto machine = std::find_if(Machines().begin(), Machines().end(),
                                    [&](const Machine& m) { return m.preset.name == name; });
  if (machine == Machines().end()) {
    const auto by_name = [](std::string* out, const Preset& preset) { *out += preset.name; };
    return absl::NotFoundError(
        absl::StrCat("no preset is called '", std::string(name),
                     "'; there are: ", absl::StrJoin(Presets(), ", ", by_name)));
  }
  if (nodes < 1 || nodes > kMaxHosts) {
    return absl::InvalidArgumentError(
        absl::StrCat(nodes, " nodes cannot be: 1 to ", kMaxHosts, " can"));
  }
  SKEIN_ASSIGN_OR_RETURN(const Fabric between,
                         MakeFabric(fabric.empty() ? machine->fabric : fabric));
  Topology topology{.name = machine->preset.name};
  Host host = HostOf(*machine);
  if (nodes == 1) {
    topology.hosts.push_back(std::move(host));
    return topology;
  }
  for (int32_t i = 0; i < nodes; ++i) {
    host.name = absl::StrCat("node", i);
    topology.hosts.push_back(host);
  }
  topology.fabric = between;
  return topology;
}

absl::Status CompleteLike(std::string_view preset, Topology& topology) {
  SKEIN_ASSIGN_OR_RETURN(const Topology two, MakePreset(preset, 2));
  const Host& like = two.hosts.front();
  const Gpu& gpu_like = like.interconnect.gpus.front();
  for (Host& host : topology.hosts) {
    if (host.name.empty()) host.name = "host";
    if (host.cores == 0) host.cores = like.cores;
    if (host.memory_bytes == 0) host.memory_bytes = like.memory_bytes;
    for (Gpu& gpu : host.interconnect.gpus) CompleteGpu(gpu_like, gpu);
    for (const auto& link : like.links) {
      const auto known = [&](const auto& other) { return other.first == link.first; };
      if (std::none_of(host.links.begin(), host.links.end(), known)) host.links.push_back(link);
    }
    std::sort(host.links.begin(), host.links.end(),
              [](const auto& a, const auto& b) { return a.first < b.first; });
  }
  if (topology.hosts.size() > 1 && topology.fabric.link.bytes_per_s == 0) {
    topology.fabric = two.fabric;
  }
  return absl::OkStatus();
}

void AssumeFigures(Topology& topology) {
  for (Host& host : topology.hosts) {
    if (host.interconnect.gpus.empty()) {
      if (!HasRates(host.core_rates)) host.core_rates = AssumedCore();
      const bool linked = std::any_of(host.links.begin(), host.links.end(),
                                      [](const auto& link) { return link.first == Path::kSelf; });
      if (!linked) host.links.insert(host.links.begin(), {Path::kSelf, kAssumedMemory});
      continue;
    }
    // Cards may be unlike ones; links are as the first one's.
    for (Gpu& gpu : host.interconnect.gpus) {
      const absl::StatusOr<Topology> like = MakePreset(PresetLike(gpu.model), 1);
      if (like.ok()) CompleteGpu(like->hosts[0].interconnect.gpus[0], gpu);
    }
    Topology alone{.hosts = {std::move(host)}};
    CompleteLike(PresetLike(alone.hosts[0].interconnect.gpus[0].model), alone).IgnoreError();
    host = std::move(alone.hosts[0]);
  }
  if (topology.hosts.size() > 1 && topology.fabric.link.bytes_per_s == 0) {
    topology.fabric.link = {Origin::kModelled, kEthernetLatency, kAssumedFabricGigabits * kGigabit};
  }
}

}  // namespace skein::topology
