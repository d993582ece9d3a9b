#include "kernels/cpu/cpu_memory.h"

#include <algorithm>
#include <cstring>

#include "base/dtype.h"
#include "base/status_macros.h"
#include "kernels/ops/validate.h"
#include "kernels/packing/kv_codec.h"

namespace skein::kernels {
namespace {

// Columns transposed at a time: with 64 rows they stay in the L1 cache while they are scattered.
constexpr int64_t kPackColumns = 64;

// T is an unsigned integer of the dtype's width.
template <typename T>
void PackTile(DType dtype, int64_t cols, int64_t first_row, int64_t count, const std::byte* data,
              T* tile) {
  for (int64_t begin = 0; begin < cols; begin += kPackColumns) {
    const int64_t end = std::min(cols, begin + kPackColumns);
    for (int64_t r = 0; r < count; ++r) {
      const std::byte* row = data + r * cols * sizeof(T);
      T* out = tile + PositionInTile(dtype, first_row + r);
      for (int64_t k = begin; k < end; ++k) {
        std::memcpy(&out[k * kTileRows], row + k * sizeof(T), sizeof(T));
      }
    }
  }
}

template <typename T, typename ToFloat>
void LookupRow(const std::byte* tile, int64_t position, int64_t cols, const ToFloat& to_float,
               float* out) {
  const T* column = reinterpret_cast<const T*>(tile) + position;
  for (int64_t k = 0; k < cols; ++k) out[k] = to_float(column[k * kTileRows]);
}

// out[i * stride] = in[i] as the cache keeps it; only int8 has a scale.
void StoreRounded(const float* in, int64_t n, float* out, int64_t stride, float* /*scale*/) {
  for (int64_t i = 0; i < n; ++i) out[i * stride] = in[i];
}
void StoreRounded(const float* in, int64_t n, uint16_t* out, int64_t stride, float* /*scale*/) {
  for (int64_t i = 0; i < n; ++i) out[i * stride] = FloatToBf16(in[i]);
}
void StoreRounded(const float* in, int64_t n, int8_t* out, int64_t stride, float* scale) {
  *scale = Int8Scale(in, n);
  for (int64_t i = 0; i < n; ++i) out[i * stride] = ToInt8(in[i], *scale);
}

}  // namespace

void CpuWeight::Pack(int64_t first_row, int64_t count, const std::byte* data) {
  const int64_t cols = spec().cols;
  if (spec().kind == WeightSpec::Kind::kVector) {
    ConvertToFloat(spec().dtype, data, count * cols, memory_.floats());
    return;
  }
  while (count > 0) {
    const int64_t row = first_row % kTileRows;
    const int64_t rows = std::min(count, kTileRows - row);
    std::byte* out = memory_.data() + first_row / kTileRows * TileBytes();
    if (spec().dtype == DType::kF32) {
      PackTile(spec().dtype, cols, row, rows, data, reinterpret_cast<uint32_t*>(out));
    } else {
      PackTile(spec().dtype, cols, row, rows, data, reinterpret_cast<uint16_t*>(out));
    }
    first_row += rows;
    count -= rows;
    data += DTypeBytes(spec().dtype, rows * cols);
  }
}

void CpuWeight::Lookup(int64_t row, float* out) const {
  const std::byte* in = tile(row / kTileRows);
  const int64_t position = PositionInTile(spec().dtype, row % kTileRows);
  switch (spec().dtype) {
    case DType::kF32:
      return LookupRow<float>(in, position, spec().cols, [](float v) { return v; }, out);
    case DType::kF16:
      return LookupRow<uint16_t>(in, position, spec().cols, F16ToFloat, out);
    case DType::kBF16:
      return LookupRow<uint16_t>(in, position, spec().cols, Bf16ToFloat, out);
    default:
      break;  // no weight
  }
}

void CpuKv::Write(int64_t layer, int64_t head, int64_t slot, const float* key, const float* value) {
  std::byte* page = pages(layer, head) + slot / spec().page_size * layout_.page_stride;
  switch (spec().dtype) {
    case KvDType::kF32:
      return WriteSlot<float>(page, slot % spec().page_size, key, value);
    case KvDType::kBF16:
      return WriteSlot<uint16_t>(page, slot % spec().page_size, key, value);
    case KvDType::kInt8:
      return WriteSlot<int8_t>(page, slot % spec().page_size, key, value);
  }
}

template <typename T>
void CpuKv::WriteSlot(std::byte* page, int64_t offset, const float* key, const float* value) const {
  const int64_t n = spec().head_dim;
  const auto scales = [&](int64_t at) { return reinterpret_cast<float*>(page + at) + offset; };
  T* keys = reinterpret_cast<T*>(page) + offset;
  T* values = reinterpret_cast<T*>(page + layout_.values) + offset * layout_.value_stride;
  StoreRounded(key, n, keys, layout_.key_stride, scales(layout_.key_scales));
  StoreRounded(value, n, values, 1, scales(layout_.value_scales));
}

absl::Status CpuKv::CopyPage(const KvCache& from, int32_t from_page, int32_t to_page) {
  const auto* other = dynamic_cast<const CpuKv*>(&from);
  if (other == nullptr) return absl::InvalidArgumentError("another back end's cache");
  SKEIN_RETURN_IF_ERROR(ValidatePageCopy(from.spec(), from_page, spec(), to_page));
  for (int64_t layer = 0; layer < spec().layers; ++layer) {
    std::memmove(pages(layer, 0) + to_page * layout_.page_stride,
                 other->pages(layer, 0) + from_page * layout_.page_stride, layout_.page_stride);
  }
  return absl::OkStatus();
}

}  // namespace skein::kernels
