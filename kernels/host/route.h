// The choice of a row's experts.
#pragma once

#include <cstdint>

namespace skein::kernels {

// As RouteOp, for one row: logits [experts], out [2 * chosen]. A NaN is chosen last, and makes all
// weights NaN.
void Route(const float* logits, int64_t experts, int32_t chosen, bool normalized, float* out);

}  // namespace skein::kernels
