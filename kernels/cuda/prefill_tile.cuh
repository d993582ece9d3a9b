// Which rows a block of prefill attention works on, and which positions they see.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/prefill_attention.h"
#include "kernels/cuda/vectors.cuh"

namespace skein::kernels::cuda {

// What a block of threads works on: some rows of a sequence, and the positions that they see.
struct Tile {
  int sequence = -1;  // none: there is no such tile
  int first_row = 0;  // of (token, head) rows
  int rows = 0;       // all that the sequence has
  int tokens_at = 0;  // the batch's row of token 0
  int slot = 0;
  int position = 0;  // of token 0
  int begin = 0;     // positions [begin, end) are seen by any of the rows
  int end = 0;
};

// The tile of this number, all lanes of a warp together. A sequence's last tile, which sees most,
// comes first, so that the long ones are not begun last.
template <int kRows>
__device__ Tile FindTile(const PrefillAttention& op, int group, int number) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  for (int base = 0; base < op.batch.sequences; base += kWarp) {
    const int s = base + lane;
    int begin = 0;
    int tokens = 0;
    if (s < op.batch.sequences) {
      begin = op.batch.row_begin[s];
      tokens = op.batch.row_begin[s + 1] - begin;
    }
    const int tiles = tokens >= op.fewest_rows ? (tokens * group + kRows - 1) / kRows : 0;
    int sum = tiles;
    for (int step = 1; step < kWarp; step *= 2) {
      const int before = __shfl_up_sync(0xffffffffu, sum, step);
      if (lane >= step) sum += before;
    }
    const unsigned beyond = __ballot_sync(0xffffffffu, sum > number);
    if (beyond == 0) {
      number -= __shfl_sync(0xffffffffu, sum, kWarp - 1);
      continue;
    }
    const int owner = __ffs(static_cast<int>(beyond)) - 1;
    Tile tile;
    tile.sequence = base + owner;
    tile.tokens_at = __shfl_sync(0xffffffffu, begin, owner);
    tile.rows = __shfl_sync(0xffffffffu, tokens, owner) * group;
    tile.first_row = (__shfl_sync(0xffffffffu, sum, owner) - 1 - number) * kRows;
    return tile;
  }
  return {};
}

template <int kRows>
__device__ void SeePositions(const PrefillAttention& op, int group, Tile& tile) {
  tile.slot = op.batch.slots[tile.sequence];
  tile.position = op.batch.lengths[tile.slot] - tile.rows / group;
  const int last_row = min(tile.first_row + kRows, tile.rows) - 1;
  tile.end = tile.position + last_row / group + 1;
  if (op.window > 0) {
    tile.begin = max(0, tile.position + tile.first_row / group + 1 - op.window);
  }
}

// Calls f<T, kHeadDim, kInt8>() for the operation's dtype and cache.
template <typename F>
absl::Status WithKvShape(const PrefillAttention& op, const F& f) {
  return With16BitType(op.dtype, [&]<typename T>(TypeTag<T>) {
    const auto with_head_dim = [&]<bool kInt8>() {
      switch (op.kv.head_dim) {
        case 64:
          return f.template operator()<T, 64, kInt8>();
        case 96:
          return f.template operator()<T, 96, kInt8>();
        default:
          return f.template operator()<T, 128, kInt8>();
      }
    };
    return op.kv.int8 ? with_head_dim.template operator()<true>()
                      : with_head_dim.template operator()<false>();
  });
}

// Tiles of kRows rows that a batch has at most: a sequence's last one may be a short one.
template <int kRows>
int64_t MostTiles(const PrefillAttention& op) {
  return op.rows * (op.heads / op.kv.kv_heads) / kRows +
         std::min<int64_t>(op.batch.sequences, op.rows);
}

}  // namespace skein::kernels::cuda
