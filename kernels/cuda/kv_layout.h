// Where keys and values lie in a page of the GPU's KV cache. Pure: host and device.
//
// A layer is [pages][kv_heads][page_size / 16] blocks. A block holds 16 consecutive positions of
// one head: keys [16, head_dim], then values [16, head_dim]. So a block is one bulk copy, whatever
// the page size. A shard's heads are contiguous in a page.
//
// Elements of 16 bits are in panels of 64 columns (32 where head_dim is no multiple of 64), a panel
// [16, 64] row-major. In a row of a panel the 16-byte chunks are permuted by the row's number, as
// the 128-byte (64-byte) swizzle of the tensor copy engine and of wgmma's descriptors would: what
// lands in shared memory is read by ldmatrix without bank conflicts and by wgmma as it is.
//
// Int8 elements are in rows of head_dim, and behind the values stand the scales, as floats: of keys
// [16], of values [16] (kv_codec.h). The 16-byte chunks of a row are permuted by the row's number,
// so that lanes that read chunks of several rows meet in few banks. Of 4 columns the middle two are
// exchanged, so that bytes 0 and 2 of a word, and bytes 1 and 3, are neighbours: see Widen.
#pragma once

#include <cstdint>

namespace skein::kernels::cuda {

// Positions of a block: the fewest that ldmatrix and mma's inner dimension take.
inline constexpr int kKvBlock = 16;
// Elements of 16 bits of a 16-byte chunk.
inline constexpr int kKvChunk = 8;

constexpr bool KvHeadDimIsSupported(int head_dim) {
  return head_dim == 64 || head_dim == 96 || head_dim == 128;
}

constexpr int KvPanelCols(int head_dim) { return head_dim % 64 == 0 ? 64 : 32; }

// Keys and values of 16 bits.
constexpr int KvBlockElements(int head_dim) { return 2 * kKvBlock * head_dim; }
constexpr int KvBlockBytes(int head_dim, bool int8) {
  return int8 ? 2 * kKvBlock * (head_dim + static_cast<int>(sizeof(float)))
              : 2 * KvBlockElements(head_dim);
}
// Where a block's values begin, in bytes.
constexpr int KvValuesByte(int head_dim, bool int8) { return kKvBlock * head_dim * (int8 ? 1 : 2); }

// Where chunk `chunk` (columns 8 * chunk on) of row `row` stands in a block's keys or values of 16
// bits, in elements.
constexpr int KvChunkOffset(int head_dim, int row, int chunk) {
  const int panel_cols = KvPanelCols(head_dim);
  const int panel_chunks = panel_cols / kKvChunk;
  // 64 columns are all of the 128 bytes that the banks span, 32 half of them.
  const int swizzle = panel_cols == 64 ? row % 8 : row / 2 % 4;
  return chunk / panel_chunks * kKvBlock * panel_cols + row * panel_cols +
         (chunk % panel_chunks ^ swizzle) * kKvChunk;
}

// Where the word of columns `column` to column + 3, a multiple of 4, of row `row` stands in a
// block's int8 keys or values, in bytes.
constexpr int KvInt8Word(int head_dim, int row, int column) {
  const int swizzle = head_dim == 128  ? (row ^ row >> 1) % 2 * 4 + row / 4 % 2 * 2
                      : head_dim == 64 ? row / 2 % 2 * 2
                                       : 0;
  return row * head_dim + (column / 16 ^ swizzle) * 16 + column % 16;
}
// Where one column stands.
constexpr int KvInt8Offset(int head_dim, int row, int column) {
  const int in_word = column % 4;
  return KvInt8Word(head_dim, row, column - in_word) + in_word / 2 + in_word % 2 * 2;
}
// Where scales stand in a block of int8, in bytes: a float for each row's key, or value.
constexpr int KvScalesByte(int head_dim, bool of_values) {
  return 2 * kKvBlock * head_dim + (of_values ? kKvBlock * static_cast<int>(sizeof(float)) : 0);
}

// One layer of a cache.
struct KvLayer {
  void* data = nullptr;  // 1024-byte aligned
  int32_t kv_heads = 0;
  int32_t head_dim = 0;   // 64, 96 or 128
  int32_t page_size = 0;  // a multiple of 16
  bool int8 = false;      // elements; else they are of 16 bits

  constexpr int64_t PageBytes() const {
    return int64_t{kv_heads} * (page_size / kKvBlock) * KvBlockBytes(head_dim, int8);
  }
  // The block that holds `offset` of the page, and its first byte.
  constexpr int64_t BlockNumber(int64_t page, int head, int offset) const {
    return (page * kv_heads + head) * (page_size / kKvBlock) + offset / kKvBlock;
  }
  constexpr int64_t BlockByte(int64_t page, int head, int offset) const {
    return BlockNumber(page, head, offset) * KvBlockBytes(head_dim, int8);
  }
  constexpr char* Block(int64_t page, int head, int offset) const {
    return static_cast<char*>(data) + BlockByte(page, head, offset);
  }
};

}  // namespace skein::kernels::cuda
