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

// What CUDA's own words leave open.
std::string_view Consequence(cudaError_t code) {
  switch (code) {
    case cudaErrorIllegalAddress:
    case cudaErrorAssert:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorLaunchFailure:
    case cudaErrorLaunchTimeout:
      return "; a kernel has failed, and this process can use its GPU no more";
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorContained:
    case cudaErrorHardwareStackError:
    case cudaErrorExternalDevice:
      return "; the GPU itself has failed: the driver's log has its Xid (dmesg, nvidia-smi -q), "
             "and "
             "it may need a reset";
    case cudaErrorDevicesUnavailable:
      return "; another process may have it for itself, or it is gone: nvidia-smi -q tells";
    default:
      return "";
  }
}

}  // namespace

absl::Status CudaStatus(cudaError_t code, std::string_view expression) {
  if (code == cudaSuccess) return absl::OkStatus();
  cudaGetLastError();
  return {CanonicalCode(code),
          absl::StrCat(std::string(expression), ": ", cudaGetErrorName(code), ": ",
                       cudaGetErrorString(code), std::string(Consequence(code)))};
}

}  // namespace skein::kernels::cuda
