#include "topology/formats/nccl_xml.h"

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
#include "base/status_macros.h"
#include "pugixml.hpp"
#include "topology/cpus.h"
#include "topology/formats/nvlinks.h"
#include "topology/formats/pci.h"
#include "topology/formats/xml.h"
#include "topology/pci_address.h"

namespace skein::topology {
namespace {

constexpr size_t kMostDevices = 64;  // GPUs, and as many NICs: the largest nodes have 16 of each
constexpr int64_t kMostNumaNode = 1023;      // as Linux is built for
constexpr int64_t kMostSpeed = 100'000'000;  // Mb/s; NICs of today have 800,000
constexpr double kBytesPerMegabit = 1e6 / 8;

// First byte of a class.
constexpr uint32_t kNetwork = 0x02;
constexpr uint32_t kDisplay = 0x03;
constexpr uint32_t kBridge = 0x06;
// What an NVLink leads to.
constexpr uint32_t kNvswitch = 0x068000;
constexpr uint32_t kHostPort = 0x068001;  // of a POWER processor

constexpr char kWhat[] = "a topology of NCCL";

bool Is(pugi::xml_node node, const char* name) { return std::string_view(node.name()) == name; }

// Where an element may be; others are passed over.
bool IsMisplaced(pugi::xml_node node) {
  const pugi::xml_node parent = node.parent();
  if (Is(node, "cpu")) return !Is(parent, "system");
  if (Is(node, "pci") || Is(node, "nic")) return !Is(parent, "cpu") && !Is(parent, "pci");
  if (Is(node, "gpu")) return !Is(parent, "pci");
  if (Is(node, "net")) return !Is(parent, "nic");
  return Is(node, "nvlink") && !Is(parent, "gpu");
}

// Of a NIC that no PCI device tells of.
NicKind NicKindOfName(const std::string& name) {
  const bool infiniband = absl::StartsWith(name, "mlx4") || absl::StartsWith(name, "mlx5") ||
                          absl::StartsWith(name, "ib");
  return infiniband ? NicKind::kInfiniBand : NicKind::kEthernet;
}

struct FoundGpu {
  pugi::xml_node pci;
  TreePlace place;
  Gpu gpu;
  std::optional<int64_t> dev;
  // NVLinks
  bool told = false;
  pugi::xml_node to_itself;         // a link; none
  std::map<size_t, int32_t> links;  // by GPU
  int32_t to_switches = 0;
};

struct FoundNic {
  TreePlace place;
  Nic nic;
};

class Reader {
 public:
  explicit Reader(const XmlFile& file) : file_(file) {}

  absl::StatusOr<Interconnect> Read(std::optional<int32_t> nvlinks) {
    SKEIN_RETURN_IF_ERROR(ReadSystem());
    if (gpus_.empty()) return file_.Error(file_.root(), "no GPU is in this file");
    OrderGpus();
    for (size_t i = 0; i < gpus_.size(); ++i) SKEIN_RETURN_IF_ERROR(ReadNvlinks(i));
    Interconnect read = Assemble();
    SKEIN_ASSIGN_OR_RETURN(const NvlinksBetween between, Between());
    SKEIN_RETURN_IF_ERROR(ConnectByNvlinks(
        between, nvlinks, [&](size_t i, size_t j) { return LeftOut(i, j); }, read));
    return read;
  }

 private:
  absl::Status ReadSystem() {
    const pugi::xml_node system = file_.root();
    SKEIN_RETURN_IF_ERROR(file_.Integer(system, "version", 1, 1).status());
    for (const pugi::xml_node cpu : system) {
      if (IsMisplaced(cpu)) return Misplaced(cpu);
      if (Is(cpu, "cpu")) SKEIN_RETURN_IF_ERROR(ReadCpu(cpu));
    }
    return absl::OkStatus();
  }

  absl::Status Misplaced(pugi::xml_node node) const {
    return file_.Error(node,
                       absl::StrCat("a <", node.name(), "> in a ", QuotedXml(node.parent().name()),
                                    " has no place in ", kWhat));
  }

  absl::Status ReadCpu(pugi::xml_node cpu) {
    const std::string host = cpu.attribute("host_hash").value();
    if (number_of_cpus_ > 0 && host != host_) {
      return file_.Error(cpu, "a second host: give each host a file of its own");
    }
    host_ = host;
    SKEIN_ASSIGN_OR_RETURN(const auto numa_node, file_.Integer(cpu, "numaid", -1, kMostNumaNode));
    SKEIN_ASSIGN_OR_RETURN(const auto cpus, file_.Mask(cpu, "affinity"));
    near_ = cpus.value_or(Cpus());
    const TreePlace place = {.host_bridge = number_of_cpus_++,
                             .numa_node = static_cast<int32_t>(numa_node.value_or(-1))};
    return ReadBelow(cpu, place);
  }

  // The tree is not deeper than kMostXmlDepth.
  absl::Status ReadBelow(pugi::xml_node parent, const TreePlace& place) {
    for (const pugi::xml_node node : parent) {
      if (IsMisplaced(node)) return Misplaced(node);
      if (Is(node, "pci")) SKEIN_RETURN_IF_ERROR(ReadPci(node, place));
      if (Is(node, "nic") && Is(parent, "cpu")) SKEIN_RETURN_IF_ERROR(ReadNets(node, place, {}));
    }
    return absl::OkStatus();
  }

  absl::Status ReadPci(pugi::xml_node pci, TreePlace place) {
    SKEIN_ASSIGN_OR_RETURN(const std::optional<uint32_t> pci_class, Class(pci, "class"));
    const pugi::xml_node gpu = pci.child("gpu");
    const pugi::xml_node nic = pci.child("nic");
    if (!pci_class.has_value() && !gpu && !nic && !pci.child("pci")) {
      return file_.Error(
          pci, absl::StrCat("device ", QuotedXml(pci.attribute("busid").value()),
                            " without class, which NCCL finds on the host: is it a GPU or a NIC? "
                            "Write class=\"0x030200\" for a GPU, \"0x020000\" for ethernet, or "
                            "\"0x020700\" for InfiniBand into the file"));
    }
    const uint32_t base = pci_class.value_or(0) >> 16;
    if ((gpu && (nic || base == kNetwork || base == kBridge)) ||
        (nic && (base == kDisplay || base == kBridge))) {
      return file_.Error(pci, absl::StrCat("<", gpu ? "gpu" : "nic", "> in device ",
                                           QuotedXml(pci.attribute("busid").value()), " of ",
                                           gpu && nic ? "a <nic>" : "another class, ",
                                           gpu && nic ? "" : pci.attribute("class").value()));
    }
    if (gpu || base == kDisplay) {
      SKEIN_RETURN_IF_ERROR(ReadGpu(pci, place));
    } else if (nic || base == kNetwork) {
      SKEIN_RETURN_IF_ERROR(ReadNic(pci, place, pci_class));
    }
    if (!gpu && !nic && base != kDisplay && base != kNetwork) {
      place.switches.push_back(number_of_switches_++);
    }
    return ReadBelow(pci, place);
  }

  // 0x030200; nothing where there is none.
  absl::StatusOr<std::optional<uint32_t>> Class(pugi::xml_node node, const char* name) const {
    const std::string text = node.attribute(name).value();
    if (text.empty()) return std::nullopt;
    uint32_t value = 0;
    if (text.size() != 8 || !absl::StartsWith(text, "0x") ||
        !std::all_of(text.begin() + 2, text.end(), absl::ascii_isxdigit) ||
        !absl::SimpleHexAtoi(text, &value)) {
      return file_.Error(node, absl::StrCat(name, "=", QuotedXml(text),
                                            " is no class of PCI, as \"0x030200\" of a GPU"));
    }
    return value;
  }

  // Of a GPU or a NIC.
  absl::StatusOr<std::string> BusId(pugi::xml_node pci) {
    const char* const text = pci.attribute("busid").value();
    const std::string address = PciAddress(text);
    if (address.empty()) {
      return file_.Error(pci, absl::StrCat("busid=", QuotedXml(text),
                                           " is no address of PCI, as \"0000:9a:00.0\""));
    }
    if (!bus_ids_.insert(address).second) {
      return file_.Error(pci, absl::StrCat("a second device ", address));
    }
    return address;
  }

  absl::Status ReadGpu(pugi::xml_node pci, const TreePlace& place) {
    SKEIN_ASSIGN_OR_RETURN(const std::string bus_id, BusId(pci));
    if (gpus_.size() == kMostDevices) {
      return file_.Error(pci, absl::StrCat("more than ", kMostDevices, " GPUs"));
    }
    FoundGpu found{.pci = pci, .place = place};
    found.gpu = {.bus_id = bus_id, .cpus = near_, .numa_node = place.numa_node};
    const pugi::xml_node gpu = pci.child("gpu");
    if (gpu.next_sibling("gpu")) {
      return file_.Error(gpu.next_sibling("gpu"),
                         absl::StrCat("a second <gpu> in device ", bus_id));
    }
    SKEIN_ASSIGN_OR_RETURN(found.dev, file_.Integer(gpu, "dev", 0, 1023));
    for (const FoundGpu& other : gpus_) {
      if (found.dev.has_value() && other.dev == found.dev) {
        return file_.Error(gpu, absl::StrCat("a second GPU with dev=", *found.dev));
      }
    }
    gpus_.push_back(std::move(found));
    return absl::OkStatus();
  }

  absl::Status ReadNic(pugi::xml_node pci, const TreePlace& place,
                       std::optional<uint32_t> pci_class) {
    SKEIN_ASSIGN_OR_RETURN(const std::string bus_id, BusId(pci));
    const Nic nic = {.bus_id = bus_id, .kind = NicKindOfClass(pci_class.value_or(0))};
    const size_t before = nics_.size();
    for (const pugi::xml_node ports : pci.children("nic")) {
      SKEIN_RETURN_IF_ERROR(ReadNets(ports, place, nic));
    }
    return nics_.size() > before ? absl::OkStatus() : AddNic(pci, place, nic);
  }

  absl::Status ReadNets(pugi::xml_node ports, const TreePlace& place, Nic nic) {
    for (const pugi::xml_node net : ports) {
      if (IsMisplaced(net)) return Misplaced(net);
      if (!Is(net, "net")) continue;
      SKEIN_ASSIGN_OR_RETURN(const auto speed, file_.Integer(net, "speed", 0, kMostSpeed));
      nic.device = PrintableAttribute(net, "name");
      nic.bytes_per_s = static_cast<double>(speed.value_or(0)) * kBytesPerMegabit;
      if (nic.bus_id.empty()) nic.kind = NicKindOfName(nic.device);
      SKEIN_RETURN_IF_ERROR(AddNic(net, place, nic));
    }
    return absl::OkStatus();
  }

  absl::Status AddNic(pugi::xml_node node, const TreePlace& place, Nic nic) {
    if (nics_.size() == kMostDevices) {
      return file_.Error(node, absl::StrCat("more than ", kMostDevices, " NICs"));
    }
    nic.name = absl::StrCat("NIC", nics_.size());
    nics_.push_back({.place = place, .nic = std::move(nic)});
    return absl::OkStatus();
  }

  void OrderGpus() {
    const bool by_dev = std::all_of(gpus_.begin(), gpus_.end(),
                                    [](const FoundGpu& gpu) { return gpu.dev.has_value(); });
    if (by_dev) {
      std::sort(gpus_.begin(), gpus_.end(),
                [](const FoundGpu& a, const FoundGpu& b) { return a.dev < b.dev; });
    }
    for (size_t i = 0; i < gpus_.size(); ++i) {
      gpus_[i].gpu.name = absl::StrCat("GPU", by_dev ? *gpus_[i].dev : static_cast<int64_t>(i));
    }
  }

  absl::Status ReadNvlinks(size_t self) {
    FoundGpu& gpu = gpus_[self];
    for (const pugi::xml_node link : gpu.pci.child("gpu")) {
      if (IsMisplaced(link)) return Misplaced(link);
      if (!Is(link, "nvlink")) continue;
      SKEIN_ASSIGN_OR_RETURN(const int64_t count,
                             file_.RequiredInteger(link, "count", 1, kMostNvlinks));
      SKEIN_ASSIGN_OR_RETURN(const std::optional<uint32_t> target_class, Class(link, "tclass"));
      const std::string target = link.attribute("target").value();
      const std::string address = PciAddress(target);
      const auto peer = std::find_if(gpus_.begin(), gpus_.end(), [&](const FoundGpu& other) {
        return other.gpu.bus_id == address;
      });
      int32_t* links = nullptr;
      if (peer == gpus_.begin() + self) {
        gpu.to_itself = link;
        continue;
      }
      if (peer != gpus_.end()) {
        links = &gpu.links[peer - gpus_.begin()];
      } else if (target_class == kNvswitch && !target.empty()) {
        links = &gpu.to_switches;
        nvswitches_.insert(target);
      } else if (target_class != kHostPort && target_class.value_or(0) >> 16 != kDisplay) {
        return file_.Error(link, absl::StrCat("an NVLink to ", QuotedXml(target),
                                              ", which is no GPU of this file, and no NVSwitch by "
                                              "its tclass, \"0x068000\""));
      }
      gpu.told = true;
      if (links == nullptr) continue;  // to a processor, or a GPU that the file is not about
      *links += static_cast<int32_t>(count);
      if (*links > kMostNvlinks) {
        return file_.Error(link,
                           absl::StrCat("more than ", kMostNvlinks, " NVLinks of ", Named(self)));
      }
    }
    return absl::OkStatus();
  }

  // By what both tell, or by one of them where the other tells nothing.
  absl::StatusOr<NvlinksBetween> Between() const {
    const size_t count = gpus_.size();
    NvlinksBetween between(count, std::vector<std::optional<int32_t>>(count));
    for (size_t i = 0; i < count; ++i) {
      for (size_t j = 0; j < count; ++j) {
        if (i == j) continue;
        const int32_t here = LinksTo(i, j);
        const int32_t there = LinksTo(j, i);
        if (Tells(i) && Tells(j)) {
          if (here != there) {
            return file_.Error(gpus_[i].pci,
                               absl::StrCat(here, " NVLinks of ", Named(i), " lead to ", Named(j),
                                            ", and ", there, " the other way"));
          }
          between[i][j] = here + std::min(gpus_[i].to_switches, gpus_[j].to_switches);
        } else if (std::max(here, there) > 0) {
          between[i][j] = std::max(here, there);
        }
      }
    }
    return between;
  }

  // A GPU with a link to itself is one whose links are not known.
  bool Tells(size_t i) const { return gpus_[i].told && !gpus_[i].to_itself; }
  int32_t LinksTo(size_t i, size_t j) const {
    const auto links = gpus_[i].links.find(j);
    return Tells(i) && links != gpus_[i].links.end() ? links->second : 0;
  }
  std::string Named(size_t i) const {
    return absl::StrCat(gpus_[i].gpu.name, " (", gpus_[i].gpu.bus_id, ")");
  }

  std::string LeftOut(size_t i, size_t j) const {
    const size_t silent = Tells(i) ? j : i;
    const FoundGpu& gpu = gpus_[silent];
    if (gpu.to_itself) {
      return absl::StrCat(file_.Where(gpu.to_itself), "an NVLink of ", Named(silent),
                          " leads to itself: where they lead NCCL finds out on the host");
    }
    return absl::StrCat(file_.Where(gpu.pci), "nothing tells the NVLinks of ", Named(silent),
                        ", one of ", gpus_.size(), " GPUs: NCCL finds them on the host");
  }

  Interconnect Assemble() const {
    Interconnect read;
    std::vector<TreePlace> places;
    for (const FoundGpu& gpu : gpus_) {
      read.gpus.push_back(gpu.gpu);
      places.push_back(gpu.place);
    }
    for (const FoundNic& nic : nics_) {
      read.nics.push_back(nic.nic);
      places.push_back(nic.place);
    }
    read.connections = ConnectionsBetween(places);
    read.nvswitches = static_cast<int32_t>(nvswitches_.size());
    return read;
  }

  const XmlFile& file_;
  int number_of_cpus_ = 0;
  int number_of_switches_ = 0;
  std::string host_;
  Cpus near_;  // of the <cpu> that is read
  std::set<std::string> bus_ids_;
  std::set<std::string> nvswitches_;
  std::vector<FoundGpu> gpus_;
  std::vector<FoundNic> nics_;
};

}  // namespace

absl::StatusOr<Interconnect> ParseNcclXml(std::string_view text, const NcclXmlOptions& options) {
  SKEIN_ASSIGN_OR_RETURN(const std::unique_ptr<XmlFile> file,
                         XmlFile::Parse(text, "system", kWhat, XmlFile::Doctype::kRefused));
  return Reader(*file).Read(options.nvlinks);
}

}  // namespace skein::topology
