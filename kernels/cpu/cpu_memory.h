// Weights and KV cache of the CPU back end, in the layouts of kernels/packing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "absl/status/status.h"
#include "kernels/host/memory.h"
#include "kernels/ops/backend.h"
#include "kernels/packing/layout.h"

namespace skein::kernels {

class CpuWeight final : public PackedWeight {
 public:
  CpuWeight(const WeightSpec& spec, HostMemory memory)
      : PackedWeight(spec), memory_(std::move(memory)) {}
  int64_t bytes() const override { return memory_.bytes(); }

  // A vector's elements.
  const float* floats() const { return memory_.floats(); }

  // A matrix's tiles.
  int64_t tiles() const { return (spec().rows + kTileRows - 1) / kTileRows; }
  const std::byte* tile(int64_t index) const { return memory_.data() + index * TileBytes(); }

  // data [count, cols] in spec().dtype, unaligned. Rows lie inside the weight. Writes elements of
  // these rows only.
  void Pack(int64_t first_row, int64_t count, const std::byte* data);
  // out [cols] = row `row` of a matrix. A cache line an element.
  void Lookup(int64_t row, float* out) const;

 private:
  int64_t TileBytes() const { return DTypeBytes(spec().dtype, kTileRows * spec().cols); }

  HostMemory memory_;
};

class CpuKv final : public KvCache {
 public:
  CpuKv(const KvSpec& spec, HostMemory memory)
      : KvCache(spec), layout_(PageLayout(spec)), memory_(std::move(memory)) {}

  const KvPageLayout& layout() const { return layout_; }
  // Page 0 of a layer and head; page p follows at p * layout().page_stride.
  std::byte* pages(int64_t layer, int64_t head) const {
    return memory_.data() + layer * layout_.layer_stride + head * layout_.head_stride;
  }
  // key, value [head_dim], rounded to the cache's dtype. Different slots and heads may be written
  // by different threads.
  void Write(int64_t layer, int64_t head, int64_t slot, const float* key, const float* value);

  absl::Status CopyPage(const KvCache& from, int32_t from_page, int32_t to_page) override;

 private:
  template <typename T>
  void WriteSlot(std::byte* page, int64_t offset, const float* key, const float* value) const;

  const KvPageLayout layout_;
  HostMemory memory_;
};

}  // namespace skein::kernels
