// How a position's key or value of a head comes into a block of the cache, and what rotates it.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda/kv_layout.h"
#include "kernels/cuda/vectors.cuh"
#include "kernels/packing/kv_codec.h"

namespace skein::kernels::cuda {

// Angles reach a million radians, where a float's sine would need a long reduction: the turns are
// counted in double, whose error there is 1e-10.
__device__ inline void SineCosine(float angle, float* sine, float* cosine) {
  constexpr double kTurnsPerRadian = 0.15915494309189533577;
  const double turns = static_cast<double>(angle) * kTurnsPerRadian;
  sincospif(2.0f * static_cast<float>(turns - rint(turns)), sine, cosine);
}

// By all lanes of a warp: lane i has columns 4 * i to 4 * i + 3, lanes from head_dim / 4 on what
// the last one of these has. Row `row` of the block's int8 keys, or values, and its scale.
__device__ inline void WriteInt8Row(char* block, int head_dim, bool is_value, int row,
                                    const float (&x)[4]) {
  uint32_t largest = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) largest = max(largest, MagnitudeBits(x[i]));
  const float scale = Int8Scale(__reduce_max_sync(0xffffffffu, largest));
  if (Lane() >= head_dim / 4) return;
  char* const to =
      block + (is_value ? KvValuesByte(head_dim, true) : 0) + KvInt8Word(head_dim, row, Lane() * 4);
  uint32_t word = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    // As KvInt8Offset says.
    word |= uint32_t{static_cast<uint8_t>(ToInt8(x[i], scale))} << 8 * (i / 2 + i % 2 * 2);
  }
  *reinterpret_cast<uint32_t*>(to) = word;
  if (Lane() == 0) reinterpret_cast<float*>(block + KvScalesByte(head_dim, is_value))[row] = scale;
}

// Likewise of 16 bits.
template <typename T>
__device__ void Write16BitRow(char* block, int head_dim, bool is_value, int row,
                              const float (&x)[4]) {
  if (Lane() >= head_dim / 4) return;
  T* const rows = reinterpret_cast<T*>(block + (is_value ? KvValuesByte(head_dim, false) : 0));
  const int at = KvChunkOffset(head_dim, row, Lane() / 2) + Lane() % 2 * 4;
  *reinterpret_cast<uint2*>(rows + at) =
      make_uint2(RoundedPair<T>(x[0], x[1]), RoundedPair<T>(x[2], x[3]));
}

}  // namespace skein::kernels::cuda
