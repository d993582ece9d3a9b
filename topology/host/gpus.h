// The GPUs that a process may use, by NVML: what they are, how NVLinks connect them, how they are.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "topology/host/gpu_process.h"
#include "topology/interconnect.h"

namespace skein::topology {

// What may keep a GPU from doing what its kind can.
struct GpuHealth {
  std::string uuid;         // "GPU-...", or "MIG-..." for a slice
  int32_t index = 0;        // of nvidia-smi
  int64_t free_bytes = 0;   // of its memory
  bool mig = false;         // it is cut into slices, or is one: no NVLinks, and CUDA gives a
                            // process one slice
  std::optional<bool> ecc;  // unset: it has none, or it is not told
  // Of memory, that ECC could not correct; unset: not told.
  std::optional<int64_t> errors_since_boot;
  std::optional<int64_t> errors_ever;
  // Of its multiprocessors, now and at most; 0: not told.
  int32_t clock_mhz = 0;
  int32_t most_clock_mhz = 0;
  std::vector<std::string> slowed_by;  // "heat (hardware)"; idling is none
  int32_t nvlinks_up = 0;
  int32_t nvlinks_down = 0;           // there, but not active
  std::vector<GpuProcess> processes;  // that compute on it, the largest first
};

struct FoundGpus {
  std::vector<Gpu> gpus;          // "GPU0" on, in CUDA's order: names, models, bus ids, memory
  std::vector<GpuHealth> health;  // [gpus]
  std::vector<std::vector<int32_t>> nvlinks;              // [gpus][gpus], active at both ends
  std::vector<std::vector<std::optional<Path>>> parents;  // [gpus][gpus], over PCIe, by NVML
  int32_t nvswitches = 0;                                 // that NVLinks name; 0: none, or not told
};

// Asks the first of `libraries` that is there, as AskNvml does; none there: no GPUs.
// `visible_devices` is CUDA_VISIBLE_DEVICES' value, its numbers counted in the order of PCI, as
// NVML and nvidia-smi do; one that leaves no GPU, such as an empty one, asks a driver for none.
// Costs some milliseconds a GPU. Unavailable, with NVML's words, for a driver or a visible GPU that
// cannot be asked; Unimplemented for an NVML that is too old, and for more GPUs than a host can
// have.
absl::StatusOr<FoundGpus> FindGpus(const std::optional<std::string>& visible_devices = std::nullopt,
                                   absl::Span<const std::string> libraries = {});

}  // namespace skein::topology
