// What decode attention takes of a device's memory beside the cache. Pure.
#pragma once

#include <cstdint>

namespace skein::kernels::cuda {

// Query heads that share a KV head, at most: the rows of one mma.
inline constexpr int kMaxGroup = 16;

// Warps of a block, one block a multiprocessor: each is a worker, has its own ring and never waits
// for another.
inline constexpr int kDecodeWarps = 8;
constexpr int DecodeWorkers(int multiprocessors) { return multiprocessors * kDecodeWarps; }

// Sequences of a batch at most: a block makes the plan, with a number for each in the shared memory
// that it gets without asking (kDefaultSharedBytes).
inline constexpr int32_t kMaxDecodeSequences = 32 * 1024 / 4 - 1;

// Floats of a row of a partial result: sums and their summary, 16-byte aligned.
constexpr int PartialFloats(int head_dim) { return head_dim + 4; }

// Bytes of a plan, 16-byte aligned: a header, a split and a run for each worker, the sequences,
// each a record of 16 bytes. No particular content at first.
constexpr int64_t DecodePlanBytes(int32_t sequences, int32_t multiprocessors) {
  return 16 * (1 + int64_t{2} * DecodeWorkers(multiprocessors) + sequences);
}

// Bytes of partial results, 16-byte aligned; used by one launch at a time.
constexpr int64_t DecodePartialBytes(int32_t heads, int32_t kv_heads, int32_t head_dim,
                                     int32_t multiprocessors) {
  return int64_t{2} * DecodeWorkers(multiprocessors) * (heads / kv_heads) *
         PartialFloats(head_dim) * static_cast<int64_t>(sizeof(float));
}

}  // namespace skein::kernels::cuda
