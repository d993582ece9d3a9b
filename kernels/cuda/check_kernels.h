// Whether a GPU has kernels for a Program. Pure: nothing is asked of a device.
#pragma once

#include "absl/status/status.h"
#include "base/dtype.h"
#include "kernels/ops/program.h"
#include "kernels/packing/layout.h"

namespace skein::kernels::cuda {

// Returns the dtype of 16 bits that a GPU computes a Program in, its buffers': BF16 where none has
// one.
DType DTypeOfMatrices(const Program& program);

// Unimplemented, with the operation's index or the buffer, for what there are no kernels for. The
// Program is valid; `kv` is null where it is bound to no cache.
absl::Status CheckKernels(const Program& program, const KvSpec* kv);

}  // namespace skein::kernels::cuda
