// A view of a tensor in a device's memory: address, dtype and shape. Nothing here reads the memory:
// on a GPU only kernels and transports may.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"
#include "base/dtype.h"

namespace skein {

// [rows, cols], row-major, rows contiguous. Borrowed.
struct ConstView {
  const void* data = nullptr;
  DType dtype = DType::kF32;
  int64_t rows = 0;
  int64_t cols = 0;

  int64_t elements() const { return rows * cols; }
  int64_t bytes() const { return DTypeBytes(dtype, elements()); }
};

struct View {
  void* data = nullptr;
  DType dtype = DType::kF32;
  int64_t rows = 0;
  int64_t cols = 0;

  int64_t elements() const { return rows * cols; }
  int64_t bytes() const { return DTypeBytes(dtype, elements()); }
  View First(int64_t count) const { return {data, dtype, count, cols}; }  // rows
  operator ConstView() const { return {data, dtype, rows, cols}; }  // NOLINT: as span<const T>
};

// Memory of the host, as one row.
inline View HostView(absl::Span<float> floats) {
  return {floats.data(), DType::kF32, 1, static_cast<int64_t>(floats.size())};
}
inline View HostView(absl::Span<int32_t> ids) {
  return {ids.data(), DType::kI32, 1, static_cast<int64_t>(ids.size())};
}
inline ConstView HostView(absl::Span<const int32_t> ids) {
  return {ids.data(), DType::kI32, 1, static_cast<int64_t>(ids.size())};
}
inline View HostView(absl::Span<std::byte> bytes) {
  return {bytes.data(), DType::kU8, 1, static_cast<int64_t>(bytes.size())};
}
inline ConstView HostView(absl::Span<const std::byte> bytes) {
  return {bytes.data(), DType::kU8, 1, static_cast<int64_t>(bytes.size())};
}

// The bytes that a view of host memory covers.
inline absl::Span<std::byte> HostBytes(View view) {
  return {static_cast<std::byte*>(view.data), static_cast<size_t>(view.bytes())};
}
inline absl::Span<const std::byte> HostBytes(ConstView view) {
  return {static_cast<const std::byte*>(view.data), static_cast<size_t>(view.bytes())};
}

}  // namespace skein
