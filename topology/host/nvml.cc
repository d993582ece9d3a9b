#include "topology/host/nvml.h"

#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "base/units.h"
#include "topology/host/nvml_library.h"

namespace skein::topology {
namespace {

constexpr size_t kNamedProcesses = 5;

absl::StatusOr<GpuState> StateOf(const Nvml& nvml, std::string_view digits) {
  GpuState state;
  NvmlDevice device = nullptr;
  absl::Status found;
  for (const bool mig : {false, true}) {
    state.mig = mig;
    state.uuid = NvmlUuid(mig ? "MIG" : "GPU", digits);
    found = nvml.Check(nvml->by_uuid(state.uuid.c_str(), &device), state.uuid);
    if (found.ok()) break;
  }
  SKEIN_RETURN_IF_ERROR(found);
  NvmlMemory memory;
  SKEIN_RETURN_IF_ERROR(nvml.Check(nvml->memory(device, &memory), "memory"));
  state.free_bytes = static_cast<int64_t>(memory.free);
  state.total_bytes = static_cast<int64_t>(memory.total);
  state.processes = nvml.ProcessesOn(device);
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
  const absl::StatusOr<std::unique_ptr<Nvml>> nvml = Nvml::Open(libraries);
  if (absl::IsNotFound(nvml.status())) {
    return absl::UnimplementedError(nvml.status().message());
  }
  SKEIN_RETURN_IF_ERROR(nvml.status());
  return StateOf(**nvml, uuid_digits);
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
