#include "topology/host/nvml.h"

#include <dlfcn.h>

#include <algorithm>
#include <memory>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/printable.h"
#include "base/status_macros.h"
#include "base/units.h"

namespace skein::topology {
namespace {

constexpr size_t kNamedProcesses = 5;

// ---- NVML's ABI, which has been stable since driver 470 ----

using Device = void*;
constexpr int kSuccess = 0;
constexpr int kNotFound = 6;
constexpr int kInsufficientSize = 7;
constexpr uint64_t kNotAvailable = ~uint64_t{0};

struct Memory {  // nvmlMemory_t
  uint64_t total = 0, free = 0, used = 0;
};
struct Process {  // nvmlProcessInfo_v2_t
  uint32_t pid = 0;
  uint64_t bytes = 0;
  uint32_t gpu_instance = 0, compute_instance = 0;
};

struct Functions {
  int (*init)() = nullptr;
  int (*shut_down)() = nullptr;
  const char* (*error_string)(int) = nullptr;
  int (*by_uuid)(const char*, Device*) = nullptr;
  int (*memory)(Device, Memory*) = nullptr;
  int (*processes)(Device, uint32_t*, Process*) = nullptr;
  int (*process_name)(uint32_t, char*, uint32_t) = nullptr;
};

template <typename F>
bool Find(void* library, const char* name, F& function) {
  function = reinterpret_cast<F>(dlsym(library, name));
  return function != nullptr;
}

struct Closer {
  void operator()(void* library) const { dlclose(library); }
};
using Library = std::unique_ptr<void, Closer>;

absl::StatusOr<Library> Open(absl::Span<const std::string> names) {
  static const std::string kNames[] = {"libnvidia-ml.so.1"};
  if (names.empty()) names = kNames;
  for (const std::string& name : names) {
    Library library(dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL));
    if (library != nullptr) return library;
  }
  return absl::UnimplementedError(absl::StrCat("there is no NVML: ", dlerror()));
}

absl::StatusOr<Functions> FunctionsOf(void* library) {
  Functions nvml;
  const bool all = Find(library, "nvmlInit_v2", nvml.init) &&
                   Find(library, "nvmlShutdown", nvml.shut_down) &&
                   Find(library, "nvmlErrorString", nvml.error_string) &&
                   Find(library, "nvmlDeviceGetHandleByUUID", nvml.by_uuid) &&
                   Find(library, "nvmlDeviceGetMemoryInfo", nvml.memory);
  if (!all) return absl::UnimplementedError("this NVML lacks functions: it is too old");
  // Others it can do without.
  Find(library, "nvmlDeviceGetComputeRunningProcesses_v3", nvml.processes);
  Find(library, "nvmlSystemGetProcessName", nvml.process_name);
  return nvml;
}

absl::Status NvmlStatus(const Functions& nvml, int code, std::string_view what) {
  if (code == kSuccess) return absl::OkStatus();
  const std::string text = absl::StrCat("NVML: ", std::string(what), ": ", nvml.error_string(code));
  return code == kNotFound ? absl::NotFoundError(text) : absl::UnavailableError(text);
}

std::string NameOf(const Functions& nvml, uint32_t pid) {
  char name[256] = {};
  if (nvml.process_name == nullptr || nvml.process_name(pid, name, sizeof(name)) != kSuccess) {
    return "";
  }
  const std::string path(name, std::find(name, name + sizeof(name), '\0'));
  return Printable(path.substr(path.rfind('/') + 1));
}

std::vector<GpuProcess> ProcessesOn(const Functions& nvml, Device device) {
  std::vector<GpuProcess> processes;
  if (nvml.processes == nullptr) return processes;
  std::vector<Process> found(64);
  int code = kInsufficientSize;
  for (int tries = 0; tries < 3 && code == kInsufficientSize; ++tries) {
    auto count = static_cast<uint32_t>(found.size());
    code = nvml.processes(device, &count, found.data());
    found.resize(code == kInsufficientSize ? size_t{count} + 16 : count);
  }
  if (code != kSuccess) return processes;
  for (const Process& process : found) {
    processes.push_back(
        {.pid = process.pid,
         .name = NameOf(nvml, process.pid),
         .bytes = process.bytes == kNotAvailable ? 0 : static_cast<int64_t>(process.bytes)});
  }
  std::stable_sort(processes.begin(), processes.end(),
                   [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
  return processes;
}

absl::StatusOr<GpuState> StateOf(const Functions& nvml, std::string_view digits) {
  GpuState state;
  Device device = nullptr;
  absl::Status found;
  for (const bool mig : {false, true}) {
    state.mig = mig;
    state.uuid = NvmlUuid(mig ? "MIG" : "GPU", digits);
    found = NvmlStatus(nvml, nvml.by_uuid(state.uuid.c_str(), &device), state.uuid);
    if (found.ok()) break;
  }
  SKEIN_RETURN_IF_ERROR(found);
  Memory memory;
  SKEIN_RETURN_IF_ERROR(NvmlStatus(nvml, nvml.memory(device, &memory), "memory"));
  state.free_bytes = static_cast<int64_t>(memory.free);
  state.total_bytes = static_cast<int64_t>(memory.total);
  state.processes = ProcessesOn(nvml, device);
  return state;
}

}  // namespace

std::string NvmlUuid(std::string_view prefix, std::string_view digits) {
  std::string uuid(prefix);
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i == 0 || i == 8 || i == 12 || i == 16 || i == 20) uuid += '-';
    uuid += digits[i];
  }
  return uuid;
}

absl::StatusOr<GpuState> AskNvml(std::string_view uuid_digits,
                                 absl::Span<const std::string> libraries) {
  SKEIN_ASSIGN_OR_RETURN(const Library library, Open(libraries));
  SKEIN_ASSIGN_OR_RETURN(const Functions nvml, FunctionsOf(library.get()));
  SKEIN_RETURN_IF_ERROR(NvmlStatus(nvml, nvml.init(), "nvmlInit"));
  absl::StatusOr<GpuState> state = StateOf(nvml, uuid_digits);
  nvml.shut_down();
  return state;
}

std::string FormatGpuUsers(const GpuState& state) {
  std::vector<std::string> users;
  for (const GpuProcess& process : state.processes) {
    if (users.size() == kNamedProcesses) break;
    users.push_back(absl::StrCat(process.name.empty() ? "a process" : process.name, " (pid ",
                                 process.pid, ")",
                                 process.bytes > 0 ? " has " + FormatBytes(process.bytes) : ""));
  }
  if (state.processes.size() > users.size()) {
    users.push_back(absl::StrCat(state.processes.size() - users.size(), " more"));
  }
  return absl::StrCat(FormatBytes(state.free_bytes), " of ", FormatBytes(state.total_bytes),
                      " are free; ",
                      users.empty() ? "NVML names no process on it" : absl::StrJoin(users, ", "));
}

}  // namespace skein::topology
