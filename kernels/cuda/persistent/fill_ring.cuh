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

  // group: tiles that a product takes together.
  template <int kStageBlocks, int kBlockBytes>
  __device__ void Run(int group) {
    uint32_t next = LoadStepOp(step_, 0);
    bool waited = false;
    for (int number = 0; number < step_.op_count; ++number) {
      const StepOp& op = ShareOut(next, memory_);
      next = LoadStepOp(step_, number + 1);
      if (op.kind == static_cast<int>(ScheduledOp::Kind::kProduct)) {
        FillProduct(op, number, group);
      } else if (op.kind == static_cast<int>(ScheduledOp::Kind::kAttention)) {
        // Weights are nobody's work; all else may be that of the kernels before.
        if (!waited) {
          WaitForPrevious();
          AwaitBatch();
          waited = true;
        }
        FillAttention<kStageBlocks, kBlockBytes>(op, number);
      }
    }
  }

 private:
  // Until the place of the next unit is free, and little enough is on its way.
  __device__ void Turn(int number) {
    const bool ahead = number > *const_cast<volatile int32_t*>(&memory_.at);
    const RingPlace<kStepStages> before = ahead ? ahead_ : within_;
    WaitFor(&memory_.full[before.stage], before.parity);
    WaitFor(&memory_.empty[to_.stage], to_.parity ^ 1);
  }
  __device__ void Next() {
    to_.Next();
    within_.Next();
    ahead_.Next();
  }
  __device__ void FillProduct(const StepOp& op, int number, int group) {
    const CUtensorMap& map = step_.maps[op.map];
    if (Lane() == 0) PrefetchMap(map);
    const int chunks = (op.cols + kUnitCols - 1) / kUnitCols;
    const uint64_t policy = EvictFirst();
    for (int first = op.first_tile; first < op.end_tile; first += group) {
      const int end = min(first + group, op.end_tile);
      for (int chunk = 0; chunk < chunks; ++chunk) {
#pragma unroll 1
        for (int tile = first; tile < end; ++tile) {
          Turn(number);
          if (Lane() == 0) {
            ExpectBytes(&memory_.full[to_.stage], kUnitBytes);
            TensorCopy(memory_.ring[to_.stage], map, 0, tile * kUnitRows, chunk * (kUnitCols / 64),
                       &memory_.full[to_.stage], policy);
          }
          Next();
        }
      }
    }
  }

  // A lane finds a block of 32, and copies it.
  template <int kStageBlocks, int kBlockBytes>
  __device__ void FillAttention(const StepOp& op, int number) {
    constexpr int kAtOnce = kWarp / kStageBlocks * kStageBlocks;
    const int page_blocks = step_.kv.page_size / kKvBlock;
    const uint64_t policy = EvictFirst();
    const AttentionWork<kStageBlocks> work(step_, memory_, op.window);
    work.ForEach([&](const Segment& segment) {
      const int32_t* const pages =
          step_.batch.page_tables + memory_.slots[segment.row] * step_.batch.page_table_stride;
      for (int done = 0; done < segment.blocks; done += kAtOnce) {
        const int count = min(kAtOnce, segment.blocks - done);
        const char* from = nullptr;
        if (Lane() < count) {
          const int block = segment.block + done + Lane();
          const int64_t page = __ldcg(pages + block / page_blocks);
          from = static_cast<const char*>(op.memory) +
                 step_.kv.BlockNumber(page, segment.kv_head, block % page_blocks * kKvBlock) *
                     int64_t{kBlockBytes};
        }
        for (int first = 0; first < count; first += kStageBlocks) {
          const int blocks = min(kStageBlocks, count - first);
          Turn(number);
          if (Lane() == first) ExpectBytes(&memory_.full[to_.stage], blocks * kBlockBytes);
          __syncwarp();
          const int in_stage = Lane() - first;
          if (in_stage >= 0 && in_stage < blocks) {
            BulkCopy(memory_.ring[to_.stage] + in_stage * kBlockBytes, from, kBlockBytes,
                     &memory_.full[to_.stage], policy);
          }
          Next();
        }
      }
    });
  }

  const PersistentStep& step_;
  BlockMemory& memory_;
  RingPlace<kStepStages> to_;
  // Where units stand that were asked for so many before the next one.
  RingPlace<kStepStages> within_, ahead_;
};

}  // namespace skein::kernels::cuda
