#include "kernels/cuda/cuda_backend.h"

#include <cuda_runtime_api.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "kernels/cuda/cuda_executable.h"
#include "kernels/cuda/cuda_library.h"
#include "kernels/cuda/cuda_memory.h"
#include "kernels/cuda/cuda_status.h"
#include "kernels/cuda/forms.h"

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

absl::StatusOr<CudaDevice> DescribeUsableCudaDevice(int device) {
  SKEIN_ASSIGN_OR_RETURN(CudaDevice described, DescribeCudaDevice(device));
  const absl::Status forms = CheckForms();
  if (forms.ok()) return described;
  return absl::FailedPreconditionError(absl::StrCat("GPU ", device, " is a ", described.name, "; ",
                                                    forms.message(), ", or use --device=cpu"));
}

absl::StatusOr<std::unique_ptr<Backend>> MakeCudaBackend(const CudaOptions& options) {
  SKEIN_ASSIGN_OR_RETURN(const std::vector<std::string> uuids, ListCudaDevices());
  if (options.device >= static_cast<int>(uuids.size())) {
    return absl::FailedPreconditionError(
        absl::StrCat("there is no GPU ", options.device, "; this process sees ", uuids.size()));
  }
  SKEIN_RETURN_IF_ERROR(DescribeUsableCudaDevice(options.device).status());
  DeviceFacts facts = {.device = options.device};
  SKEIN_CUDA_RETURN_IF_ERROR(cudaDeviceGetAttribute(
      &facts.multiprocessors, cudaDevAttrMultiProcessorCount, options.device));
  return std::make_unique<CudaBackend>(facts, options);
}

}  // namespace skein::kernels::cuda
