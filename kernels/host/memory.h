// Memory for weights, caches and buffers of back ends that compute on the host.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "absl/status/statusor.h"

namespace skein::kernels {

// A private mapping: zero-filled, aligned to a page; a page costs nothing until it is touched.
// Movable; owns the mapping.
class HostMemory {
 public:
  HostMemory() = default;
  HostMemory(HostMemory&& other) noexcept { *this = std::move(other); }
  HostMemory& operator=(HostMemory&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~HostMemory();

  // ResourceExhausted, with `what` and the bytes asked for, when the system refuses.
  // `huge_pages`, for what is streamed as a whole: asks for pages of 2 MiB, fewer TLB misses.
  static absl::StatusOr<HostMemory> Allocate(int64_t bytes, const char* what,
                                             bool huge_pages = false);

  std::byte* data() const { return data_; }
  float* floats() const { return reinterpret_cast<float*>(data_); }
  int64_t bytes() const { return bytes_; }

 private:
  std::byte* data_ = nullptr;
  int64_t bytes_ = 0;
};

}  // namespace skein::kernels
