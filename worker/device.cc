#include "worker/device.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "kernels/cuda/cuda_backend.h"
#include "topology/host/host.h"

namespace skein::worker {

absl::StatusOr<RankDevice> ChooseDevice(std::optional<DeviceKind> asked, int local_rank) {
  const RankDevice cpu = {.device = topology::DescribeCpu()};
  if (asked == DeviceKind::kCpu) return cpu;
  const absl::StatusOr<int> gpus = kernels::CountCudaDevices();
  const bool none = gpus.ok() ? *gpus == 0 : absl::IsUnimplemented(gpus.status());
  if (none && !asked.has_value()) return cpu;
  SKEIN_RETURN_IF_ERROR(gpus.status());
  if (local_rank >= *gpus) {
    return absl::FailedPreconditionError(
        absl::StrCat("this is rank ", local_rank, " (from 0) of a host where it sees ", *gpus,
                     " GPUs: start a rank for each GPU, or use --device=cpu"));
  }
  SKEIN_ASSIGN_OR_RETURN(const kernels::CudaDevice gpu, kernels::DescribeCudaDevice(local_rank));
  return RankDevice{
      .device = {.kind = DeviceKind::kCuda, .name = gpu.name, .memory_bytes = gpu.memory_bytes},
      .gpu = local_rank};
}

}  // namespace skein::worker
