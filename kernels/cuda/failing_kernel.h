// For tests: a kernel that ends the use of its GPU by this process.
#pragma once

#include "base/stream.h"

namespace skein::kernels::cuda {

// Its assertion on the device `fails`. The first call loads it, and waits for all of the device.
void EnqueueFailing(bool fails, Stream stream);

}  // namespace skein::kernels::cuda
