#include "worker/device.h"

#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "kernels/cuda/cuda_backend.h"
#include "topology/host/host.h"

namespace skein::worker {
namespace {

// Why a worker that may take either takes the CPU; "" where it does not: GPUs in disorder are an
// error, not a CPU.
std::string WhyNone(const absl::StatusOr<int>& gpus) {
  if (gpus.ok()) return *gpus == 0 ? "CUDA sees none" : "";
  const bool unusable =
      absl::IsUnimplemented(gpus.status()) || absl::IsFailedPrecondition(gpus.status());
  return unusable ? std::string(gpus.status().message()) : "";
}

}  // namespace

absl::StatusOr<DeviceKind> ParseDeviceKind(const std::string& text) {
  for (const DeviceKind kind : kDeviceKinds) {
    if (text == DeviceKindName(kind)) return kind;
  }
  return absl::InvalidArgumentError(absl::StrCat("must be cpu or cuda, not '", text, "'"));
}

absl::Status CheckProfile(int steps, const RankDevice& device) {
  if (steps == 0 || device.device.kind == DeviceKind::kCuda) return absl::OkStatus();
  return absl::UnimplementedError(
      "--profile marks the kernels of GPUs, and this computes on a CPU, whose functions `perf "
      "record` sees without marks");
}

absl::StatusOr<GpuShare> ShareOfGpus(const DeviceChoice& choice, int gpus) {
  if (gpus == 0 || (choice.local_rank >= gpus && !choice.oversubscribe)) {
    return absl::FailedPreconditionError(absl::StrCat(
        "this is rank ", choice.local_rank, " (from 0) of a host where it sees ", gpus,
        " GPUs: start a rank for each GPU, let ranks share them by --oversubscribe-devices, or use "
        "--device=cpu"));
  }
  return GpuShare{.gpu = choice.local_rank % gpus,
                  .sharers = (choice.local_size + gpus - 1) / gpus};
}

absl::StatusOr<RankDevice> ChooseDevice(const DeviceChoice& choice) {
  const RankDevice cpu = {.device = topology::DescribeCpu()};
  if (choice.asked == DeviceKind::kCpu) return cpu;
  const absl::StatusOr<int> gpus = kernels::CountCudaDevices();
  if (!choice.asked.has_value()) {
    const std::string no_gpu = WhyNone(gpus);
    if (!no_gpu.empty()) return RankDevice{.device = cpu.device, .no_gpu = no_gpu};
  }
  SKEIN_RETURN_IF_ERROR(gpus.status());
  SKEIN_ASSIGN_OR_RETURN(const GpuShare share, ShareOfGpus(choice, *gpus));
  SKEIN_ASSIGN_OR_RETURN(const kernels::CudaDevice found, kernels::DescribeCudaDevice(share.gpu));
  return RankDevice{.device = {.kind = DeviceKind::kCuda,
                               .name = found.name,
                               .memory_bytes = found.memory_bytes / share.sharers},
                    .gpu = share.gpu};
}

}  // namespace skein::worker
