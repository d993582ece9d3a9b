// The oracle computes every operation as a plain loop over scalars, summed in double. Slow.
#pragma once

#include <memory>

#include "kernels/ops/backend.h"

namespace skein::kernels {

// Runs on the calling thread. A row's bits depend on nothing but its own sequence.
std::unique_ptr<Backend> MakeReferenceBackend();

}  // namespace skein::kernels
