#include "topology/formats/hwloc_xml.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/status_macros.h"
#include "pugixml.hpp"
#include "topology/cpus.h"
#include "topology/formats/hwloc_nvlinks.h"
#include "topology/formats/nvlinks.h"
#include "topology/formats/pci.h"
#include "topology/formats/xml.h"
#include "topology/pci_address.h"

namespace skein::topology {
namespace {

constexpr size_t kMostDevices = 64;      // GPUs, and as many NICs
constexpr int64_t kMostNumaNode = 1023;  // as Linux is built for
constexpr int64_t kMostBytes = int64_t{1} << 50;
constexpr int64_t kMostIndex = int64_t{1} << 40;

constexpr uint32_t kNvidia = 0x10de;
constexpr uint32_t kAmd = 0x1002;
constexpr uint32_t kIntel = 0x8086;
// hwloc's types of what the system calls devices.
constexpr int64_t kNetworkDevice = 2;
constexpr int64_t kOpenFabrics = 3;
constexpr int64_t kMostOsDevice = 64;  // later versions have more

constexpr char kWhat[] = "a topology of hwloc";

std::string_view TypeOf(pugi::xml_node object) {
  if (std::string_view(object.name()) != "object") return "";
  return object.attribute("type").value();
}

std::string InfoOf(pugi::xml_node object, const char* name) {
  const pugi::xml_node info = object.find_child_by_attribute("info", "name", name);
  return std::string(absl::StripAsciiWhitespace(PrintableAttribute(info, "value")));
}

struct PciType {
  uint32_t pci_class = 0, vendor = 0, device = 0;
};

// "0302 [10de:2330] ..."
std::optional<PciType> ParsePciType(absl::string_view text) {
  PciType type;
  for (const auto& [before, part] :
       {std::pair{"", &type.pci_class}, {" [", &type.vendor}, {":", &type.device}}) {
    if (!absl::ConsumePrefix(&text, before)) return std::nullopt;
    const absl::string_view digits = text.substr(0, 4);
    if (digits.size() != 4 || !std::all_of(digits.begin(), digits.end(), absl::ascii_isxdigit) ||
        !absl::SimpleHexAtoi(digits, part)) {
      return std::nullopt;
    }
    text.remove_prefix(4);
  }
  if (!absl::StartsWith(text, "]")) return std::nullopt;
  return type;
}

bool IsGpu(const PciType& type) {
  if (type.pci_class >> 8 != 0x03) return false;
  if (type.vendor == kNvidia) return true;
  const bool computes = type.pci_class == 0x0302 || type.pci_class == 0x0380;
  return computes && (type.vendor == kAmd || type.vendor == kIntel);
}

// Where an object is.
struct Around {
  pugi::xml_node holder;  // the innermost that has processors
  TreePlace place;
  int bridges = 0;  // between the host bridge and here, that one too
};

struct FoundGpu {
  pugi::xml_node node;
  pugi::xml_node holder;
  TreePlace place;
  PciType type;
  Gpu gpu;
};
struct FoundNic {
  pugi::xml_node holder;
  TreePlace place;
  Nic nic;
};
struct FoundNumaNode {
  int64_t number = 0;
  bool of_gpu = false;
  NumaNode node;
};

class Reader {
 public:
  explicit Reader(const XmlFile& file) : file_(file) {}

  absl::StatusOr<Host> Read(std::optional<int32_t> nvlinks) {
    SKEIN_RETURN_IF_ERROR(CheckVersion());
    pugi::xml_node machine;
    for (const pugi::xml_node object : file_.root().children("object")) {
      if (machine) return file_.Error(object, "a second object beside the machine's");
      machine = object;
    }
    if (TypeOf(machine) != "Machine") {
      return file_.Error(machine ? machine : file_.root(),
                         "no object of type=\"Machine\" at the top");
    }
    host_.name = InfoOf(machine, "HostName");
    SKEIN_ASSIGN_OR_RETURN(allowed_, file_.Mask(machine, "allowed_cpuset"));
    SKEIN_RETURN_IF_ERROR(ReadObject(machine, {}));
    SKEIN_RETURN_IF_ERROR(ReadNumaNodes(machine));
    host_.cores = cores_ > 0 ? cores_ : processors_;
    if (host_.cores == 0) return file_.Error(machine, "no processor that it allows");
    SKEIN_RETURN_IF_ERROR(Assemble());
    SKEIN_RETURN_IF_ERROR(Connect(nvlinks));
    return host_;
  }

 private:
  absl::Status CheckVersion() const {
    const std::string version = file_.root().attribute("version").value();
    if (absl::StartsWith(version, "2.")) return absl::OkStatus();
    return file_.Error(file_.root(),
                       absl::StrCat(version.empty() ? "a topology without version, as of hwloc 1"
                                                    : absl::StrCat("version ", QuotedXml(version)),
                                    ", where this reads 2.x: write it with a hwloc 2, `lstopo "
                                    "--of xml`"));
  }

  // An object and what is in it. The tree is not deeper than kMostXmlDepth.
  absl::Status ReadObject(pugi::xml_node object, Around around) {
    const std::string_view type = TypeOf(object);
    SKEIN_ASSIGN_OR_RETURN(const auto index, file_.Integer(object, "gp_index", 0, kMostIndex));
    if (index.has_value() && !objects_.roles.emplace(*index, HwlocObjects::kOther).second) {
      return file_.Error(object, absl::StrCat("a second object of gp_index ", *index));
    }
    if (type == "Bridge") {
      ReadBridge(around);
    } else if (type == "PCIDev") {
      SKEIN_RETURN_IF_ERROR(ReadPciDevice(object, around));
    } else if (type == "OSDev") {
      SKEIN_RETURN_IF_ERROR(ReadOsDevice(object, around, {}).status());
    } else if (type == "NUMANode") {
      SKEIN_RETURN_IF_ERROR(ReadNumaNode(object));
    } else if (type != "Misc") {
      SKEIN_RETURN_IF_ERROR(ReadPart(object, type));
      if (object.attribute("cpuset")) around.holder = object;
    }
    for (const pugi::xml_node child : object.children("object")) {
      // Those of a PCI device are read with it.
      if (type == "PCIDev" && TypeOf(child) == "OSDev") continue;
      SKEIN_RETURN_IF_ERROR(ReadObject(child, around));
    }
    return absl::OkStatus();
  }

  // Packages, caches, cores and processors.
  absl::Status ReadPart(pugi::xml_node object, std::string_view type) {
    SKEIN_ASSIGN_OR_RETURN(const std::optional<Cpus> cpus, file_.Mask(object, "cpuset"));
    const auto is_allowed = [&](int cpu) {
      return !allowed_.has_value() || std::binary_search(allowed_->begin(), allowed_->end(), cpu);
    };
    const bool allowed = cpus.has_value() && std::any_of(cpus->begin(), cpus->end(), is_allowed);
    if (type == "Package") {
      ++host_.sockets;
      if (host_.cpu.empty()) host_.cpu = InfoOf(object, "CPUModel");
    } else if (type == "Core") {
      if (allowed) ++cores_;
      cores_by_first_.insert(cpus.has_value() && !cpus->empty() ? cpus->front() : -1);
    } else if (type == "PU") {
      if (allowed) ++processors_;
    } else if (type == "L2Cache" || type == "L3Cache") {
      SKEIN_ASSIGN_OR_RETURN(const int64_t bytes,
                             file_.RequiredInteger(object, "cache_size", 0, kMostBytes));
      if (type == "L3Cache") {
        host_.l3_bytes += bytes;
      } else {
        l2_.emplace_back(bytes, cpus.value_or(Cpus()));
      }
      if (host_.l3_bytes > kMostBytes) return file_.Error(object, "the L3 caches are too large");
    }
    return absl::OkStatus();
  }

  absl::Status ReadNumaNode(pugi::xml_node object) {
    FoundNumaNode found;
    SKEIN_ASSIGN_OR_RETURN(found.number,
                           file_.RequiredInteger(object, "os_index", 0, kMostNumaNode));
    for (const FoundNumaNode& other : numa_nodes_) {
      if (other.number == found.number) {
        return file_.Error(object, absl::StrCat("a second NUMA node ", found.number));
      }
    }
    found.of_gpu = std::string_view(object.attribute("subtype").value()) == "GPUMemory";
    SKEIN_ASSIGN_OR_RETURN(const auto cpus, file_.Mask(object, "cpuset"));
    SKEIN_ASSIGN_OR_RETURN(const auto bytes, file_.Integer(object, "local_memory", 0, kMostBytes));
    found.node = {.cpus = cpus.value_or(Cpus()), .memory_bytes = bytes.value_or(0)};
    numa_nodes_.push_back(std::move(found));
    return absl::OkStatus();
  }

  absl::Status ReadNumaNodes(pugi::xml_node machine) {
    std::sort(numa_nodes_.begin(), numa_nodes_.end(),
              [](const auto& a, const auto& b) { return a.number < b.number; });
    for (const FoundNumaNode& found : numa_nodes_) {
      host_.numa_nodes.resize(found.number + 1);
      if (found.of_gpu) continue;
      host_.numa_nodes.back() = found.node;
      host_.memory_bytes += found.node.memory_bytes;
    }
    if (numa_nodes_.empty())
      return file_.Error(machine, "no NUMA node, which hwloc 2 always writes");
    return absl::OkStatus();
  }

  // Ports alternate below a host bridge: a root port, then for each switch one up and one down. The
  // switch is the one up.
  void ReadBridge(Around& around) {
    if (around.bridges == 0) {
      around.place.host_bridge = number_of_bridges_;
    } else if (around.bridges == 1 || around.bridges % 2 == 0) {
      around.place.switches.push_back(number_of_bridges_);
    }
    ++around.bridges;
    ++number_of_bridges_;
  }

  absl::Status ReadPciDevice(pugi::xml_node object, const Around& around) {
    const char* const text = object.attribute("pci_type").value();
    const std::optional<PciType> type = ParsePciType(text);
    if (!type.has_value()) {
      return file_.Error(object, absl::StrCat("pci_type=", QuotedXml(text),
                                              " is no class and device, as \"0302 [10de:2330]\""));
    }
    const std::string address = PciAddress(object.attribute("pci_busid").value());
    if (address.empty()) {
      return file_.Error(
          object, absl::StrCat("pci_busid=", QuotedXml(object.attribute("pci_busid").value()),
                               " is no address of PCI, as \"0000:9a:00.0\""));
    }
    if (!bus_ids_.insert(address).second) {
      return file_.Error(object, absl::StrCat("a second device ", address));
    }
    if (IsGpu(*type)) return ReadGpu(object, around, *type, address);
    if (type->vendor == kNvidia && type->pci_class == 0x0680) {
      objects_.roles[object.attribute("gp_index").as_llong(-1)] = HwlocObjects::kSwitch;
    }
    return ReadNics(object, around, *type, address);
  }

  absl::Status ReadGpu(pugi::xml_node object, const Around& around, const PciType& type,
                       const std::string& address) {
    if (gpus_.size() == kMostDevices) {
      return file_.Error(object, absl::StrCat("more than ", kMostDevices, " GPUs"));
    }
    FoundGpu found{.node = object, .holder = around.holder, .place = around.place, .type = type};
    found.gpu.bus_id = address;
    for (const pugi::xml_node device : object.children("object")) {
      SKEIN_RETURN_IF_ERROR(NoteOsDevice(device));
      if (found.gpu.model.empty()) found.gpu.model = InfoOf(device, "GPUModel");
      const std::string kib = InfoOf(device, "CUDAGlobalMemorySize");
      if (kib.empty()) continue;
      int64_t number = 0;
      if (!absl::SimpleAtoi(kib, &number) || number < 0 || number > kMostBytes / 1024) {
        return file_.Error(
            device, absl::StrCat("CUDAGlobalMemorySize ", QuotedXml(kib), " is no number of KiB"));
      }
      found.gpu.memory_bytes = number * 1024;
    }
    if (found.gpu.model.empty()) found.gpu.model = InfoOf(object, "PCIDevice");
    if (found.gpu.model.empty()) found.gpu.model = PrintableAttribute(object, "name");
    gpus_.push_back(std::move(found));
    return absl::OkStatus();
  }

  // A device of a PCI device. One of a GPU stands for this in matrices, once GPUs are in order.
  absl::Status NoteOsDevice(pugi::xml_node device) {
    if (TypeOf(device) != "OSDev") return absl::OkStatus();
    SKEIN_ASSIGN_OR_RETURN(const auto index, file_.Integer(device, "gp_index", 0, kMostIndex));
    if (index.has_value() && !objects_.roles.emplace(*index, HwlocObjects::kOther).second) {
      return file_.Error(device, absl::StrCat("a second object of gp_index ", *index));
    }
    return absl::OkStatus();
  }

  // The devices of the system that a PCI device is, by OpenFabrics where it is there.
  absl::Status ReadNics(pugi::xml_node object, const Around& around, const PciType& type,
                        const std::string& address) {
    bool open_fabrics = false;
    for (const pugi::xml_node device : object.children("object")) {
      open_fabrics = open_fabrics || (TypeOf(device) == "OSDev" &&
                                      device.attribute("osdev_type").as_int(-1) == kOpenFabrics);
    }
    for (const pugi::xml_node device : object.children("object")) {
      if (TypeOf(device) != "OSDev") continue;
      SKEIN_RETURN_IF_ERROR(NoteOsDevice(device));
      const Nic nic = {.bus_id = address, .kind = NicKindOfClass(type.pci_class << 8)};
      const size_t before = nics_.size();
      SKEIN_ASSIGN_OR_RETURN(const int64_t kind, ReadOsDevice(device, around, nic));
      if (open_fabrics && kind == kNetworkDevice) nics_.resize(before);
    }
    return absl::OkStatus();
  }

  // Its type.
  absl::StatusOr<int64_t> ReadOsDevice(pugi::xml_node device, const Around& around, Nic nic) {
    SKEIN_ASSIGN_OR_RETURN(const int64_t type,
                           file_.RequiredInteger(device, "osdev_type", 0, kMostOsDevice));
    if (type != kNetworkDevice && type != kOpenFabrics) return type;
    if (nics_.size() == kMostDevices) {
      return file_.Error(device, absl::StrCat("more than ", kMostDevices, " NICs"));
    }
    nic.device = PrintableAttribute(device, "name");
    if (nic.kind == NicKind::kUnknown) {
      const bool infiniband = type == kOpenFabrics || absl::StartsWith(nic.device, "ib");
      nic.kind = infiniband ? NicKind::kInfiniBand : NicKind::kEthernet;
    }
    nics_.push_back({.holder = around.holder, .place = around.place, .nic = std::move(nic)});
    return type;
  }

  // The first node of the host whose processors are all of the holder's, or more: a package may
  // have memory of other kinds beside it. -1: several nodes share them.
  absl::StatusOr<int32_t> NumaNodeOf(pugi::xml_node holder, Cpus& cpus) const {
    SKEIN_ASSIGN_OR_RETURN(const std::optional<Cpus> near, file_.Mask(holder, "cpuset"));
    cpus = near.value_or(Cpus());
    if (cpus.empty()) return -1;
    for (const FoundNumaNode& found : numa_nodes_) {
      const Cpus& own = found.node.cpus;
      if (!found.of_gpu && std::includes(own.begin(), own.end(), cpus.begin(), cpus.end())) {
        return static_cast<int32_t>(found.number);
      }
    }
    if (TypeOf(holder) == "Machine") cpus.clear();  // all are near what is not told
    return -1;
  }

  absl::Status Assemble() {
    for (const auto& [bytes, cpus] : l2_) {
      const auto cores = std::count_if(cpus.begin(), cpus.end(),
                                       [&](int cpu) { return cores_by_first_.count(cpu) > 0; });
      const int64_t of_core = bytes / std::max<int64_t>(cores, 1);
      host_.l2_bytes = host_.l2_bytes == 0 ? of_core : std::min(host_.l2_bytes, of_core);
    }
    std::sort(gpus_.begin(), gpus_.end(), [](const FoundGpu& a, const FoundGpu& b) {
      return std::pair(a.gpu.bus_id.size(), a.gpu.bus_id) <
             std::pair(b.gpu.bus_id.size(), b.gpu.bus_id);
    });
    Interconnect& to = host_.interconnect;
    std::vector<TreePlace> places;
    for (FoundGpu& found : gpus_) {
      SKEIN_ASSIGN_OR_RETURN(found.gpu.numa_node, NumaNodeOf(found.holder, found.gpu.cpus));
      found.gpu.name = absl::StrCat("GPU", to.gpus.size());
      found.place.numa_node = found.gpu.numa_node;
      to.gpus.push_back(found.gpu);
      places.push_back(found.place);
    }
    for (FoundNic& found : nics_) {
      Cpus unused;
      SKEIN_ASSIGN_OR_RETURN(found.place.numa_node, NumaNodeOf(found.holder, unused));
      found.nic.name = absl::StrCat("NIC", to.nics.size());
      to.nics.push_back(found.nic);
      places.push_back(found.place);
    }
    to.connections = ConnectionsBetween(places);
    return absl::OkStatus();
  }

  absl::Status Connect(std::optional<int32_t> nvlinks) {
    for (size_t i = 0; i < gpus_.size(); ++i) {
      const bool nvidia = gpus_[i].type.vendor == kNvidia;
      objects_.mb_per_s_of_link.push_back(nvidia ? HwlocMbPerSOfLink(gpus_[i].type.device) : 0);
      SetRole(gpus_[i].node, static_cast<int>(i));
      for (const pugi::xml_node device : gpus_[i].node.children("object")) {
        if (TypeOf(device) == "OSDev") SetRole(device, static_cast<int>(i));
      }
    }
    SKEIN_ASSIGN_OR_RETURN(HwlocNvlinks found, ReadHwlocNvlinks(file_, objects_));
    for (size_t i = 0; i < gpus_.size(); ++i) {
      for (size_t j = 0; j < gpus_.size(); ++j) {
        const bool both = gpus_[i].type.vendor == kNvidia && gpus_[j].type.vendor == kNvidia;
        if (!both) found.between[i][j] = 0;
      }
    }
    host_.interconnect.nvswitches = found.nvswitches;
    const auto left_out = [&](size_t i, size_t j) {
      const Gpu& gpu = gpus_[i].gpu;
      const std::string both = absl::StrCat(gpu.name, " (", gpu.bus_id, ") and ", gpus_[j].gpu.name,
                                            " (", gpus_[j].gpu.bus_id, ")");
      return found.matrix
                 ? absl::StrCat(file_.Where(found.matrix),
                                "NVLinkBandwidth does not tell how many NVLinks connect ", both)
                 : absl::StrCat(file_.Where(gpus_[i].node), "nothing tells the NVLinks of ", both,
                                ": hwloc writes them where it is built with NVML");
    };
    return ConnectByNvlinks(found.between, nvlinks, left_out, host_.interconnect);
  }

  void SetRole(pugi::xml_node object, int role) {
    const pugi::xml_attribute index = object.attribute("gp_index");
    if (index) objects_.roles[index.as_llong()] = role;
  }

  const XmlFile& file_;
  Host host_;
  std::optional<Cpus> allowed_;
  int32_t cores_ = 0;
  int32_t processors_ = 0;
  int number_of_bridges_ = 0;
  std::vector<std::pair<int64_t, Cpus>> l2_;
  std::set<int> cores_by_first_;  // by their first processor
  std::vector<FoundNumaNode> numa_nodes_;
  std::set<std::string> bus_ids_;
  std::vector<FoundGpu> gpus_;
  std::vector<FoundNic> nics_;
  HwlocObjects objects_;
};

}  // namespace

absl::StatusOr<Host> ParseHwlocXml(std::string_view text, const HwlocXmlOptions& options) {
  SKEIN_ASSIGN_OR_RETURN(const std::unique_ptr<XmlFile> file,
                         XmlFile::Parse(text, "topology", kWhat, XmlFile::Doctype::kNamed));
  return Reader(*file).Read(options.nvlinks);
}

}  // namespace skein::topology
