#include <cuda_runtime.h>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/cuda_status.h"
#include "kernels/cuda/forms.h"

namespace skein::kernels::cuda {
namespace {

__global__ void FormsKernel() {}

struct Forms {
  cudaError_t code;
  bool hopper;
};
const Forms& TheForms() {
  static const Forms forms = [] {
    cudaFuncAttributes attributes = {};
    const cudaError_t code = cudaFuncGetAttributes(&attributes, FormsKernel);
    cudaGetLastError();
    return Forms{code, code == cudaSuccess && attributes.ptxVersion >= 90};
  }();
  return forms;
}

}  // namespace

absl::Status CheckForms() {
  if (TheForms().code == cudaSuccess) return absl::OkStatus();
  if (TheForms().code == cudaErrorNoKernelImageForDevice) {
    return absl::UnimplementedError(
        "this build has no kernels for it: build with --define=cuda_archs=80,90a");
  }
  return CudaStatus(TheForms().code, "a look at the kernels");
}

bool HopperForms() { return TheForms().hopper; }

absl::Status NeedHopper(const char* kernel) {
  if (HopperForms()) return absl::OkStatus();
  return absl::UnimplementedError(
      absl::StrCat(kernel, ": needs a GPU of compute capability 9.0, and a build for 90a"));
}

}  // namespace skein::kernels::cuda
