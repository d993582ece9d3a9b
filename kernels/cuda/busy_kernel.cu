#include "kernels/cuda/busy_kernel.h"
#include "kernels/cuda/cuda_status.h"

namespace skein::kernels::cuda {
namespace {

__global__ void BusyKernel(BusyWords* words) {
  words->begun = 1;
  __threadfence_system();
  while (words->over == 0) __nanosleep(1000);
}

}  // namespace

absl::Status BeginBusy(BusyWords* words, Stream stream) {
  words->begun = words->over = 0;
  int device = 0, most = 0;
  SKEIN_CUDA_RETURN_IF_ERROR(cudaGetDevice(&device));
  SKEIN_CUDA_RETURN_IF_ERROR(
      cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device));
  SKEIN_CUDA_RETURN_IF_ERROR(
      cudaFuncSetAttribute(BusyKernel, cudaFuncAttributeMaxDynamicSharedMemorySize, most));
  BusyKernel<<<1, 1, static_cast<size_t>(most), static_cast<cudaStream_t>(stream.handle)>>>(words);
  SKEIN_CUDA_RETURN_IF_ERROR(cudaGetLastError());
  while (words->begun == 0) {
  }
  return absl::OkStatus();
}

}  // namespace skein::kernels::cuda
