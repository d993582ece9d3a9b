#include "kernels/cuda/cuda_backend.h"

#include <cuda_runtime_api.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "kernels/cuda/cuda_executable.h"
#include "kernels/cuda/cuda_library.h"
#include "kernels/cuda/cuda_memory.h"
#include "kernels/cuda/cuda_status.h"
#include "kernels/cuda/device_places.h"

namespace skein::kernels::cuda {
namespace {

class CudaBackend final : public Backend {
 public:
  CudaBackend(const DeviceFacts& facts, CudaOptions options)
      : facts_(facts), options_(std::move(options)) {}

  std::string_view name() const override { return "cuda"; }
  absl::StatusOr<std::unique_ptr<Weights>> AllocateWeights(const Program& program) override {
    return CudaWeights::Create(program, facts_.device);
  }
  absl::StatusOr<std::unique_ptr<KvCache>> AllocateKv(const KvSpec& spec) override {
    return CudaKv::Create(spec, facts_.device, /*on_host=*/false);
  }
  absl::StatusOr<std::unique_ptr<KvCache>> AllocateSwap(const KvSpec& spec) override {
    return CudaKv::Create(spec, facts_.device, /*on_host=*/true);
  }
  absl::StatusOr<std::unique_ptr<Executable>> Compile(const Program& program, const Limits& limits,
                                                      const Bindings& bindings) override {
    return CudaExecutable::Create(program, limits, bindings, facts_, options_);
  }

 private:
  const DeviceFacts facts_;
  const CudaOptions options_;
};

}  // namespace

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

absl::StatusOr<CudaDevice> DescribeCudaDevice(int device) {
  cudaDeviceProp properties;
  SKEIN_CUDA_RETURN_IF_ERROR(cudaGetDeviceProperties(&properties, device));
  if (properties.major != 9) {
    return absl::FailedPreconditionError(absl::StrCat(
        "GPU ", device, " is a ", properties.name, " of compute capability ", properties.major, ".",
        properties.minor, "; there are kernels for 9.0 (H100, H200): use --device=cpu"));
  }
  SKEIN_CUDA_RETURN_IF_ERROR(cudaSetDevice(device));
  size_t free = 0;
  size_t total = 0;
  SKEIN_CUDA_RETURN_IF_ERROR(cudaMemGetInfo(&free, &total));
  return CudaDevice{.name = properties.name,
                    .memory_bytes = static_cast<int64_t>(total),
                    .free_bytes = static_cast<int64_t>(free) + kContextBytes};
}

absl::StatusOr<std::unique_ptr<Backend>> MakeCudaBackend(const CudaOptions& options) {
  SKEIN_ASSIGN_OR_RETURN(const std::vector<std::string> uuids, ListCudaDevices());
  if (options.device >= static_cast<int>(uuids.size())) {
    return absl::FailedPreconditionError(
        absl::StrCat("there is no GPU ", options.device, "; this process sees ", uuids.size()));
  }
  SKEIN_RETURN_IF_ERROR(DescribeCudaDevice(options.device).status());
  DeviceFacts facts = {.device = options.device};
  SKEIN_CUDA_RETURN_IF_ERROR(cudaDeviceGetAttribute(
      &facts.multiprocessors, cudaDevAttrMultiProcessorCount, options.device));
  return std::make_unique<CudaBackend>(facts, options);
}

}  // namespace skein::kernels::cuda
