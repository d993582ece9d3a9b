// What profiles call operations.
#pragma once

#include <string>

#include "kernels/ops/program.h"

namespace skein::kernels::cuda {

// "norm", "product wqkv": of an operation of the Program.
std::string NameOfOp(const Program& program, const Op& op);

}  // namespace skein::kernels::cuda
