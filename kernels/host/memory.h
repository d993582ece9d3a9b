// Maps memory for weights, caches and buffers of back ends that compute on the host.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "absl/status/statusor.h"

namespace skein::kernels {

// Owns a private mapping, zero-filled and aligned to a page. A page costs nothing until it is
// touched. Movable.
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

  // ResourceExhausted, with `what` and the bytes asked for, when the system refuses. `huge_pages`
  // asks for pages of 2 MiB, so that memory that is streamed as a whole costs fewer TLB misses.
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
