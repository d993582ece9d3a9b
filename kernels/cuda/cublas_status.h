// cuBLAS's error codes as absl::Status.
#pragma once

#include <cublasLt.h>

#include <string_view>

#include "absl/status/status.h"
#include "base/status_macros.h"

namespace skein::kernels::cuda {

// "<expression>: <name>: <what cuBLAS says>"; OK for CUBLAS_STATUS_SUCCESS.
absl::Status CublasStatus(cublasStatus_t code, std::string_view expression);

}  // namespace skein::kernels::cuda

// Returns from the function unless the cuBLAS call gives CUBLAS_STATUS_SUCCESS.
#define SKEIN_CUBLAS_RETURN_IF_ERROR(expr) \
  SKEIN_RETURN_IF_ERROR(::skein::kernels::cuda::CublasStatus((expr), #expr))
