// What a GPU gives at best.
#pragma once

#include "absl/status/statusor.h"

namespace skein::kernels {

struct CudaRates {
  double read_bytes_per_s = 0;  // of its memory: a kernel that reads 8 GiB and keeps nothing
  double flops_per_s = 0;       // of a product of two bf16 matrices of 8192 x 8192, by cuBLASLt
};

// Takes 9 GiB of its memory for a second. Fails without libskein_cuda.so as ListCudaDevices.
absl::StatusOr<CudaRates> MeasureCudaRates(int device);

}  // namespace skein::kernels
