#include <cassert>

#include "kernels/cuda/failing_kernel.h"

namespace skein::kernels::cuda {
namespace {

__global__ void FailingKernel(bool fails) { assert(!fails && "as a test asks"); }

}  // namespace

void EnqueueFailing(bool fails, Stream stream) {
  FailingKernel<<<1, 1, 0, static_cast<cudaStream_t>(stream.handle)>>>(fails);
}

}  // namespace skein::kernels::cuda
