#include <cassert>

#include "kernels/cuda/failing_kernel.h"

namespace skein::kernels::cuda {
namespace {

__global__ void FailingKernel() { assert(false && "as a test asks"); }

}  // namespace

void EnqueueFailing(Stream stream) {
  FailingKernel<<<1, 1, 0, static_cast<cudaStream_t>(stream.handle)>>>();
}

}  // namespace skein::kernels::cuda
