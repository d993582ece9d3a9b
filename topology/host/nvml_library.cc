#include "topology/host/nvml_library.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/printable.h"
#include "base/status_macros.h"

namespace skein::topology {
namespace {

constexpr uint64_t kNotAvailable = ~uint64_t{0};

template <typename F>
bool Find(void* library, const char* name, F& function) {
  function = reinterpret_cast<F>(dlsym(library, name));
  return function != nullptr;
}

absl::StatusOr<NvmlFunctions> FunctionsOf(void* library) {
  NvmlFunctions nvml;
  const bool all = Find(library, "nvmlInit_v2", nvml.init) &&
                   Find(library, "nvmlShutdown", nvml.shut_down) &&
                   Find(library, "nvmlErrorString", nvml.error_string) &&
                   Find(library, "nvmlDeviceGetHandleByUUID", nvml.by_uuid) &&
                   Find(library, "nvmlDeviceGetMemoryInfo", nvml.memory);
  if (!all) return absl::UnimplementedError("this NVML lacks functions: it is too old");
  Find(library, "nvmlDeviceGetComputeRunningProcesses_v3", nvml.processes);
  Find(library, "nvmlSystemGetProcessName", nvml.process_name);
  Find(library, "nvmlDeviceGetCount_v2", nvml.count);
  Find(library, "nvmlDeviceGetHandleByIndex_v2", nvml.by_index);
  Find(library, "nvmlDeviceGetName", nvml.name);
  Find(library, "nvmlDeviceGetUUID", nvml.uuid);
  Find(library, "nvmlDeviceGetPciInfo_v3", nvml.pci);
  Find(library, "nvmlDeviceGetMigMode", nvml.mig_mode);
  Find(library, "nvmlDeviceGetDeviceHandleFromMigDeviceHandle", nvml.of_slice);
  Find(library, "nvmlDeviceGetEccMode", nvml.ecc_mode);
  Find(library, "nvmlDeviceGetTotalEccErrors", nvml.ecc_errors);
  Find(library, "nvmlDeviceGetClockInfo", nvml.clock);
  Find(library, "nvmlDeviceGetMaxClockInfo", nvml.max_clock);
  // Driver 535 gave it a new name.
  if (!Find(library, "nvmlDeviceGetCurrentClocksEventReasons", nvml.clock_reasons)) {
    Find(library, "nvmlDeviceGetCurrentClocksThrottleReasons", nvml.clock_reasons);
  }
  Find(library, "nvmlDeviceGetNvLinkState", nvml.nvlink_state);
  Find(library, "nvmlDeviceGetNvLinkRemotePciInfo_v2", nvml.nvlink_remote);
  Find(library, "nvmlDeviceGetNvLinkRemoteDeviceType", nvml.nvlink_remote_kind);
  Find(library, "nvmlDeviceGetTopologyCommonAncestor", nvml.ancestor);
  return nvml;
}

std::string WordsOf(const NvmlFunctions& nvml, int code, std::string_view what) {
  return absl::StrCat("NVML: ", std::string(what), ": ", nvml.error_string(code));
}

}  // namespace

void Nvml::Closer::operator()(void* library) const { dlclose(library); }

absl::StatusOr<Nvml::Library> Nvml::OpenFirst(absl::Span<const std::string> names) {
  static const std::string kNames[] = {"libnvidia-ml.so.1"};
  if (names.empty()) names = kNames;
  for (const std::string& name : names) {
    Library library(dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL));
    if (library != nullptr) return library;
  }
  return absl::NotFoundError(absl::StrCat("there is no NVML: ", dlerror()));
}

absl::StatusOr<std::unique_ptr<Nvml>> Nvml::Open(absl::Span<const std::string> libraries) {
  SKEIN_ASSIGN_OR_RETURN(Library library, OpenFirst(libraries));
  SKEIN_ASSIGN_OR_RETURN(const NvmlFunctions functions, FunctionsOf(library.get()));
  const int code = functions.init();
  if (code != kNvmlSuccess) {
    return absl::UnavailableError(WordsOf(functions, code, "nvmlInit"));
  }
  return std::unique_ptr<Nvml>(new Nvml(std::move(library), functions));
}

Nvml::~Nvml() { functions_.shut_down(); }

absl::Status Nvml::Check(int code, std::string_view what) const {
  if (code == kNvmlSuccess) return absl::OkStatus();
  const std::string text = WordsOf(functions_, code, what);
  return code == kNvmlNotFound ? absl::NotFoundError(text) : absl::UnavailableError(text);
}

std::string Nvml::ProgramOf(uint32_t pid) const {
  char name[256] = {};
  if (functions_.process_name == nullptr ||
      functions_.process_name(pid, name, sizeof(name)) != kNvmlSuccess) {
    return "";
  }
  const std::string path(name, std::find(name, name + sizeof(name), '\0'));
  return Printable(path.substr(path.rfind('/') + 1));
}

std::vector<GpuProcess> Nvml::ProcessesOn(NvmlDevice device) const {
  std::vector<GpuProcess> processes;
  if (functions_.processes == nullptr) return processes;
  std::vector<NvmlProcess> found(64);
  int code = kNvmlInsufficientSize;
  for (int tries = 0; tries < 3 && code == kNvmlInsufficientSize; ++tries) {
    auto count = static_cast<uint32_t>(found.size());
    code = functions_.processes(device, &count, found.data());
    found.resize(code == kNvmlInsufficientSize ? size_t{count} + 16 : count);
  }
  if (code != kNvmlSuccess) return processes;
  for (const NvmlProcess& process : found) {
    processes.push_back(
        {.pid = process.pid,
         .name = ProgramOf(process.pid),
         .bytes = process.bytes == kNotAvailable ? 0 : static_cast<int64_t>(process.bytes)});
  }
  std::stable_sort(processes.begin(), processes.end(),
                   [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
  return processes;
}

}  // namespace skein::topology
