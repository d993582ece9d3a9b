// For tests: a kernel that ends the use of its GPU by this process.
#pragma once

#include "base/stream.h"

namespace skein::kernels::cuda {

// Its assertion on the device fails.
void EnqueueFailing(Stream stream);

}  // namespace skein::kernels::cuda
