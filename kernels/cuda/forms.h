// Which form of the kernels runs on this device: Hopper's own, or that of compute capability 8.0,
// which newer GPUs run, too. A build has one or both (--define=cuda_archs).
#pragma once

#include "absl/status/status.h"

// What a kernel may use while it is compiled for a device; on the host it says nothing.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
#define SKEIN_HOPPER 0
#else
#define SKEIN_HOPPER 1
#endif

namespace skein::kernels::cuda {

inline constexpr bool kHopper = SKEIN_HOPPER != 0;

// OK where the current device runs one of the forms; else Unimplemented with what the build has.
absl::Status CheckForms();

// Whether the device's form is Hopper's. All devices of a process have the same one. False where
// there is none.
bool HopperForms();

// OK where it is; else Unimplemented: "StreamKLinear: needs ...". For kernels that have no other.
absl::Status NeedHopper(const char* kernel);

}  // namespace skein::kernels::cuda
