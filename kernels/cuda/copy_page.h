// A page of a cache in all layers, copied within the device or from and to pinned host memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "base/stream.h"

namespace skein::kernels::cuda {

struct CopyPage {
  const std::byte* from = nullptr;  // the page in the first layer, 16-byte aligned, as `to`
  std::byte* to = nullptr;          // does not overlap
  int64_t from_layer_stride = 0;    // bytes, multiples of 16
  int64_t to_layer_stride = 0;
  int64_t layers = 0;
  int64_t page_bytes = 0;  // in a layer, a multiple of 16
};

absl::Status Enqueue(const CopyPage& op, Stream stream);

}  // namespace skein::kernels::cuda
