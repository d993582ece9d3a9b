#include "kernels/cpu/cpu_memory.h"

#include <algorithm>
#include <cstring>
#include <iterator>

#include "base/dtype.h"
#include "base/quantized_blocks.h"
#include "base/status_macros.h"
#include "kernels/ops/validate.h"
#include "kernels/packing/kv_codec.h"

namespace skein::kernels {
namespace {

// So many columns are transposed at a time: with 64 rows they stay in the L1 cache while they are
// scattered.
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

// Where row `row` of a unit has its F16 number that stands alone, and its first word.
std::byte* HalfOf(std::byte* unit, int64_t row) { return unit + row * 2; }
std::byte* WordsOf(DType dtype, std::byte* unit, int64_t row) {
  return unit + UnitHalfBytes(dtype) + row * 4;
}
constexpr int64_t kWordStride = kTileRows * 4;

// Calls copy(part of the block, its place in the unit, bytes) for all of a block's bytes.
template <typename Copy>
void ForBlock(DType dtype, std::byte* unit, int64_t row, const Copy& copy) {
  const int64_t bytes = BlockBytes(dtype);
  const bool has_half = UnitHalfBytes(dtype) != 0;
  if (has_half) copy(HalfInBlock(dtype), HalfOf(unit, row), 2);
  int64_t at = has_half && HalfInBlock(dtype) == 0 ? 2 : 0;
  std::byte* word = WordsOf(dtype, unit, row);
  for (int64_t i = 0; i < bytes / 4; ++i, at += 4, word += kWordStride) copy(at, word, 4);
}

// A unit at a time, which stays in the L1 cache while its rows are scattered.
void PackUnits(DType dtype, int64_t cols, int64_t first_row, int64_t count, const std::byte* data,
               std::byte* tile) {
  const int64_t blocks = cols / BlockElements(dtype);
  const int64_t block_bytes = BlockBytes(dtype);
  for (int64_t b = 0; b < blocks; ++b) {
    std::byte* const unit = tile + b * UnitBytes(dtype);
    for (int64_t r = 0; r < count; ++r) {
      const std::byte* const block = data + (r * blocks + b) * block_bytes;
      ForBlock(dtype, unit, first_row + r, [block](int64_t at, std::byte* place, int64_t bytes) {
        std::memcpy(place, block + at, bytes);
      });
    }
  }
}

void LookupUnits(DType dtype, std::byte* tile, int64_t row, int64_t cols, float* out) {
  constexpr int64_t kMostBytes = 256;
  std::byte block[kMostBytes] = {};
  for (int64_t b = 0; b < cols / BlockElements(dtype); ++b) {
    ForBlock(dtype, tile + b * UnitBytes(dtype), row,
             [&block](int64_t at, const std::byte* place, int64_t bytes) {
               std::memcpy(block + at, place, bytes);
             });
    DequantizeBlocks(dtype, block, 1, out + b * BlockElements(dtype));
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
void StoreRounded(const float* in, int64_t n, _Float16* out, int64_t stride, float* /*scale*/) {
  for (int64_t i = 0; i < n; ++i) out[i * stride] = static_cast<_Float16>(in[i]);
}
void StoreRounded(const float* in, int64_t n, int8_t* out, int64_t stride, float* scale) {
  *scale = Int8Scale(in, n);
  for (int64_t i = 0; i < n; ++i) out[i * stride] = ToInt8(in[i], *scale);
}

}  // namespace

absl::Status CpuWeights::Allocate() {
  SKEIN_RETURN_IF_ERROR(HostWeights::Allocate(PackedBytes));
  for (WeightId id = 0; id < static_cast<WeightId>(specs().size()); ++id) {
    std::vector<Tile>& tiles = tiles_.emplace_back();
    std::vector<int64_t>& bounds = inner_bounds_.emplace_back();
    if (spec(id).kind == WeightSpec::Kind::kVector) continue;
    for (int64_t i = 0; i <= spec(id).inner_blocks; ++i) bounds.push_back(InnerBound(spec(id), i));
    std::byte* next = data(id);
    int64_t begin = 0;
    for (const WeightSpec::Part& part : PartsOf(spec(id))) {
      for (int64_t row = 0; row < part.rows; row += kTileRows) {
        tiles.push_back({next, part.dtype, begin + row, std::min(kTileRows, part.rows - row)});
        next += DTypeBytes(part.dtype, kTileRows * spec(id).cols);
      }
      begin += part.rows;
    }
  }
  return absl::OkStatus();
}

const Tile& CpuWeights::TileOf(WeightId id, int64_t row) const {
  const std::vector<Tile>& tiles = tiles_[id];
  // Without parts all tiles but the last are full.
  if (spec(id).parts.empty()) return tiles[row / kTileRows];
  return *std::prev(std::upper_bound(tiles.begin(), tiles.end(), row,
                                     [](int64_t r, const Tile& t) { return r < t.first_row; }));
}

void CpuWeights::Pack(const WeightRows& rows, const std::byte* data) {
  const int64_t cols = spec(rows.weight).cols;
  if (spec(rows.weight).kind == WeightSpec::Kind::kVector) {
    return ConvertToFloat(spec(rows.weight).dtype, data, rows.count * cols,
                          reinterpret_cast<float*>(this->data(rows.weight)));
  }
  for (int64_t row = rows.first; row < rows.first + rows.count;) {
    const Tile& tile = TileOf(rows.weight, row);
    const int64_t first = row - tile.first_row;
    const int64_t count = std::min(rows.first + rows.count - row, tile.rows - first);
    if (IsQuantized(tile.dtype)) {
      PackUnits(tile.dtype, cols, first, count, data, tile.data);
    } else if (tile.dtype == DType::kF32) {
      PackTile(tile.dtype, cols, first, count, data, reinterpret_cast<uint32_t*>(tile.data));
    } else {
      PackTile(tile.dtype, cols, first, count, data, reinterpret_cast<uint16_t*>(tile.data));
    }
    row += count;
    data += DTypeBytes(tile.dtype, count * cols);
  }
}

void CpuWeights::Lookup(WeightId id, int64_t row, float* out) const {
  const Tile& tile = TileOf(id, row);
  const int64_t cols = spec(id).cols;
  if (IsQuantized(tile.dtype)) {
    return LookupUnits(tile.dtype, tile.data, row - tile.first_row, cols, out);
  }
  const int64_t position = PositionInTile(tile.dtype, row - tile.first_row);
  switch (tile.dtype) {
    case DType::kF32:
      return LookupRow<float>(tile.data, position, cols, [](float v) { return v; }, out);
    case DType::kF16:
      return LookupRow<uint16_t>(tile.data, position, cols, F16ToFloat, out);
    case DType::kBF16:
      return LookupRow<uint16_t>(tile.data, position, cols, Bf16ToFloat, out);
    default:
      break;  // no weight has another dtype
  }
}

void CpuKv::Write(int64_t layer, int64_t head, int64_t slot, const float* key, const float* value) {
  std::byte* page = pages(layer, head) + slot / spec().page_size * layout_.page_stride;
  switch (spec().dtype) {
    case KvDType::kF32:
      return WriteSlot<float>(page, slot % spec().page_size, key, value);
    case KvDType::kBF16:
      return WriteSlot<uint16_t>(page, slot % spec().page_size, key, value);
    case KvDType::kF16:
      return WriteSlot<_Float16>(page, slot % spec().page_size, key, value);
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
