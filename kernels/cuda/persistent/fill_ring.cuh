// The warp that fills the ring: weights, and keys and values, in the order in which the other warps
// take them.
//
// The lower its latency between a unit that has come and the next one that is asked for, the more
// is on its way; but the more is on its way, the longer the words take that blocks wait for. So
// there is a limit, and a lower one for what lies beyond the operation that the block computes.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda/bulk_copy.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/persistent/block.cuh"
#include "kernels/cuda/vectors.cuh"

namespace skein::kernels::cuda {

class FillRing {
 public:
  __device__ FillRing(const PersistentStep& step, BlockMemory& memory)
      : step_(step),
        memory_(memory),
        within_{kStepStages - step.in_flight, 1},
        ahead_{kStepStages - step.in_flight_ahead, 1} {}

  // kRowTiles: of 8 rows of the batch.
  template <int kStageBlocks, int kBlockBytes, int kRowTiles>
  __device__ void Run() {
    uint32_t next = LoadStepOp(step_, 0);
    for (int number = 0; number < step_.op_count; ++number) {
      const StepOp& op = ShareOut(next, memory_);
      next = LoadStepOp(step_, number + 1);
      if (op.kind == static_cast<int>(ScheduledOp::Kind::kProduct)) {
        FillProduct(op, number, SumSlots(step_.rows, op.cols) / kRowTiles);
      } else if (op.kind == static_cast<int>(ScheduledOp::Kind::kAttention)) {
        if (!waited_) AwaitPrevious();
        FillAttention<kStageBlocks, kBlockBytes>(op, number);
      }
    }
  }

 private:
  // Weights are nobody's work; all else may be that of the kernels before.
  __device__ void AwaitPrevious() {
    WaitForPrevious();
    AwaitBatch();
    waited_ = true;
  }
  // Until the place of the next unit is free, and little enough is on its way.
  __device__ void Turn(int number) {
    const bool ahead = number > *const_cast<volatile int32_t*>(&memory_.at);
    const RingPlace<kStepStages> before = ahead ? ahead_ : within_;
    WaitFor(&memory_.full[before.stage], before.parity);
    WaitFor(&memory_.empty[to_.stage], to_.parity ^ 1);
    if (Lane() == 0) *const_cast<volatile uint32_t*>(&memory_.asked_for[to_.stage]) = to_.number;
  }
  __device__ void Next() {
    to_.Next();
    within_.Next();
    ahead_.Next();
  }
  // group: tiles that go together.
  __device__ void FillProduct(const StepOp& op, int number, int group) {
    const CUtensorMap& map = step_.maps[op.map];
    if (Lane() == 0) PrefetchMap(map);
    const int chunks = (op.cols + kUnitCols - 1) / kUnitCols;
    const uint64_t policy = EvictFirst();
    const auto copy = [&](int tile, int chunk) {
      if (Lane() == 0) {
        ExpectBytes(&memory_.full[to_.stage], kUnitBytes);
        TensorCopy(memory_.ring[to_.stage], map, 0, tile * kUnitRows,
                   chunk * (kUnitCols / kPanelCols), &memory_.full[to_.stage], policy);
      }
      Next();
    };
    for (int first = op.first_tile; first < op.end_tile; first += group) {
      const int end = min(first + group, op.end_tile);
      for (int chunk = 0; chunk < chunks; ++chunk) {
#pragma unroll 1
        for (int tile = first; tile < end; ++tile) {
          Turn(number);
          copy(tile, chunk);
        }
      }
    }
    const int tiles = (op.rows + kUnitRows - 1) / kUnitRows;
    if (op.first_free_tile >= tiles) return;
    // The next tile is asked for while this one comes.
    if (!waited_) AwaitPrevious();
    uint32_t next = Lane() == 0 ? atomicAdd(step_.given + number, 1) : 0;
    while (true) {
      const int tile = op.first_free_tile + static_cast<int>(__shfl_sync(0xffffffffu, next, 0));
      const bool any = tile < tiles;
      Turn(number);
      if (Lane() == 0) memory_.tiles[to_.stage] = any ? tile : -1;
      if (!any) {
        if (Lane() == 0) Arrive(&memory_.full[to_.stage]);
        Next();
        return;
      }
      if (Lane() == 0) next = atomicAdd(step_.given + number, 1);
      copy(tile, 0);
      for (int chunk = 1; chunk < chunks; ++chunk) {
        Turn(number);
        copy(tile, chunk);
      }
    }
  }

  // A lane finds the place of a block, of as many pieces at once as the warp has lanes for: their
  // pages are loaded together.
  template <int kStageBlocks, int kBlockBytes>
  __device__ void FillAttention(const StepOp& op, int op_number) {
    constexpr int kPieces = kWarp / kStageBlocks;
    const int page_blocks = step_.kv.page_size / kKvBlock;
    const uint64_t policy = EvictFirst();
    const AttentionWork<kStageBlocks> work(step_, memory_, op.window);
    int pieces = 0;          // that are found
    int blocks = 0;          // of this lane's piece
    int64_t first_page = 0;  // of the page table
    int block = 0, kv_head = 0;
    const auto copy = [&] {
      const int in_piece = Lane() % kStageBlocks;
      const bool real = Lane() / kStageBlocks < pieces && in_piece < blocks;
      int64_t number = -1;  // of the block in the cache
      if (real) {
        const int64_t page = __ldcg(step_.batch.page_tables + first_page + block / page_blocks);
        number = step_.kv.BlockNumber(page, kv_head, block % page_blocks * kKvBlock);
      }
      // A copy brings blocks that follow each other: mostly, all of a piece.
      const int64_t before = __shfl_up_sync(0xffffffffu, number, 1);
      const bool follows = real && in_piece > 0 && before + 1 == number;
      const uint32_t others = ~__ballot_sync(0xffffffffu, follows) >> 1 >> Lane();
      const int run = others == 0 ? kWarp - Lane() : __ffs(static_cast<int>(others));
      const char* const from = static_cast<const char*>(op.memory) + number * kBlockBytes;
      for (int piece = 0; piece < pieces; ++piece) {
        Turn(op_number);
        const bool own = Lane() / kStageBlocks == piece;
        if (own && in_piece == 0) ExpectBytes(&memory_.full[to_.stage], blocks * kBlockBytes);
        __syncwarp();
        if (own && real && !follows) {
          BulkCopy(memory_.ring[to_.stage] + in_piece * kBlockBytes, from, run * kBlockBytes,
                   &memory_.full[to_.stage], policy);
        }
        Next();
      }
      pieces = 0;
    };
    // A piece more, or none: what was found is copied.
    const auto add = [&](const Segment* segment, int done) {
      if (segment != nullptr) {
        if (Lane() / kStageBlocks == pieces) {
          blocks = min(kStageBlocks, segment->blocks - done);
          first_page = memory_.slots[segment->row] * step_.batch.page_table_stride;
          block = segment->block + done + Lane() % kStageBlocks;
          kv_head = segment->kv_head;
        }
        if (++pieces < kPieces) return;
      }
      copy();
    };
    work.ForEach([&](const Segment& segment) {
#pragma unroll 1
      for (int done = 0; done < segment.blocks; done += kStageBlocks) add(&segment, done);
    });
    add(nullptr, 0);
  }

  const PersistentStep& step_;
  BlockMemory& memory_;
  bool waited_ = false;
  RingUnit to_;
  // Where units stand that were asked for so many before the next one.
  RingPlace<kStepStages> within_, ahead_;
};

}  // namespace skein::kernels::cuda
