// Which GPUs there are, and whether there are kernels for them.
#include <cuda_runtime_api.h>

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/units.h"
#include "kernels/cuda/cuda_library.h"
#include "kernels/cuda/cuda_status.h"
#include "kernels/cuda/device_places.h"

namespace skein::kernels::cuda {

absl::StatusOr<std::vector<std::string>> ListCudaDevices() {
  std::vector<std::string> uuids;
  int count = 0;
  const cudaError_t code = cudaGetDeviceCount(&count);
  if (code == cudaErrorNoDevice) return uuids;
  if (code == cudaErrorInsufficientDriver) {
    int driver = 0;
    SKEIN_CUDA_RETURN_IF_ERROR(cudaDriverGetVersion(&driver));
    if (driver == 0) return uuids;  // there is none
    return absl::FailedPreconditionError(
        absl::StrCat("the GPU's driver supports CUDA ", driver / 1000, ".", driver % 1000 / 10,
                     "; this was built for ", CUDART_VERSION / 1000, ".",
                     CUDART_VERSION % 1000 / 10, ": install a newer driver"));
  }
  // There are some, in disorder: nobody should take the CPU without a word.
  if (code == cudaErrorSystemNotReady) {
    return absl::UnavailableError(CudaStatus(code, "cudaGetDeviceCount").message());
  }
  SKEIN_RETURN_IF_ERROR(CudaStatus(code, "cudaGetDeviceCount"));
  for (int device = 0; device < count; ++device) {
    cudaDeviceProp properties;
    SKEIN_CUDA_RETURN_IF_ERROR(cudaGetDeviceProperties(&properties, device));
    uuids.push_back(absl::BytesToHexString({properties.uuid.bytes, sizeof(properties.uuid.bytes)}));
  }
  return uuids;
}

// For attention's rings.
constexpr size_t kLeastSharedBytes = size_t{160} << 10;

absl::StatusOr<CudaDevice> DescribeCudaDevice(int device) {
  cudaDeviceProp properties;
  SKEIN_CUDA_RETURN_IF_ERROR(cudaGetDeviceProperties(&properties, device));
  if (properties.major < 8 || properties.sharedMemPerBlockOptin < kLeastSharedBytes) {
    return absl::FailedPreconditionError(
        absl::StrCat("GPU ", device, " is a ", properties.name, " of compute capability ",
                     properties.major, ".", properties.minor, " with ",
                     FormatBytes(static_cast<int64_t>(properties.sharedMemPerBlockOptin)),
                     " of shared memory for a block; kernels need 8.0 or newer and ",
                     FormatBytes(static_cast<int64_t>(kLeastSharedBytes)),
                     ", as A100, H100 and H200 have: use "
                     "--device=cpu"));
  }
  SKEIN_CUDA_RETURN_IF_ERROR(cudaSetDevice(device));
  size_t free = 0;
  size_t total = 0;
  SKEIN_CUDA_RETURN_IF_ERROR(cudaMemGetInfo(&free, &total));
  char address[32] = {};
  SKEIN_CUDA_RETURN_IF_ERROR(cudaDeviceGetPCIBusId(address, sizeof(address), device));
  return CudaDevice{.name = properties.name,
                    .pci_address = address,
                    .memory_bytes = static_cast<int64_t>(total),
                    .free_bytes = static_cast<int64_t>(free) + kContextBytes};
}

}  // namespace skein::kernels::cuda
