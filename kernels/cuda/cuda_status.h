// CUDA's error codes as absl::Status.
#pragma once

#include <cuda_runtime_api.h>

#include <string_view>

#include "absl/status/status.h"
#include "base/status_macros.h"
#include "base/stream.h"

namespace skein::kernels::cuda {

// "<expression>: <name>: <what CUDA says>", and what follows from it where a kernel or the GPU
// itself has failed; OK for cudaSuccess. Clears the error where CUDA lets it.
absl::Status CudaStatus(cudaError_t code, std::string_view expression);

inline cudaStream_t CudaStream(Stream stream) { return static_cast<cudaStream_t>(stream.handle); }

}  // namespace skein::kernels::cuda

// Returns from the function unless the CUDA call gives cudaSuccess.
#define SKEIN_CUDA_RETURN_IF_ERROR(expr) \
  SKEIN_RETURN_IF_ERROR(::skein::kernels::cuda::CudaStatus((expr), #expr))
