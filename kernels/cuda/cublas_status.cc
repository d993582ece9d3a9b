#include "kernels/cuda/cublas_status.h"

#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"

namespace skein::kernels::cuda {
namespace {

absl::StatusCode CanonicalCode(cublasStatus_t code) {
  switch (code) {
    case CUBLAS_STATUS_SUCCESS:
      return absl::StatusCode::kOk;
    case CUBLAS_STATUS_ALLOC_FAILED:
      return absl::StatusCode::kResourceExhausted;
    case CUBLAS_STATUS_INVALID_VALUE:
      return absl::StatusCode::kInvalidArgument;
    case CUBLAS_STATUS_NOT_INITIALIZED:
    case CUBLAS_STATUS_ARCH_MISMATCH:
      return absl::StatusCode::kFailedPrecondition;
    case CUBLAS_STATUS_NOT_SUPPORTED:
      return absl::StatusCode::kUnimplemented;
    default:
      return absl::StatusCode::kInternal;
  }
}

}  // namespace

absl::Status CublasStatus(cublasStatus_t code, std::string_view expression) {
  if (code == CUBLAS_STATUS_SUCCESS) return absl::OkStatus();
  return {CanonicalCode(code),
          absl::StrCat(std::string(expression), ": ", cublasLtGetStatusName(code), ": ",
                       cublasLtGetStatusString(code))};
}

}  // namespace skein::kernels::cuda
