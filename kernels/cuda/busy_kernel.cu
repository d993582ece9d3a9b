#include "kernels/cuda/busy_kernel.h"

namespace skein::kernels::cuda {
namespace {

__global__ void BusyKernel(const volatile int32_t* over) {
  while (*over == 0) __nanosleep(1000);
}

}  // namespace

void EnqueueBusy(const volatile int32_t* over, Stream stream) {
  int device = 0, most = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
  cudaFuncSetAttribute(BusyKernel, cudaFuncAttributeMaxDynamicSharedMemorySize, most);
  BusyKernel<<<1, 1, static_cast<size_t>(most), static_cast<cudaStream_t>(stream.handle)>>>(over);
}

}  // namespace skein::kernels::cuda
