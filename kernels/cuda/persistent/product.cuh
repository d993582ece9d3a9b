// Products of the persistent kernel: a block's share of out[r] = in[r] * weight^T.
//
// A unit of 16 weight rows by 512 columns is mma's operand A; its 8 panels of 64 columns are a
// warp's each, so that a warp needs but its own columns of `in`, and reads them from the arena
// straight into registers. Some tiles of 16 weight rows go together over all columns, since `in` is
// read anew for each such group. Then the warps' sums are added up, each warp one tile of 16 by 8.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda/bulk_copy.cuh"
#include "kernels/cuda/mma.cuh"
#include "kernels/cuda/persistent/block.cuh"
#include "kernels/cuda/persistent/exchange.cuh"
#include "kernels/cuda/vectors.cuh"

namespace skein::kernels::cuda {

// kRowTiles: of 8 rows of the batch.
template <typename T, int kRowTiles>
class Product {
 public:
  static constexpr int kGroup = kMostSums / kRowTiles;  // tiles that go together

  __device__ Product(const PersistentStep& step, BlockMemory& memory, const StepOp& op, int number)
      : step_(step),
        memory_(memory),
        op_(op),
        number_(number),
        warp_(static_cast<int>(threadIdx.x) / kWarp),
        group_(Lane() / 4),
        quad_(Lane() % 4) {}

  __device__ void Run(RingPlace<kStepStages>& ring) {
    for (int first = op_.first_tile; first < op_.end_tile; first += kGroup) {
      RunGroup(first, min(kGroup, op_.end_tile - first), ring);
    }
  }

 private:
  using Then = ScheduledOp::Then;
  static constexpr int kSteps = 4;  // of mma in a panel
  static constexpr int kUnitPanels = kUnitCols / 64;

  // A warp's columns of a chunk of 512, of all rows.
  struct Operand {
    uint2 words[kRowTiles][kSteps];
  };
  // Of the norm, for the same columns.
  struct Gains {
    float2 low[kSteps], high[kSteps];
  };

  __device__ int RowOf(int tile) const { return tile * 8 + group_; }
  __device__ bool HasPanel(int chunk) const { return chunk * kUnitPanels + warp_ < op_.cols / 64; }
  __device__ const char* WordsAt(int chunk, int tile, int k) const {
    const int tile_of_cols = (chunk * kUnitPanels + warp_) * kSteps + k;
    return PlaceIn(step_.arena, step_.rows, op_.in) +
           OperandPlace(tile_of_cols, step_.rows, RowOf(tile), quad_);
  }
  // What has come by now.
  __device__ void Look(int chunk, Operand& operand) const {
#pragma unroll
    for (int t = 0; t < kRowTiles; ++t) {
      const bool real = HasPanel(chunk) && RowOf(t) < step_.rows;
#pragma unroll
      for (int k = 0; k < kSteps; ++k) {
        operand.words[t][k] = real ? LoadShared2(WordsAt(chunk, t, k)) : make_uint2(0, 0);
      }
    }
  }
  // The rest of it.
  __device__ void AwaitRest(int chunk, Operand& operand) const {
    Patience patience(step_.report, number_);
    while (true) {
      bool here = true;
#pragma unroll
      for (int t = 0; t < kRowTiles; ++t) {
#pragma unroll
        for (int k = 0; k < kSteps; ++k) here = here && !Absent(operand.words[t][k]);
      }
      if (__all_sync(0xffffffffu, here)) return;
#pragma unroll
      for (int t = 0; t < kRowTiles; ++t) {
#pragma unroll
        for (int k = 0; k < kSteps; ++k) {
          if (Absent(operand.words[t][k])) operand.words[t][k] = LoadShared2(WordsAt(chunk, t, k));
        }
      }
      if (__any_sync(0xffffffffu, patience.Ends())) return;
    }
  }
  __device__ void LoadGains(int chunk, Gains& gains) const {
    if (op_.gain == nullptr || !HasPanel(chunk)) return;
    const float* const gain = op_.gain + (chunk * kUnitPanels + warp_) * 64 + 2 * quad_;
#pragma unroll
    for (int k = 0; k < kSteps; ++k) {
      gains.low[k] = __ldg(reinterpret_cast<const float2*>(gain + k * kTileCols));
      gains.high[k] = __ldg(reinterpret_cast<const float2*>(gain + k * kTileCols + 8));
    }
  }
  // Multiplies with the gains; the rest of the norm is a factor of whole rows.
  __device__ void Normalise(const Gains& gains, Operand& operand, float (&squares)[kRowTiles]) {
#pragma unroll
    for (int t = 0; t < kRowTiles; ++t) {
#pragma unroll
      for (int k = 0; k < kSteps; ++k) {
        uint2& words = operand.words[t][k];
        const float2 low = FloatsOf<T>(words.x);
        const float2 high = FloatsOf<T>(words.y);
        squares[t] += low.x * low.x + low.y * low.y + high.x * high.x + high.y * high.y;
        words.x = RoundedPair<T>(low.x * gains.low[k].x, low.y * gains.low[k].y);
        words.y = RoundedPair<T>(high.x * gains.high[k].x, high.y * gains.high[k].y);
      }
    }
  }

  __device__ void RunGroup(int first, int tiles, RingPlace<kStepStages>& ring) {
    const int chunks = (op_.cols + kUnitCols - 1) / kUnitCols;
    float sums[kGroup][kRowTiles][4] = {};
    float squares[kRowTiles] = {};
    Operand next;
    Gains next_gains = {};
    Look(0, next);
    LoadGains(0, next_gains);
    const uint2 old = LookAtOld(first, tiles);
    // Where a lane's rows of a panel begin, and how their chunks of 16 bytes are permuted.
    const uint32_t row_place = warp_ * kPanelBytes + Lane() % 16 * 128;
    const uint32_t permuted = Lane() % 8;
#pragma unroll 1
    for (int chunk = 0; chunk < chunks; ++chunk) {
      Operand in = next;
      const Gains gains = next_gains;
      AwaitRest(chunk, in);
      if (chunk + 1 < chunks) {
        Look(chunk + 1, next);
        LoadGains(chunk + 1, next_gains);
      }
      if (op_.gain != nullptr) Normalise(gains, in, squares);
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
    }
    ComputeBarrier();  // what was there has been read
#pragma unroll
    for (int i = 0; i < kGroup; ++i) {
      if (i >= tiles) break;
#pragma unroll
      for (int t = 0; t < kRowTiles; ++t) {
        reinterpret_cast<float4*>(memory_.sums[warp_][i * kRowTiles + t])[Lane()] =
            make_float4(sums[i][t][0], sums[i][t][1], sums[i][t][2], sums[i][t][3]);
      }
    }
    if (op_.gain != nullptr) {
#pragma unroll
      for (int t = 0; t < kRowTiles; ++t) {
        const float sum = squares[t] + __shfl_xor_sync(0xffffffffu, squares[t], 1);
        const float all = sum + __shfl_xor_sync(0xffffffffu, sum, 2);
        if (quad_ == 0) memory_.squares[warp_][RowOf(t)] = all;
      }
    }
    ComputeBarrier();
    if (warp_ < tiles * kRowTiles) Finish(first + warp_ / kRowTiles, old);
  }

  // ---- A warp has one tile of 16 weight rows by 8 rows of the batch. Sums lie as mma's D: a lane
  // has weight rows group and group + 8, for rows 2 * quad and 2 * quad + 1. Neighbouring groups
  // exchange two of the four, so that each lane has two neighbours of one row, twice. ----

  __device__ int FirstRow() const { return warp_ % kRowTiles * 8; }
  __device__ int OwnRow() const { return FirstRow() + 2 * quad_ + group_ % 2; }
  __device__ char* OutPlace(int tile_of_cols) const {
    return PlaceIn(step_.arena, step_.rows, op_.out) +
           OperandPlace(tile_of_cols, step_.rows, OwnRow(), group_ / 2);
  }
  __device__ const char* OldPlace(int tile) const {
    return PlaceIn(step_.arena, step_.rows, op_.old) +
           OperandPlace(tile, step_.rows, OwnRow(), group_ / 2);
  }
  __device__ bool Adds() const {
    return op_.then == static_cast<int>(Then::kAdd) ||
           op_.then == static_cast<int>(Then::kAddToPort);
  }
  // It is needed at the end, and has come long ago.
  __device__ uint2 LookAtOld(int first, int tiles) const {
    if (!Adds() || warp_ >= tiles * kRowTiles || OwnRow() >= step_.rows) return make_uint2(0, 0);
    return LoadShared2(OldPlace(first + warp_ / kRowTiles));
  }

  // 1 / sqrt(mean(in[row]^2) + eps).
  __device__ float Factor(int row) const {
    float sum = 0;
#pragma unroll
    for (int w = 0; w < kComputeWarps; ++w) sum += memory_.squares[w][row];
    return rsqrtf(sum / static_cast<float>(op_.cols) + op_.eps);
  }

  // The value of the row that a lane keeps, and that of the neighbouring weight row, in the order
  // of weight rows. both: of rows 2 * quad and 2 * quad + 1.
  __device__ float2 OwnPair(float of_even, float of_odd) const {
    const bool odd = group_ % 2 != 0;
    const float theirs = __shfl_xor_sync(0xffffffffu, odd ? of_even : of_odd, 4);
    return odd ? make_float2(theirs, of_odd) : make_float2(of_even, theirs);
  }

  __device__ void Finish(int tile, uint2 old) {
    float4 sum = {};
#pragma unroll
    for (int w = 0; w < kComputeWarps; ++w) {
      const float4 more = reinterpret_cast<const float4*>(memory_.sums[w][warp_])[Lane()];
      sum.x += more.x, sum.y += more.y, sum.z += more.z, sum.w += more.w;
    }
    if (op_.gain != nullptr) {
      const float even = Factor(FirstRow() + 2 * quad_);
      const float odd = Factor(FirstRow() + 2 * quad_ + 1);
      sum.x *= even, sum.z *= even, sum.y *= odd, sum.w *= odd;
    }
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
          Publish(OutPlace(tile / 2) + tile % 2 * 4, RoundedPair<T>(pair.x, pair.y));
        }
        break;
      }
      case Then::kQkv: {
        const float2 low = OwnPair(sum.x, sum.y);
        const float2 high = OwnPair(sum.z, sum.w);
        if (!real) break;
        char* const to = PlaceIn(step_.arena, step_.rows, op_.out) +
                         (int64_t{OwnRow()} * op_.rows + tile * kUnitRows + group_ / 2 * 2) * 2;
        Publish(to, RoundedPair<T>(low.x, low.y));
        Publish(to + 16, RoundedPair<T>(high.x, high.y));
        break;
      }
      case Then::kAdd:
      case Then::kAddToPort: {
        float2 low = OwnPair(sum.x, sum.y);
        float2 high = OwnPair(sum.z, sum.w);
        if (!real) break;
        old = Await(OldPlace(tile), old, step_.report, number_);
        const float2 old_low = FloatsOf<T>(old.x);
        const float2 old_high = FloatsOf<T>(old.y);
        const uint2 words = make_uint2(RoundedPair<T>(old_low.x + low.x, old_low.y + low.y),
                                       RoundedPair<T>(old_high.x + high.x, old_high.y + high.y));
        if (op_.then == static_cast<int>(Then::kAdd)) {
          Publish(OutPlace(tile), words);
        } else {
          auto* const to = static_cast<T*>(op_.memory) + int64_t{OwnRow()} * op_.stride +
                           tile * kUnitRows + group_ / 2 * 2;
          *reinterpret_cast<uint32_t*>(to) = words.x;
          *reinterpret_cast<uint32_t*>(to + 8) = words.y;
        }
        break;
      }
    }
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
};

}  // namespace skein::kernels::cuda
