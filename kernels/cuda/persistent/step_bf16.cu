#include "kernels/cuda/load_kernels.h"
#include "kernels/cuda/persistent/launch_step.h"
#include "kernels/cuda/persistent/step_kernel.cuh"

namespace skein::kernels::cuda {

absl::Status LaunchBf16Step(const PersistentStep& step, int32_t blocks, Stream stream) {
  return LaunchStepOf<__nv_bfloat16>(step, blocks, stream);
}

absl::Status CheckBf16StepFits(const PersistentStep& step, int32_t blocks) {
  return CheckStepFits<__nv_bfloat16>(step, blocks);
}

const void* KernelOfBf16Step() {
  return reinterpret_cast<const void*>(StepKernel<__nv_bfloat16, 128, false, 1>);
}

}  // namespace skein::kernels::cuda
