// libnvidia-ml.so.1, opened at run time. Its functions are declared here, so that no build needs
// its header. Only the files beside this one include it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "topology/host/gpu_process.h"

namespace skein::topology {

// ---- NVML's ABI, which has been stable since driver 470 ----

using NvmlDevice = void*;
inline constexpr int kNvmlSuccess = 0;
inline constexpr int kNvmlNotSupported = 3;
inline constexpr int kNvmlNoPermission = 4;
inline constexpr int kNvmlNotFound = 6;
inline constexpr int kNvmlInsufficientSize = 7;

struct NvmlMemory {  // nvmlMemory_t
  uint64_t total = 0, free = 0, used = 0;
};
struct NvmlProcess {  // nvmlProcessInfo_v2_t
  uint32_t pid = 0;
  uint64_t bytes = 0;
  uint32_t gpu_instance = 0, compute_instance = 0;
};
struct NvmlPci {  // nvmlPciInfo_t, its third version
  char legacy_bus_id[16] = {};
  uint32_t domain = 0, bus = 0, device = 0, device_id = 0, subsystem_id = 0;
  char bus_id[32] = {};  // "00000000:9A:00.0"
};
static_assert(sizeof(NvmlMemory) == 24 && sizeof(NvmlProcess) == 24 && sizeof(NvmlPci) == 68);

struct NvmlFunctions {
  // Always there.
  int (*init)() = nullptr;
  int (*shut_down)() = nullptr;
  const char* (*error_string)(int) = nullptr;
  int (*by_uuid)(const char*, NvmlDevice*) = nullptr;
  int (*memory)(NvmlDevice, NvmlMemory*) = nullptr;
  // Null where this NVML lacks them.
  int (*processes)(NvmlDevice, uint32_t*, NvmlProcess*) = nullptr;
  int (*process_name)(uint32_t, char*, uint32_t) = nullptr;
  int (*count)(uint32_t*) = nullptr;
  int (*by_index)(uint32_t, NvmlDevice*) = nullptr;
  int (*name)(NvmlDevice, char*, uint32_t) = nullptr;
  int (*uuid)(NvmlDevice, char*, uint32_t) = nullptr;
  int (*pci)(NvmlDevice, NvmlPci*) = nullptr;
  int (*mig_mode)(NvmlDevice, uint32_t* now, uint32_t* after_reset) = nullptr;
  int (*of_slice)(NvmlDevice slice, NvmlDevice* gpu) = nullptr;
  int (*ecc_mode)(NvmlDevice, int* now, int* after_reboot) = nullptr;
  int (*ecc_errors)(NvmlDevice, int kind, int since, uint64_t*) = nullptr;
  int (*clock)(NvmlDevice, int kind, uint32_t* mhz) = nullptr;
  int (*max_clock)(NvmlDevice, int kind, uint32_t* mhz) = nullptr;
  int (*clock_reasons)(NvmlDevice, uint64_t*) = nullptr;
  int (*nvlink_state)(NvmlDevice, uint32_t link, int* active) = nullptr;
  int (*nvlink_remote)(NvmlDevice, uint32_t link, NvmlPci*) = nullptr;
  int (*nvlink_remote_kind)(NvmlDevice, uint32_t link, int*) = nullptr;
  int (*ancestor)(NvmlDevice, NvmlDevice, int* level) = nullptr;
};

// An NVML that has been started. It is shut down and closed at the end.
class Nvml {
 public:
  // Opens the first of `libraries`, paths or names for the loader, that is there;
  // libnvidia-ml.so.1 where none are named. NotFound where none is there; Unimplemented for one
  // that lacks functions; Unavailable, with NVML's words, where it does not start.
  static absl::StatusOr<std::unique_ptr<Nvml>> Open(absl::Span<const std::string> libraries);
  ~Nvml();
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  const NvmlFunctions& operator*() const { return functions_; }
  const NvmlFunctions* operator->() const { return &functions_; }

  // "NVML: WHAT: its words": NotFound for what it does not know, else Unavailable.
  absl::Status Check(int code, std::string_view what) const;

  // Those that compute on a GPU, the largest first; none where NVML does not tell.
  std::vector<GpuProcess> ProcessesOn(NvmlDevice device) const;

 private:
  struct Closer {
    void operator()(void* library) const;
  };
  using Library = std::unique_ptr<void, Closer>;

  Nvml(Library library, const NvmlFunctions& functions)
      : library_(std::move(library)), functions_(functions) {}
  static absl::StatusOr<Library> OpenFirst(absl::Span<const std::string> names);

  std::string ProgramOf(uint32_t pid) const;

  Library library_;
  NvmlFunctions functions_;
};

}  // namespace skein::topology
