// What keys and values take, as fractions of bytes.
#pragma once

#include <cstdint>

#include "kernels/packing/layout.h"

namespace skein::plan {

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
