// The launchers of the persistent kernel, a file of kernels for each dtype of activations.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "base/stream.h"
#include "kernels/cuda/persistent/step.h"

namespace skein::kernels::cuda {

// Queues a step. The device has `blocks` multiprocessors, and until the step is over nothing else
// may run on it that waits for something.
absl::Status LaunchBf16Step(const PersistentStep& step, int32_t blocks, Stream stream);
absl::Status LaunchF16Step(const PersistentStep& step, int32_t blocks, Stream stream);

// Whether so many blocks of all kernels that such a step may take are on the device at once, as
// they wait for each other: Unimplemented, with what there is. Others' kernels do not count.
absl::Status CheckBf16StepFits(const PersistentStep& step, int32_t blocks);
absl::Status CheckF16StepFits(const PersistentStep& step, int32_t blocks);

}  // namespace skein::kernels::cuda
