#include "kernels/cpu/products.h"

#include "absl/types/span.h"
#include "base/status_macros.h"

namespace skein::kernels {

absl::Status Products::Allocate(int64_t integer_bytes) {
  SKEIN_ASSIGN_OR_RETURN(integers_, HostMemory::Allocate(integer_bytes, "integers"));
  return absl::OkStatus();
}

QuantizedRows Products::IntegersOf(const Product& product) {
  const WeightSpec& spec = weights_.specs()[product.weight].spec;
  if (exact_ || !HasIntegerRows(spec)) return {};
  const QuantizedRows integers = {.data = integers_.data(), .cols = spec.cols};
  ForTasks(pool_, product.rows, spec.cols, [&](int64_t r, int) {
    simd_.quantize(product.in + r * spec.cols, spec.cols, integers, r);
  });
  return integers;
}

void Products::Multiply(const Product& product) {
  if (observer_ != nullptr) observer_->Multiplied(product.weight, product.in, product.rows);
  const WeightSpec& matrix = weights_.specs()[product.weight].spec;
  const absl::Span<const Tile> tiles = weights_.tiles(product.weight);
  const auto tile_count = static_cast<int64_t>(tiles.size());
  const QuantizedRows integers = IntegersOf(product);
  // Few tiles are cut into parts, so that there are tasks enough to share out evenly.
  constexpr int64_t kTasksEach = 16;
  const bool cut = tile_count < kTasksEach * pool_.threads() && product.rows > kRowsAtOnce;
  const int64_t parts = cut ? 2 : 1;
  const int64_t tasks = tile_count * parts;
  const FetchList& fetch = product.fetch;
  ForTasks(pool_, tasks, product.rows * matrix.cols * kTileRows / parts, [&](int64_t task, int) {
    const Tile& tile = tiles[task / parts];
    const int64_t fetch_begin = task * fetch.count / tasks;
    const int64_t fetch_end = (task + 1) * fetch.count / tasks;
    simd_.multiply({.in = product.in,
                    .integers = integers,
                    .rows = product.rows,
                    .cols = matrix.cols,
                    .inner_blocks = matrix.inner_blocks,
                    .inner_bounds = weights_.inner_bounds(product.weight),
                    .tile = tile.data,
                    .dtype = tile.dtype,
                    .out = product.out + tile.first_row,
                    .out_stride = matrix.rows,
                    .out_cols = tile.rows,
                    .part = task % parts,
                    .parts = parts,
                    .fetch = {.blocks = fetch.blocks + fetch_begin,
                              .count = fetch_end - fetch_begin,
                              .bytes = fetch.bytes}});
  });
}

}  // namespace skein::kernels
