// What the device gives at best, for benchmarks to be held against.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "base/stream.h"

namespace skein::kernels::cuda {

// Reads `bytes` at `data`, 16-byte aligned, once, and keeps nothing; `sink` [1] is never written,
// but the compiler cannot know.
absl::Status EnqueueRead(const void* data, int64_t bytes, uint32_t* sink, int32_t blocks,
                         Stream stream);

// Fills `count` 16-bit elements with bf16 numbers in (-1, 1), none of them 0.
absl::Status EnqueueFill(void* data, int64_t count, uint32_t seed, Stream stream);

}  // namespace skein::kernels::cuda
