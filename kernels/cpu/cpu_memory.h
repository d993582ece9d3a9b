// Keeps the CPU back end's weights and KV cache in the layouts of kernels/packing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "base/dtype.h"
#include "kernels/host/memory.h"
#include "kernels/host/weights.h"
#include "kernels/ops/backend.h"
#include "kernels/packing/layout.h"

namespace skein::kernels {

// Holds 64 rows of a matrix, or the last ones of a part of it, padded.
struct Tile {
  std::byte* data = nullptr;
  DType dtype = DType::kBF16;
  int64_t first_row = 0;
  int64_t rows = 0;
};

class CpuWeights final : public HostWeights {
 public:
  explicit CpuWeights(const Program& program) : HostWeights(program) {}
  absl::Status Allocate();

  // Returns a vector's elements.
  const float* floats(WeightId id) const { return reinterpret_cast<const float*>(data(id)); }
  // Returns a matrix's tiles, in order of rows.
  absl::Span<const Tile> tiles(WeightId id) const { return tiles_[id]; }
  // Returns where its inner blocks begin, and where the last one ends, [inner_blocks + 1].
  const int64_t* inner_bounds(WeightId id) const { return inner_bounds_[id].data(); }
  // Writes row `row` of a matrix to out [cols]. Costs a cache line an element.
  void Lookup(WeightId id, int64_t row, float* out) const;

 private:
  void Pack(const WeightRows& rows, const std::byte* data) override;
  const Tile& TileOf(WeightId id, int64_t row) const;

  // These are by weight, and empty for vectors.
  std::vector<std::vector<Tile>> tiles_;
  std::vector<std::vector<int64_t>> inner_bounds_;
};

class CpuKv final : public KvCache {
 public:
  CpuKv(const KvSpec& spec, HostMemory memory)
      : KvCache(spec), layout_(PageLayout(spec)), memory_(std::move(memory)) {}

  const KvPageLayout& layout() const { return layout_; }
  // Returns page 0 of a layer and head; page p follows at p * layout().page_stride.
  std::byte* pages(int64_t layer, int64_t head) const {
    return memory_.data() + layer * layout_.layer_stride + head * layout_.head_stride;
  }
  // Writes key and value [head_dim], rounded to the cache's dtype. Different threads may write
  // different slots and heads.
  void Write(int64_t layer, int64_t head, int64_t slot, const float* key, const float* value);

  absl::Status CopyPage(const KvCache& from, int32_t from_page, int32_t to_page) override;

 private:
  template <typename T>
  void WriteSlot(std::byte* page, int64_t offset, const float* key, const float* value) const;

  const KvPageLayout layout_;
  HostMemory memory_;
};

}  // namespace skein::kernels
