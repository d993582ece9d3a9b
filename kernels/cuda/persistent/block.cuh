// What the warps of a block of the persistent kernel share: their roles, the shared memory, and the
// ring by which weights, keys and values come.
//
// Warps 0 to 7 compute. Warp 8 fills the ring, operation after operation, with no regard to where
// the others are, but for how much is on its way; warp 9 prepares the arena of the next step; warps
// 10 and 11 find the factors of norms.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda/bulk_copy.cuh"
#include "kernels/cuda/kv_layout.h"
#include "kernels/cuda/persistent/exchange.cuh"
#include "kernels/cuda/persistent/step.h"
#include "kernels/cuda/vectors.cuh"

namespace skein::kernels::cuda {

inline constexpr int kComputeWarps = 8;
inline constexpr int kComputeThreads = kComputeWarps * kWarp;
inline constexpr int kFactorWarps = 2;
inline constexpr int kStepThreads = kComputeThreads + (2 + kFactorWarps) * kWarp;
static_assert(kSegmentParts == kComputeWarps);

inline constexpr int kUnitBytes = kUnitRows * kUnitCols * 2;
inline constexpr int kPanelBytes = kUnitRows * 128;
inline constexpr int kStepStages = 11;

static_assert(kMostSums == kComputeWarps);  // warp s adds up the sums of slot s

// Shared memory, all of it dynamic.
struct BlockMemory {
  alignas(1024) char ring[kStepStages][kUnitBytes];
  char of_warps[kComputeWarps][kOfWarpBytes];  // of a product
  // Cosine and sine, [rows][head_dim / 2].
  float2 rotations[kMostStepRows * 64];
  float factors[kMostStepRows];  // of the norm
  // Of the batch.
  int32_t positions[kMostStepRows];
  int32_t slots[kMostStepRows];
  int32_t first_rows[kMostStepRows];  // of its sequence
  int32_t outputs[kMostStepRows];     // row of the logits, or -1
  ArrivalBarrier full[kStepStages], empty[kStepStages];
  int32_t tiles[kStepStages];        // of a free tile's first unit; -1: there is none any more
  uint32_t asked_for[kStepStages];   // the unit that the stage has, or will have
  StepOp ops[kStepThreads / kWarp];  // that each warp is at
  int32_t at;                        // the operation that the block computes
  uint32_t first_sum;                // over shards: the number of the step's first one
};

// A unit's place in the ring. A warp that computes takes the units of a product one after the
// other, as all warps do, and those of attention alone, and none of the others'.
struct RingUnit {
  uint32_t number = 0;
  int stage = 0;
  uint32_t parity = 0;

  __device__ void Next() {
    ++number;
    if (++stage == kStepStages) stage = 0, parity ^= 1;
  }
  __device__ void Skip(int units) {
    number += units;
    stage = static_cast<int>(number % kStepStages);
    parity = number / kStepStages % 2;
  }
};

// Waits for a unit when those before it in the same stage were perhaps not waited for: a barrier
// tells a round from the next one, not from that behind.
__device__ inline void WaitForOwn(BlockMemory& memory, const RingUnit& unit) {
  const auto* asked_for = const_cast<volatile uint32_t*>(&memory.asked_for[unit.stage]);
  while (*asked_for != unit.number) {
  }
  WaitFor(&memory.full[unit.stage], unit.parity);
}

// Of the warps that compute.
__device__ inline void ComputeBarrier() {
  asm volatile("bar.sync 1, %0;" ::"n"(kComputeThreads) : "memory");
}

// The batch's rows are in shared memory: said by all threads that compute, and awaited by the warp
// that fills the ring, for which nobody waits.
__device__ inline void BatchIsTaken() {
  asm volatile("bar.arrive 2, %0;" ::"n"(kComputeThreads + kWarp) : "memory");
}
__device__ inline void AwaitBatch() {
  asm volatile("bar.sync 2, %0;" ::"n"(kComputeThreads + kWarp) : "memory");
}

// The factors of an operation's norm are in shared memory: said by the warps that find them,
// awaited by all threads that compute, in the place of a barrier of theirs.
// Nobody arrives for an operation before the block is at it: barriers count arrivals, not whose
// they are, and these warps wait for nobody where data are void, or have nothing to find.
__device__ inline void FactorsAreFound(const BlockMemory& memory, int number) {
  const auto* const at = const_cast<const volatile int32_t*>(&memory.at);
  while (*at < number) {
  }
  asm volatile("bar.sync 4, %0;" ::"n"(kFactorWarps * kWarp) : "memory");
  asm volatile("bar.arrive 3, %0;" ::"n"(kComputeThreads + kFactorWarps * kWarp) : "memory");
}
__device__ inline void ComputeBarrierWithFactors() {
  asm volatile("bar.sync 3, %0;" ::"n"(kComputeThreads + kFactorWarps * kWarp) : "memory");
}

// The words of an operation, one a lane, loaded ahead.
__device__ inline uint32_t LoadStepOp(const PersistentStep& step, int op) {
  op = min(op, step.op_count - 1);
  const int lane = Lane();
  if (lane >= kStepOpWords - 2) {
    return __ldg(step.shares + op * (static_cast<int>(gridDim.x) + 1) +
                 static_cast<int>(blockIdx.x) + lane - (kStepOpWords - 2));
  }
  return __ldg(reinterpret_cast<const uint32_t*>(step.ops + op) + lane);
}
// In shared memory, where the warp's lanes read all of it.
__device__ inline const StepOp& ShareOut(uint32_t word, BlockMemory& memory) {
  StepOp& op = memory.ops[threadIdx.x / kWarp];
  __syncwarp();  // the one before has been read
  reinterpret_cast<uint32_t*>(&op)[Lane()] = word;
  __syncwarp();
  return op;
}

__device__ inline char* PlaceIn(char* arena, int rows, uint32_t place) {
  return arena + int64_t{rows} * place;
}

// ---- The work of attention. A KV head of a row has blocks of 16 positions; as many as a stage of
// the ring has room for are a piece, and some pieces a segment, which one block of the kernel has.
// How a head is cut depends on the row's own length alone, and so do its bits. ----

// Blocks of keys and values that a stage of the ring has.
constexpr int KvBlocksOfStage(int head_dim, bool int8) {
  return kUnitBytes / KvBlockBytes(head_dim, int8);
}

struct Segment {
  int row;
  int kv_head;
  int number;  // of the KV head
  int block;   // its first one, of the sequence
  int blocks;
};

// All lanes have the same, but for what they know of one row.
template <int kStageBlocks>
class AttentionWork {
 public:
  __device__ AttentionWork(const PersistentStep& step, const BlockMemory& memory, int window)
      : kv_heads_(step.attention.kv_heads), rows_(step.rows) {
    const int lane = Lane();
    const bool real = lane < step.rows;
    const int end = real ? memory.positions[lane] + 1 : 0;
    first_ = window > 0 ? max(0, end - window) / kKvBlock : 0;
    blocks_ = real ? (end + kKvBlock - 1) / kKvBlock - first_ : 0;
    pieces_ = (blocks_ + kStageBlocks - 1) / kStageBlocks;
    const int most = MostSegments(kv_heads_);
    segment_ = max(1, (pieces_ + most - 1) / most);
    int sum = pieces_ * kv_heads_;
#pragma unroll
    for (int distance = 1; distance < kMostStepRows; distance *= 2) {
      const int before = __shfl_up_sync(0xffffffffu, sum, distance);
      if (lane >= distance) sum += before;
    }
    begin_ = sum - pieces_ * kv_heads_;
    // 16 rows of 64 KV heads of 131,072 positions have 4 million pieces.
    const uint32_t all = __shfl_sync(0xffffffffu, sum, kMostStepRows - 1);
    share_begin_ = static_cast<int>(all * blockIdx.x / gridDim.x);
    share_end_ = static_cast<int>(all * (blockIdx.x + 1) / gridDim.x);
  }

  // Calls f(segment) for those that this block of the kernel has: that begin in its equal share of
  // all pieces.
  template <typename F>
  __device__ void ForEach(const F& f) const {
    if (share_begin_ == share_end_) return;
    const bool here = Lane() < kMostStepRows && share_begin_ >= begin_ &&
                      share_begin_ - begin_ < pieces_ * kv_heads_;
    int row = __ffs(static_cast<int>(__ballot_sync(0xffffffffu, here))) - 1;
    Row of = Take(row);
    const int in_row = share_begin_ - of.begin;
    int kv_head = in_row / of.pieces;
    int number = (in_row % of.pieces + of.segment - 1) / of.segment;
    while (true) {
      if (number * of.segment >= of.pieces) {
        number = 0;
        if (++kv_head == kv_heads_) {
          kv_head = 0;
          if (++row == rows_) return;
          of = Take(row);
        }
      }
      const int piece = number * of.segment;
      if (of.begin + kv_head * of.pieces + piece >= share_end_) return;
      const int block = piece * kStageBlocks;
      f(Segment{row, kv_head, number, of.first + block,
                min(of.segment * kStageBlocks, of.blocks - block)});
      ++number;
    }
  }

  // How many parts the row's KV heads have, and each segment but the last.
  struct Parts {
    int all;
    int of_segment;
  };
  __device__ Parts PartsOf(int row) const {
    const Row of = Take(row);
    const int of_segment = min(kSegmentParts, of.segment);
    const int whole = (of.pieces - 1) / of.segment;  // segments before the last one
    return {whole * of_segment + min(kSegmentParts, of.pieces - whole * of.segment), of_segment};
  }

 private:
  struct Row {
    int first, blocks, pieces, segment, begin;
  };
  __device__ Row Take(int row) const {
    const auto of = [row](int x) { return __shfl_sync(0xffffffffu, x, row); };
    return {of(first_), of(blocks_), of(pieces_), of(segment_), of(begin_)};
  }

  const int kv_heads_, rows_;
  // Of the lane's row: its first block that is seen, blocks and pieces of a KV head, pieces of a
  // segment, and pieces of all rows before.
  int first_, blocks_, pieces_, segment_, begin_;
  int share_begin_, share_end_;
};

}  // namespace skein::kernels::cuda
