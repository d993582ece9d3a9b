#include "topology/host/gpus.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <memory>
#include <set>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/printable.h"
#include "base/status_macros.h"
#include "topology/host/nvml_library.h"
#include "topology/host/visible_devices.h"
#include "topology/pci_address.h"
#include "topology/topology.h"

namespace skein::topology {
namespace {

constexpr uint32_t kLinks = 18;   // of a GPU; NVML_NVLINK_MAX_LINKS
constexpr int kSmClock = 1;       // NVML_CLOCK_SM
constexpr int kUncorrected = 1;   // NVML_MEMORY_ERROR_TYPE_UNCORRECTED
constexpr int kSinceBoot = 0;     // NVML_VOLATILE_ECC
constexpr int kEver = 1;          // NVML_AGGREGATE_ECC
constexpr int kRemoteSwitch = 2;  // NVML_NVLINK_DEVICE_TYPE_SWITCH

// nvmlClocksEventReason...
constexpr struct {
  uint64_t bit;
  const char* says;
} kReasons[] = {
    {0x2, "a setting of its clocks"},  {0x4, "its power limit"},  {0x8, "hardware slowdown"},
    {0x10, "a group of equal clocks"}, {0x20, "heat (software)"}, {0x40, "heat (hardware)"},
    {0x80, "the power brake"},         {0x100, "its display"},
};

struct Link {
  bool to_switch = false;
  std::string remote;  // address of PCI; empty: not told
};

struct Asked {
  NvmlDevice device = nullptr;  // null: a GPU that cannot be asked
  absl::Status status;
  std::string uuid;
  int32_t index = 0;
  bool slice = false;
};

// A text that one of NVML's functions writes.
template <typename F>
absl::StatusOr<std::string> TextOf(const Nvml& nvml, NvmlDevice device, F function,
                                   std::string_view what) {
  char text[96] = {};  // NVML_DEVICE_NAME_V2_BUFFER_SIZE, NVML_DEVICE_UUID_V2_BUFFER_SIZE
  SKEIN_RETURN_IF_ERROR(nvml.Check(function(device, text, sizeof(text)), what));
  return Printable(std::string(text, std::find(text, text + sizeof(text), '\0')), kMaxNameBytes);
}

std::string AddressOf(const NvmlPci& pci) {
  const char* const end = std::find(pci.bus_id, pci.bus_id + sizeof(pci.bus_id), '\0');
  return PciAddress({pci.bus_id, static_cast<size_t>(end - pci.bus_id)});
}

class Finder {
 public:
  explicit Finder(const Nvml& nvml) : nvml_(nvml) {}

  absl::StatusOr<FoundGpus> Find(const std::optional<std::string>& visible_devices) {
    SKEIN_ASSIGN_OR_RETURN(const std::vector<Asked> visible, Visible(visible_devices));
    if (visible.size() > kMaxGpusOfHost) {
      return absl::UnimplementedError(absl::StrCat("NVML tells of ", visible.size(),
                                                   " GPUs, and a host can have ", kMaxGpusOfHost,
                                                   ": name those to use in CUDA_VISIBLE_DEVICES"));
    }
    FoundGpus found;
    for (const Asked& asked : visible) {
      SKEIN_RETURN_IF_ERROR(asked.status);
      SKEIN_ASSIGN_OR_RETURN(Gpu gpu, Describe(asked));
      gpu.name = absl::StrCat("GPU", found.gpus.size());
      found.gpus.push_back(std::move(gpu));
      found.health.push_back(HealthOf(asked));
      links_.push_back(LinksOf(asked, found.health.back()));
    }
    Connect(visible, found);
    return found;
  }

 private:
  // All GPUs that this process may use, those that cannot be asked with a status. CUDA does not
  // count the others.
  absl::StatusOr<std::vector<Asked>> All() const {
    std::vector<Asked> all;
    uint32_t count = 0;
    SKEIN_RETURN_IF_ERROR(nvml_.Check(nvml_->count(&count), "the number of GPUs"));
    for (uint32_t i = 0; i < count; ++i) {
      Asked asked{.index = static_cast<int32_t>(i)};
      const int code = nvml_->by_index(i, &asked.device);
      if (code == kNvmlNoPermission) continue;
      asked.status = nvml_.Check(code, absl::StrCat("GPU ", i));
      if (asked.status.ok()) {
        absl::StatusOr<std::string> uuid =
            TextOf(nvml_, asked.device, nvml_->uuid, absl::StrCat("GPU ", i, ": UUID"));
        asked.status = uuid.status();
        if (uuid.ok()) asked.uuid = *std::move(uuid);
      }
      all.push_back(std::move(asked));
    }
    return all;
  }

  absl::StatusOr<std::vector<Asked>> Visible(const std::optional<std::string>& value) const {
    SKEIN_ASSIGN_OR_RETURN(std::vector<Asked> all, All());
    if (!value) return all;
    const std::string slice = VisibleSlice(*value);
    if (!slice.empty()) return Slice(slice, all);
    std::vector<std::string> uuids;
    for (const Asked& asked : all) uuids.push_back(asked.uuid);
    std::vector<Asked> visible;
    for (const int i : VisibleDevices(*value, uuids)) visible.push_back(all[i]);
    return visible;
  }

  absl::StatusOr<std::vector<Asked>> Slice(const std::string& uuid,
                                           const std::vector<Asked>& all) const {
    Asked slice{.uuid = uuid, .slice = true};
    const int code = nvml_->by_uuid(uuid.c_str(), &slice.device);
    if (code == kNvmlNotFound) return std::vector<Asked>();
    SKEIN_RETURN_IF_ERROR(nvml_.Check(code, Printable(uuid, kMaxNameBytes)));
    const NvmlDevice whole = WholeOf(slice);
    for (const Asked& asked : all) {
      if (asked.device == whole) slice.index = asked.index;
    }
    return std::vector<Asked>{slice};
  }

  // The GPU of a slice, which knows what its slices do not.
  NvmlDevice WholeOf(const Asked& asked) const {
    NvmlDevice whole = asked.device;
    if (asked.slice &&
        (nvml_->of_slice == nullptr || nvml_->of_slice(asked.device, &whole) != kNvmlSuccess)) {
      return asked.device;
    }
    return whole;
  }

  absl::StatusOr<Gpu> Describe(const Asked& asked) const {
    const std::string who = absl::StrCat("GPU ", asked.index, ": ");
    Gpu gpu;
    SKEIN_ASSIGN_OR_RETURN(gpu.model, TextOf(nvml_, asked.device, nvml_->name, who + "name"));
    NvmlPci pci;
    SKEIN_RETURN_IF_ERROR(nvml_.Check(nvml_->pci(WholeOf(asked), &pci), who + "bus id"));
    gpu.bus_id = AddressOf(pci);
    SKEIN_ASSIGN_OR_RETURN(const NvmlMemory memory, MemoryOf(asked));
    gpu.memory_bytes = Amount(memory.total);
    return gpu;
  }

  static int64_t Amount(uint64_t number) {
    return static_cast<int64_t>(std::min<uint64_t>(number, std::numeric_limits<int64_t>::max()));
  }

  // Nothing of a GPU that shares the memory of its processors.
  absl::StatusOr<NvmlMemory> MemoryOf(const Asked& asked) const {
    NvmlMemory memory;
    const int code = nvml_->memory(asked.device, &memory);
    if (code == kNvmlNotSupported) return NvmlMemory();
    SKEIN_RETURN_IF_ERROR(nvml_.Check(code, absl::StrCat("GPU ", asked.index, ": memory")));
    return memory;
  }

  GpuHealth HealthOf(const Asked& asked) const {
    const NvmlDevice whole = WholeOf(asked);
    GpuHealth health{.uuid = asked.uuid, .index = asked.index, .mig = asked.slice};
    if (const absl::StatusOr<NvmlMemory> memory = MemoryOf(asked); memory.ok()) {
      health.free_bytes = Amount(memory->free);
    }
    uint32_t mig = 0, after_reset = 0;
    if (nvml_->mig_mode != nullptr && nvml_->mig_mode(whole, &mig, &after_reset) == kNvmlSuccess) {
      health.mig = health.mig || mig != 0;
    }
    int ecc = 0, after_reboot = 0;
    if (nvml_->ecc_mode != nullptr && nvml_->ecc_mode(whole, &ecc, &after_reboot) == kNvmlSuccess) {
      health.ecc = ecc != 0;
    }
    health.errors_since_boot = ErrorsOf(whole, kSinceBoot);
    health.errors_ever = ErrorsOf(whole, kEver);
    health.clock_mhz = ClockOf(whole, nvml_->clock);
    health.most_clock_mhz = ClockOf(whole, nvml_->max_clock);
    uint64_t reasons = 0;
    if (nvml_->clock_reasons != nullptr && nvml_->clock_reasons(whole, &reasons) == kNvmlSuccess) {
      for (const auto& reason : kReasons) {
        if ((reasons & reason.bit) != 0) health.slowed_by.push_back(reason.says);
      }
    }
    health.processes = nvml_.ProcessesOn(asked.device);
    return health;
  }

  std::optional<int64_t> ErrorsOf(NvmlDevice device, int since) const {
    uint64_t errors = 0;
    if (nvml_->ecc_errors == nullptr ||
        nvml_->ecc_errors(device, kUncorrected, since, &errors) != kNvmlSuccess) {
      return std::nullopt;
    }
    return Amount(errors);
  }

  static int32_t ClockOf(NvmlDevice device, int (*function)(NvmlDevice, int, uint32_t*)) {
    uint32_t mhz = 0;
    if (function == nullptr || function(device, kSmClock, &mhz) != kNvmlSuccess) return 0;
    return static_cast<int32_t>(std::min<uint32_t>(mhz, std::numeric_limits<int32_t>::max()));
  }

  // The active NVLinks of a GPU; `health` gets their number.
  std::vector<Link> LinksOf(const Asked& asked, GpuHealth& health) const {
    std::vector<Link> links;
    if (health.mig || nvml_->nvlink_state == nullptr) return links;
    for (uint32_t i = 0; i < kLinks; ++i) {
      int active = 0;
      if (nvml_->nvlink_state(asked.device, i, &active) != kNvmlSuccess) continue;
      if (active == 0) {
        ++health.nvlinks_down;
        continue;
      }
      ++health.nvlinks_up;
      int kind = 0;
      Link link{.to_switch = nvml_->nvlink_remote_kind != nullptr &&
                             nvml_->nvlink_remote_kind(asked.device, i, &kind) == kNvmlSuccess &&
                             kind == kRemoteSwitch};
      NvmlPci remote;
      if (nvml_->nvlink_remote != nullptr &&
          nvml_->nvlink_remote(asked.device, i, &remote) == kNvmlSuccess) {
        link.remote = AddressOf(remote);
      }
      links.push_back(std::move(link));
    }
    return links;
  }

  // Through switches a GPU reaches each other with all its links to them; a link straight to
  // another GPU leads there alone.
  int32_t LinksTo(size_t from, const std::string& to) const {
    return static_cast<int32_t>(
        std::count_if(links_[from].begin(), links_[from].end(), [&](const Link& link) {
          return link.to_switch || (!link.remote.empty() && link.remote == to);
        }));
  }

  void Connect(const std::vector<Asked>& visible, FoundGpus& found) const {
    const size_t gpus = found.gpus.size();
    found.nvlinks.assign(gpus, std::vector<int32_t>(gpus, 0));
    found.parents.assign(gpus, std::vector<std::optional<Path>>(gpus));
    for (size_t i = 0; i < gpus; ++i) {
      for (size_t j = 0; j < i; ++j) {
        found.nvlinks[i][j] = found.nvlinks[j][i] =
            std::min(LinksTo(i, found.gpus[j].bus_id), LinksTo(j, found.gpus[i].bus_id));
        found.parents[i][j] = found.parents[j][i] = ParentOf(visible[i], visible[j]);
      }
    }
    std::set<std::string> switches;
    for (const std::vector<Link>& links : links_) {
      for (const Link& link : links) {
        // Virtual machines name none.
        const bool told = !link.remote.empty() && link.remote != "0000:00:00.0" &&
                          link.remote.substr(0, 8) != "ffffffff";
        if (link.to_switch && told) switches.insert(link.remote);
      }
    }
    found.nvswitches = static_cast<int32_t>(switches.size());
  }

  std::optional<Path> ParentOf(const Asked& a, const Asked& b) const {
    int level = 0;
    if (nvml_->ancestor == nullptr ||
        nvml_->ancestor(WholeOf(a), WholeOf(b), &level) != kNvmlSuccess) {
      return std::nullopt;
    }
    switch (level) {  // nvmlGpuTopologyLevel_t
      case 0:         // of one board
      case 10:
        return Path::kSwitch;
      case 20:
        return Path::kSwitches;
      case 30:
        return Path::kBridge;
      case 40:
        return Path::kNode;
      case 50:
        return Path::kSystem;
      default:
        return std::nullopt;
    }
  }

  const Nvml& nvml_;
  std::vector<std::vector<Link>> links_;  // [gpus], active
};

}  // namespace

absl::StatusOr<FoundGpus> FindGpus(const std::optional<std::string>& visible_devices,
                                   absl::Span<const std::string> libraries) {
  if (visible_devices && absl::StripAsciiWhitespace(*visible_devices).empty()) return FoundGpus();
  const absl::StatusOr<std::unique_ptr<Nvml>> nvml = Nvml::Open(libraries);
  if (absl::IsNotFound(nvml.status())) return FoundGpus();
  SKEIN_RETURN_IF_ERROR(nvml.status());
  const NvmlFunctions& functions = ***nvml;
  if (functions.count == nullptr || functions.by_index == nullptr || functions.name == nullptr ||
      functions.uuid == nullptr || functions.pci == nullptr) {
    return absl::UnimplementedError(
        "this NVML lacks functions that list GPUs: it is too old; install driver 470 or newer");
  }
  return Finder(**nvml).Find(visible_devices);
}

}  // namespace skein::topology
