// For tests: a kernel that keeps a multiprocessor to itself.
#pragma once

#include <cstdint>

#include "base/stream.h"

namespace skein::kernels::cuda {

// One block, with all of the shared memory that a block may have, until *over, of memory that the
// device reads on the host, is not 0.
void EnqueueBusy(const volatile int32_t* over, Stream stream);

}  // namespace skein::kernels::cuda
