// Of keys and values: their own dtype, and what they take, as fractions of bytes.
#pragma once

#include <cstdint>

#include "base/dtype.h"
#include "kernels/packing/layout.h"

namespace skein::plan {

// As they are computed.
constexpr kernels::KvDType KvAsComputed(DType activations) {
  switch (activations) {
    case DType::kBF16:
      return kernels::KvDType::kBF16;
    case DType::kF16:
      return kernels::KvDType::kF16;
    default:
      return kernels::KvDType::kF32;
  }
}

constexpr double KvBytesPerValue(kernels::KvDType dtype, int64_t head_dim) {
  switch (dtype) {
    case kernels::KvDType::kF32:
      return 4;
    case kernels::KvDType::kBF16:
    case kernels::KvDType::kF16:
      return 2;
    case kernels::KvDType::kInt8:
      return 1 + 4.0 / static_cast<double>(head_dim);  // a float scale for each head's vector
  }
  return 0;
}

}  // namespace skein::plan
