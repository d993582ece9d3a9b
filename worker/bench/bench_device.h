// What a benchmark runs on, with what it gives at best.
#pragma once

#include <memory>
#include <optional>

#include "absl/status/statusor.h"
#include "base/bench/report.h"
#include "base/device_kind.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/ops/backend.h"
#include "worker/bench/bench_ranks.h"
#include "worker/device.h"

namespace skein::worker {

struct BenchDeviceOptions {
  std::optional<DeviceKind> device;  // none: a GPU where there is one
  int threads = 0;                   // of the host; 0: the cores that this process may use
  int profile_steps = 0;             // kernels::CudaOptions, as the next
  kernels::DecodeForm decode = kernels::DecodeForm::kAuto;
};

struct BenchDevice {
  RankDevice device;
  int threads = 1;       // of the host
  bool crowded = false;  // ranks of the host have more threads than it has cores
  BenchMachine machine;
  std::unique_ptr<kernels::Backend> backend;

  bool is_gpu() const { return device.device.kind == DeviceKind::kCuda; }
};

// Eight times what the caches of this process's cores hold, as the system tells it, from 128 MiB to
// 1 GiB, which it is where nothing is told: plain reads of so many bytes are reads of memory.
int64_t BytesBeyondCaches();

// Chooses the device, measures its ceilings (a second) and makes a back end. Says on standard error
// why there is no GPU where any device will do. A call of all `ranks`, which measure at once, as
// they compute. Errors as ChooseDevice; Unimplemented for a profile of a CPU.
absl::StatusOr<BenchDevice> OpenBenchDevice(const BenchDeviceOptions& options, BenchRanks& ranks);

}  // namespace skein::worker
