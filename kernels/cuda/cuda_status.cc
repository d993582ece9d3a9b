#include "kernels/cuda/cuda_status.h"

#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"

namespace skein::kernels::cuda {
namespace {

absl::StatusCode CanonicalCode(cudaError_t code) {
  switch (code) {
    case cudaSuccess:
      return absl::StatusCode::kOk;
    case cudaErrorMemoryAllocation:
      return absl::StatusCode::kResourceExhausted;
    case cudaErrorInvalidValue:
    case cudaErrorInvalidConfiguration:
    case cudaErrorInvalidPitchValue:
      return absl::StatusCode::kInvalidArgument;
    case cudaErrorNoDevice:
    case cudaErrorInsufficientDriver:
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorSystemNotReady:
      return absl::StatusCode::kFailedPrecondition;
    case cudaErrorNotSupported:
      return absl::StatusCode::kUnimplemented;
    case cudaErrorDevicesUnavailable:
      return absl::StatusCode::kUnavailable;
    default:
      return absl::StatusCode::kInternal;
  }
}

}  // namespace

absl::Status CudaStatus(cudaError_t code, std::string_view expression) {
  if (code == cudaSuccess) return absl::OkStatus();
  cudaGetLastError();
  return {CanonicalCode(code), absl::StrCat(std::string(expression), ": ", cudaGetErrorName(code),
                                            ": ", cudaGetErrorString(code))};
}

}  // namespace skein::kernels::cuda
