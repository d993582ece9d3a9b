// Where keys and values of 16 bits lie in a page of the GPU's KV cache. Pure: host and device.
//
// A layer is [pages][kv_heads][page_size / 16] blocks. A block holds 16 consecutive positions of
// one head: keys [16, head_dim], then values [16, head_dim], each as panels of 64 columns (32 where
// head_dim is no multiple of 64), a panel [16, 64] row-major. In a row of a panel the 16-byte
// chunks are permuted by the row's number, as the 128-byte (64-byte) swizzle of the tensor copy
// engine and of wgmma's descriptors would.
//
// So a block is one bulk copy, whatever the page size, and what lands in shared memory is read by
// ldmatrix without bank conflicts and by wgmma as it is. A shard's heads are contiguous in a page.
#pragma once

#include <cstdint>

namespace skein::kernels::cuda {

// Positions of a block: the fewest that ldmatrix and mma's inner dimension take.
inline constexpr int kKvBlock = 16;
// Elements of a 16-byte chunk.
inline constexpr int kKvChunk = 8;

constexpr bool KvHeadDimIsSupported(int head_dim) {
  return head_dim == 64 || head_dim == 96 || head_dim == 128;
}

constexpr int KvPanelCols(int head_dim) { return head_dim % 64 == 0 ? 64 : 32; }

// Of keys and values.
constexpr int KvBlockElements(int head_dim) { return 2 * kKvBlock * head_dim; }

// Where chunk `chunk` (columns 8 * chunk on) of row `row` (0 to 15) stands in a block's keys or
// values, in elements.
constexpr int KvChunkOffset(int head_dim, int row, int chunk) {
  const int panel_cols = KvPanelCols(head_dim);
  const int panel_chunks = panel_cols / kKvChunk;
  // 64 columns are all of the 128 bytes that the banks span, 32 half of them.
  const int swizzle = panel_cols == 64 ? row % 8 : row / 2 % 4;
  return chunk / panel_chunks * kKvBlock * panel_cols + row * panel_cols +
         (chunk % panel_chunks ^ swizzle) * kKvChunk;
}

// One layer of a cache.
struct KvLayer {
  void* data = nullptr;  // 1024-byte aligned
  int32_t kv_heads = 0;
  int32_t head_dim = 0;   // 64, 96 or 128
  int32_t page_size = 0;  // a multiple of 16

  constexpr int64_t PageElements() const { return int64_t{kv_heads} * page_size * 2 * head_dim; }
  // The first element of the block that holds `offset` of the page.
  constexpr int64_t BlockBegin(int64_t page, int head, int offset) const {
    return page * PageElements() +
           (int64_t{head} * (page_size / kKvBlock) + offset / kKvBlock) * KvBlockElements(head_dim);
  }
};

}  // namespace skein::kernels::cuda
