// Products of the persistent kernel: a block's share of out[r] = in[r] * weight^T.
//
// A unit of 16 weight rows by 512 columns is mma's operand A; its 8 panels of 64 columns are a
// warp's each, so that a warp needs but its own columns of `in`: a chunk of 128 bytes a row for
// each unit, which it stages some chunks ahead. Some tiles of 16 weight rows go together over all
// columns; for the next such group `in` is there, or is staged anew. Then the warps' sums are added
// up, each warp one tile of 16 by 8, while the others go on.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda/bulk_copy.cuh"
#include "kernels/cuda/mma.cuh"
#include "kernels/cuda/persistent/block.cuh"
#include "kernels/cuda/persistent/exchange.cuh"
#include "kernels/cuda/persistent/residual.cuh"
#include "kernels/cuda/persistent/shards.cuh"
#include "kernels/cuda/vectors.cuh"

namespace skein::kernels::cuda {

// kRowTiles: of 8 rows of the batch.
template <typename T, int kRowTiles>
class Product {
 public:
  __device__ Product(const PersistentStep& step, BlockMemory& memory, const StepOp& op, int number)
      : step_(step),
        memory_(memory),
        op_(op),
        number_(number),
        warp_(static_cast<int>(threadIdx.x) / kWarp),
        group_(Lane() / 4),
        quad_(Lane() % 4),
        depth_(step.rows > 8 ? 2 : (step.rows > 4 ? 4 : 8)),
        keeps_(KeptBytes(step.rows, op.cols) > 0),
        slots_(SumSlots(step.rows, op.cols)),
        staged_mask_(keeps_ ? ~0 : depth_ - 1),
        staged_bytes_(keeps_ ? step.rows * kStagedRowBytes
                             : kOfWarpBytes / kMostDepth * (kMostDepth / depth_)) {}

  __device__ void Run(RingUnit& ring) {
    const bool has_free = op_.first_free_tile < (op_.rows + kUnitRows - 1) / kUnitRows;
    const int group = slots_ / kRowTiles;
    int first = op_.first_tile;
    int tiles = min(group, op_.end_tile - first);
#pragma unroll 1
    while (true) {
      if (tiles <= 0) {  // of its own
        if (!has_free) return;
        WaitFor(&memory_.full[ring.stage], ring.parity);
        first = memory_.tiles[ring.stage];
        if (first < 0) break;
        tiles = 1;
      }
      RunGroup(first, tiles, ring);
      first += tiles;
      tiles = min(group, op_.end_tile - first);
    }
    __syncwarp();
    if (Lane() == 0) Arrive(&memory_.empty[ring.stage]);
    ring.Next();
  }

 private:
  using Then = ScheduledOp::Then;
  static constexpr int kGroup = kMostSums / kRowTiles;  // tiles that go together, at most
  static constexpr int kMostDepth = 8;
  static constexpr int kSteps = 4;  // of mma in a panel
  static constexpr int kUnitPanels = kUnitCols / kPanelCols;

  // A warp's columns of a chunk of 512, of all rows.
  struct Operand {
    uint2 words[kRowTiles][kSteps];
  };

  __device__ int RowOf(int tile) const { return tile * 8 + group_; }
  __device__ bool HasPanel(int chunk) const {
    return chunk * kUnitPanels + warp_ < op_.cols / kPanelCols;
  }
  // The warp's part of a chunk is one run of memory, as it is in staging.
  __device__ const char* ChunkAt(int chunk) const {
    return PlaceIn(step_.arena, step_.rows, op_.in) +
           OperandPlace((chunk * kUnitPanels + warp_) * kSteps, step_.rows, 0, 0);
  }
  __device__ int InChunk(int tile, int k) const {
    return static_cast<int>(OperandPlace(k, step_.rows, RowOf(tile), quad_));
  }
  __device__ char* StagedAt(int chunk) const {
    return memory_.of_warps[warp_] + (chunk & staged_mask_) * staged_bytes_;
  }
  // Where the group's sum `number` is. `number` is slots_ at most.
  __device__ int Slot(int number) const {
    const int slot = slot_ + number;
    return slot < slots_ ? slot : slot - slots_;
  }
  __device__ float4* SumsAt(int warp, int slot) const {
    return reinterpret_cast<float4*>(memory_.of_warps[warp] + kOfWarpBytes -
                                     (slot + 1) * kSumBytes);
  }

  // Starts the copy of what has come of a chunk by now. One group of copies, which may be empty.
  __device__ void Stage(int chunk, int chunks) const {
    if (chunk < chunks && HasPanel(chunk)) {
      const char* const from = ChunkAt(chunk);
      const uint32_t to = SharedAddress(StagedAt(chunk));
      for (int i = Lane() * 16; i < step_.rows * kStagedRowBytes; i += kWarp * 16) {
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to + i), "l"(from + i)
                     : "memory");
      }
    }
    asm volatile("cp.async.commit_group;" ::: "memory");
  }
  // Waits for the copy of the chunk that was staged first.
  __device__ void AwaitCopy() const {
    // All but the newest depth_ - 1 groups.
    if (kRowTiles > 1) {
      asm volatile("cp.async.wait_group 1;" ::: "memory");
    } else if (depth_ == 4) {
      asm volatile("cp.async.wait_group 3;" ::: "memory");
    } else {
      asm volatile("cp.async.wait_group 7;" ::: "memory");
    }
    __syncwarp();
  }
  __device__ void Read(int chunk, Operand& operand) const {
    const char* const staged = StagedAt(chunk);
#pragma unroll
    for (int t = 0; t < kRowTiles; ++t) {
      const bool real = HasPanel(chunk) && RowOf(t) < step_.rows;
#pragma unroll
      for (int k = 0; k < kSteps; ++k) {
        operand.words[t][k] =
            real ? *reinterpret_cast<const uint2*>(staged + InChunk(t, k)) : make_uint2(0, 0);
      }
    }
  }
  // Waits for what was not there.
  __device__ void AwaitRest(int chunk, Operand& operand) const {
    Patience patience(step_, number_);
    bool waited = false;
#pragma unroll 1
    while (true) {
      bool here = true;
#pragma unroll
      for (int t = 0; t < kRowTiles; ++t) {
#pragma unroll
        for (int k = 0; k < kSteps; ++k) here = here && Present(operand.words[t][k]);
      }
      if (__all_sync(0xffffffffu, here) || __any_sync(0xffffffffu, patience.Ends())) break;
      waited = true;
      if (here) continue;
      const char* const from = ChunkAt(chunk);
#pragma unroll
      for (int t = 0; t < kRowTiles; ++t) {
        if (RowOf(t) >= step_.rows) continue;
#pragma unroll
        for (int k = 0; k < kSteps; ++k) {
          operand.words[t][k] = LoadWords<uint2>(from + InChunk(t, k));
        }
      }
    }
    if (!waited || !keeps_) return;
    // A lane reads what it wrote itself.
    char* const staged = StagedAt(chunk);
#pragma unroll
    for (int t = 0; t < kRowTiles; ++t) {
      if (!HasPanel(chunk) || RowOf(t) >= step_.rows) continue;
#pragma unroll
      for (int k = 0; k < kSteps; ++k) {
        *reinterpret_cast<uint2*>(staged + InChunk(t, k)) = operand.words[t][k];
      }
    }
  }

  // What the end of a group needs, and has come long before.
  struct Early {
    uint2 old = {};
    FourFloats gains = {};
    float2 bias = {};  // of weight rows group and group + 8
  };

  __device__ void RunGroup(int first, int tiles, RingUnit& ring) {
    const int chunks = (op_.cols + kUnitCols - 1) / kUnitCols;
    float sums[kGroup][kRowTiles][4] = {};
    // Who has come to the end of a group has read the sums of the group before it, so that only
    // those of the last group may still be read.
    const int slots = tiles * kRowTiles;
    if (!kept_ || taken_ + slots > slots_) ComputeBarrier();
    slot_ = kept_ ? Slot(taken_) : 0;
    taken_ = slots;
    if (!kept_) {
#pragma unroll 1
      for (int chunk = 0; chunk < depth_; ++chunk) Stage(chunk, chunks);
    }
    const Early early = LookEarly(first, tiles);
    // Where a lane's rows of a panel begin, and how their chunks of 16 bytes are permuted.
    const uint32_t row_place = warp_ * kPanelBytes + Lane() % 16 * 128;
    const uint32_t permuted = Lane() % 8;
    const auto multiply = [&](const Operand& in) {
#pragma unroll
      for (int i = 0; i < kGroup; ++i) {
        if (i < tiles) {
          WaitFor(&memory_.full[ring.stage], ring.parity);
          const uint32_t panel = SharedAddress(memory_.ring[ring.stage]) + row_place;
#pragma unroll
          for (int k = 0; k < kSteps; ++k) {
            uint32_t a[4];
            LoadMatrices(a, panel + ((2 * k + Lane() / 16) ^ permuted) * 16);
#pragma unroll
            for (int t = 0; t < kRowTiles; ++t) {
              Mma<T>(sums[i][t], a, in.words[t][k].x, in.words[t][k].y);
            }
          }
          __syncwarp();
          if (Lane() == 0) Arrive(&memory_.empty[ring.stage]);
          ring.Next();
        }
      }
    };
    // One loop with branches made steps 1% longer.
    if (kept_) {
#pragma unroll 1
      for (int chunk = 0; chunk < chunks; ++chunk) {
        Operand in;
        Read(chunk, in);
        multiply(in);
      }
    } else {
#pragma unroll 1
      for (int chunk = 0; chunk < chunks; ++chunk) {
        Operand in;
        AwaitCopy();
        Read(chunk, in);
        __syncwarp();
        Stage(chunk + depth_, chunks);
        AwaitRest(chunk, in);
        multiply(in);
      }
    }
#pragma unroll
    for (int i = 0; i < kGroup; ++i) {
      if (i >= tiles) break;
#pragma unroll
      for (int t = 0; t < kRowTiles; ++t) {
        SumsAt(warp_, Slot(i * kRowTiles + t))[Lane()] =
            make_float4(sums[i][t][0], sums[i][t][1], sums[i][t][2], sums[i][t][3]);
      }
    }
    kept_ = keeps_;
    if (op_.of_normed != 0 && first == op_.first_tile) {
      ComputeBarrierWithFactors();
    } else {
      ComputeBarrier();
    }
    if (OwnSlot() < slots) Finish(first + OwnSlot() / kRowTiles, early);
  }

  // ---- A warp has one tile of 16 weight rows by 8 rows of the batch. Sums lie as mma's D: a lane
  // has weight rows group and group + 8, for rows 2 * quad and 2 * quad + 1. Neighbouring groups
  // exchange two of the four, so that each lane has two neighbours of one row, twice. ----

  // The number of this warp's slot among those of the group.
  __device__ int OwnSlot() const {
    if (warp_ >= slots_) return kMostSums;
    return warp_ >= slot_ ? warp_ - slot_ : warp_ - slot_ + slots_;
  }
  __device__ int FirstRow() const { return OwnSlot() % kRowTiles * 8; }
  __device__ int OwnRow() const { return FirstRow() + 2 * quad_ + group_ % 2; }
  __device__ char* PlaceOf(uint32_t vector, int tile_of_cols) const {
    return PlaceIn(step_.arena, step_.rows, vector) +
           OperandPlace(tile_of_cols, step_.rows, OwnRow(), group_ / 2);
  }
  __device__ bool Adds() const { return op_.then == static_cast<int>(Then::kAdd); }
  __device__ Early LookEarly(int first, int tiles) const {
    Early early;
    const int tile = first + OwnSlot() / kRowTiles;
    if (OwnSlot() >= tiles * kRowTiles) return early;
    if (op_.bias != nullptr) early.bias = LoadBias(tile);
    if (!Adds() || OwnRow() >= step_.rows) return early;
    early.old = LoadWords<uint2>(PlaceOf(op_.old, tile));
    if (op_.gain != nullptr) early.gains = LoadFour(op_.gain, tile, group_ / 2);
    return early;
  }

  // Gates come first, though their rows of the weight and those of ups take turns.
  __device__ float2 LoadBias(int tile) const {
    if (op_.then == static_cast<int>(Then::kSwiGlu)) {
      const float* const gate = op_.bias + tile * (kUnitRows / 2) + group_;
      return make_float2(__ldg(gate), __ldg(gate + op_.rows / 2));
    }
    const int row = tile * kUnitRows + group_;
    const int last = op_.rows - 1;
    return make_float2(__ldg(op_.bias + min(row, last)), __ldg(op_.bias + min(row + 8, last)));
  }

  // The value of the row that a lane keeps, and that of the neighbouring weight row, in the order
  // of weight rows. both: of rows 2 * quad and 2 * quad + 1.
  __device__ float2 OwnPair(float of_even, float of_odd) const {
    const bool odd = group_ % 2 != 0;
    const float theirs = __shfl_xor_sync(0xffffffffu, odd ? of_even : of_odd, 4);
    return odd ? make_float2(theirs, of_odd) : make_float2(of_even, theirs);
  }

  __device__ void Finish(int tile, const Early& early) {
    float4 sum = {};
#pragma unroll
    for (int w = 0; w < kComputeWarps; ++w) {
      const float4 more = SumsAt(w, warp_)[Lane()];
      sum.x += more.x, sum.y += more.y, sum.z += more.z, sum.w += more.w;
    }
    if (op_.of_normed != 0) {
      const float even = memory_.factors[FirstRow() + 2 * quad_];
      const float odd = memory_.factors[FirstRow() + 2 * quad_ + 1];
      sum.x *= even, sum.z *= even, sum.y *= odd, sum.w *= odd;
    }
    sum.x += early.bias.x, sum.y += early.bias.x, sum.z += early.bias.y, sum.w += early.bias.y;
    const bool real = OwnRow() < step_.rows;
    switch (static_cast<Then>(op_.then)) {
      case Then::kLogits: {
        StoreLogits(tile * kUnitRows + group_, sum.x, sum.y);
        StoreLogits(tile * kUnitRows + group_ + 8, sum.z, sum.w);
        break;
      }
      case Then::kSwiGlu: {
        // Of 16 weight rows the first 8 are gates.
        const float2 pair = OwnPair(Silu(sum.x) * sum.z, Silu(sum.y) * sum.w);
        if (real) {
          StoreWords(PlaceOf(op_.out, tile / 2) + tile % 2 * 4, RoundedPair<T>(pair.x, pair.y));
        }
        break;
      }
      case Then::kQkv: {
        const float2 low = OwnPair(sum.x, sum.y);
        const float2 high = OwnPair(sum.z, sum.w);
        if (!real) break;
        char* const to = PlaceIn(step_.arena, step_.rows, op_.out) +
                         (int64_t{OwnRow()} * op_.rows + tile * kUnitRows + group_ / 2 * 2) * 2;
        StoreWords(to, RoundedPair<T>(low.x, low.y));
        StoreWords(to + 16, RoundedPair<T>(high.x, high.y));
        break;
      }
      case Then::kAdd:
        Add(tile, early, OwnPair(sum.x, sum.y), OwnPair(sum.z, sum.w));
        break;
      case Then::kSend: {
        const float2 low = OwnPair(sum.x, sum.y);
        const float2 high = OwnPair(sum.z, sum.w);
        if (!real) break;
        const ShardSum to(step_, memory_.first_sum, op_, op_.rows);
        to.Send(to.PacketOf(tile, OwnRow(), group_ / 2),
                make_uint2(RoundedPair<T>(low.x, low.y), RoundedPair<T>(high.x, high.y)));
        break;
      }
    }
  }

  __device__ void Add(int tile, const Early& early, float2 low, float2 high) const {
    const bool real = OwnRow() < step_.rows;
    const FourPlace at = {tile, OwnRow(), group_ / 2};
    uint2 words = {};
    if (real) {
      const uint2 old = Await(PlaceOf(op_.old, tile), early.old, step_, number_);
      const float2 old_low = FloatsOf<T>(old.x);
      const float2 old_high = FloatsOf<T>(old.y);
      words = make_uint2(RoundedPair<T>(old_low.x + low.x, old_low.y + low.y),
                         RoundedPair<T>(old_high.x + high.x, old_high.y + high.y));
    }
    __syncwarp();
    if (op_.gain != nullptr) {
      float squares = 0;
      if (real) squares = PublishNormed<T>(step_, op_, at, words, early.gains);
      // Over the row's 16 columns.
      squares += __shfl_xor_sync(0xffffffffu, squares, 8);
      squares += __shfl_xor_sync(0xffffffffu, squares, 16);
      if (real && group_ < 2) PublishSquares(step_, op_, tile, OwnRow(), op_.rows, squares);
    }
    if (real) PublishFour(step_, op_, at, op_.rows, words);
  }

  __device__ void StoreLogits(int col, float even, float odd) const {
    if (col >= op_.rows) return;
    const int row = FirstRow() + 2 * quad_;
    auto* const logits = static_cast<float*>(op_.memory);
    const int of_even = memory_.outputs[row];
    const int of_odd = memory_.outputs[row + 1];
    if (of_even >= 0) logits[int64_t{of_even} * op_.stride + col] = even;
    if (of_odd >= 0) logits[int64_t{of_odd} * op_.stride + col] = odd;
  }

  const PersistentStep& step_;
  BlockMemory& memory_;
  const StepOp& op_;
  const int number_;
  const int warp_, group_, quad_;
  const int depth_;                       // chunks that are on their way
  const bool keeps_;                      // `in` stays for all groups,
  bool kept_ = false;                     // and is all there
  const int slots_;                       // of sums
  const int staged_mask_, staged_bytes_;  // of a chunk's number, and a chunk
  int slot_ = 0;                          // of the group's first tile
  int taken_ = 0;                         // by the group
};

// The factors of a norm's rows, op.factor / sqrt(mean of squares + eps), by kFactorWarps warps:
// `warp` is one of them.
__device__ inline void FindFactors(const PersistentStep& step, BlockMemory& memory,
                                   const StepOp& op, int number, int warp) {
  constexpr int kRows = 4;                // that are on their way at once
  const int tiles = op.cols / kTileCols;  // a multiple of 4
  const auto at = [&](int row, int four) {
    return PlaceIn(step.arena, step.rows, op.in_squares) + SquarePlace(4 * four, tiles, row);
  };
  for (int first = warp * kRows; first < step.rows; first += kFactorWarps * kRows) {
    float sums[kRows] = {};
    for (int four = Lane(); four < tiles / 4; four += kWarp) {
      uint4 words[kRows];
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        words[r] =
            first + r < step.rows ? LoadWords<uint4>(at(first + r, four)) : make_uint4(0, 0, 0, 0);
      }
      Patience patience(step, number);
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        while (!Present(words[r]) && !patience.Ends())
          words[r] = LoadWords<uint4>(at(first + r, four));
        sums[r] += (__uint_as_float(words[r].x) + __uint_as_float(words[r].y)) +
                   (__uint_as_float(words[r].z) + __uint_as_float(words[r].w));
      }
    }
    __syncwarp();
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const float sum = WarpSum(sums[r]);
      if (Lane() == 0 && first + r < step.rows) {
        memory.factors[first + r] = op.factor * rsqrtf(sum / static_cast<float>(op.cols) + op.eps);
      }
    }
  }
  __syncwarp();
}

}  // namespace skein::kernels::cuda
