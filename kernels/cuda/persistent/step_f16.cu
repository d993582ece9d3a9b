#include "kernels/cuda/load_kernels.h"
#include "kernels/cuda/persistent/launch_step.h"
#include "kernels/cuda/persistent/step_kernel.cuh"

namespace skein::kernels::cuda {

absl::Status LaunchF16Step(const PersistentStep& step, int32_t blocks, Stream stream) {
  return LaunchStepOf<__half>(step, blocks, stream);
}

absl::Status CheckF16StepFits(const PersistentStep& step, int32_t blocks) {
  return CheckStepFits<__half>(step, blocks);
}

const void* KernelOfF16Step() {
  return reinterpret_cast<const void*>(StepKernel<__half, 128, false, 1>);
}

}  // namespace skein::kernels::cuda
