// What single kernels reach.
#pragma once

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "base/device_kind.h"

namespace skein::worker {

struct KernelBenchOptions {
  std::optional<DeviceKind> device;  // none: a GPU where there is one
  int threads = 0;                   // on CPUs; 0: the cores that this process may use
  std::string only;                  // rows whose name holds it
  std::string json_file;             // "": none
};

// On a GPU replaces this process by bench_kernels, which links the kernels themselves: NotFound
// where it does not lie beside this program. On a CPU times products of the shapes of a 1B model,
// each on weights that no cache holds.
absl::Status RunKernelBench(const KernelBenchOptions& options);

}  // namespace skein::worker
