// Attention of the persistent kernel: a block's segments of the KV cache, and the sums of the parts
// that warps have of one KV head.
//
// A warp takes every eighth piece of a segment, rotates the queries for itself, and publishes what
// it has, so that no warp waits for another. Then warps all over the device put the parts together.
//
// Keys and values of the positions of this very step come from the arena, not from the cache: each
// reader rotates, rounds and quantises them as the cache has them, and lays them into the block
// that has come over the ring. Who has a row's last block writes the row's own ones to the cache.
// Norms of queries and keys, where the model has them, are made by each reader, too.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda/bulk_copy.cuh"
#include "kernels/cuda/decode_tile.cuh"
#include "kernels/cuda/kv_layout.h"
#include "kernels/cuda/kv_write.cuh"
#include "kernels/cuda/persistent/block.cuh"
#include "kernels/cuda/persistent/exchange.cuh"
#include "kernels/cuda/vectors.cuh"

namespace skein::kernels::cuda {

template <typename T, int kHeadDim, bool kInt8>
class Attention {
 public:
  static constexpr int kStageBlocks = KvBlocksOfStage(kHeadDim, kInt8);
  static constexpr int kBlockBytes = KvBlockBytes(kHeadDim, kInt8);

  __device__ Attention(const PersistentStep& step, BlockMemory& memory, const StepOp& op,
                       int number)
      : step_(step),
        memory_(memory),
        op_(op),
        number_(number),
        warp_(static_cast<int>(threadIdx.x) / kWarp),
        group_(step.attention.heads / step.attention.kv_heads),
        work_(step, memory, op.window) {}

  __device__ void Run(RingUnit& ring) {
    int pieces = 0;  // of the segments so far
    work_.ForEach([&](const Segment& segment) { AttendTo(segment, pieces, ring); });
    Combine();
  }

 private:
  using Tile = DecodeTile<T, kHeadDim, kInt8>;
  static constexpr int kPairs = kHeadDim / 2;
  static constexpr int kFours = kHeadDim / 4;
  static_assert(kFours % 8 == 0);  // jobs of 2 or 8 fill heads
  // Blocks that a warp works on at once, so that their chains of products and exponents overlap:
  // those of int8 are there too soon for one after the other.
  static constexpr int kTogether = kInt8 ? 2 : 1;
  // Parts that a lane has on their way at once.
  static constexpr int kPartsAtOnce = 8;

  // Element `col` of what the products gave for queries, keys and values of a row.
  __device__ const char* QkvAt(int row, int col) const {
    return PlaceIn(step_.arena, step_.rows, op_.in) + (int64_t{row} * op_.cols + col) * 2;
  }
  // Four columns of a part of a query head.
  __device__ char* PartAt(int row, int head, int part, int four) const {
    const int64_t of_head = int64_t{row} * step_.attention.heads + head;
    const int most = MostSegments(step_.attention.kv_heads) * kSegmentParts;
    return step_.parts + ((of_head * most + part) * kFours + four) * int64_t{sizeof(Part)};
  }
  __device__ uint32_t PartNumber() const { return step_.epoch + number_; }

  __device__ static void Split(uint2 words, float (&x)[4]) {
    const float2 first = FloatsOf<T>(words.x);
    const float2 second = FloatsOf<T>(words.y);
    x[0] = first.x, x[1] = first.y, x[2] = second.x, x[3] = second.y;
  }

  // ---- Norms of heads, rounded as a buffer would have them. They are functions of their own, so
  // that models without them pay no registers. ----

  // A lane's part of a query, of which a quad has all, in 16 bits: columns k * 16 + i * 8 and on.
  struct Query {
    uint32_t words[kHeadDim / 16][2];
  };
  // Likewise for int8: four columns a word, and those that they are rotated with.
  struct WideQuery {
    uint2 own[kHeadDim / 16], other[kHeadDim / 16];
  };

  __device__ bool HasNorms() const { return op_.gain != nullptr; }
  __device__ static float SquaresOf(uint32_t words) {
    const float2 x = FloatsOf<T>(words);
    return x.x * x.x + x.y * x.y;
  }
  __device__ static float SquaresOf(uint2 words) { return SquaresOf(words.x) + SquaresOf(words.y); }
  // squares: of a head.
  __device__ static float NormFactor(float squares, float eps) {
    return rsqrtf(squares / static_cast<float>(kHeadDim) + eps);
  }
  __device__ static uint32_t Normed(uint32_t words, float factor, const float* gain) {
    const float2 x = FloatsOf<T>(words);
    const float2 gains = __ldg(reinterpret_cast<const float2*>(gain));
    return RoundedPair<T>(x.x * factor * gains.x, x.y * factor * gains.y);
  }
  __device__ static uint2 Normed(uint2 words, float factor, const float* gain) {
    return make_uint2(Normed(words.x, factor, gain), Normed(words.y, factor, gain + 2));
  }
  __device__ __noinline__ static Query NormedQuery(Query query, const float* gain, float eps) {
    float squares = 0;
#pragma unroll
    for (const auto& pair : query.words) squares += SquaresOf(pair[0]) + SquaresOf(pair[1]);
    const float factor = NormFactor(QuadSum(squares), eps);
#pragma unroll
    for (int k = 0; k < kHeadDim / 16; ++k) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        query.words[k][i] =
            Normed(query.words[k][i], factor, gain + k * 16 + i * 8 + Lane() % 4 * 2);
      }
    }
    return query;
  }
  __device__ __noinline__ static WideQuery NormedQuery(WideQuery query, const float* gain,
                                                       float eps) {
    float squares = 0;
#pragma unroll
    for (const uint2 words : query.own) squares += SquaresOf(words);
    const float factor = NormFactor(QuadSum(squares), eps);
#pragma unroll
    for (int w = 0; w < kHeadDim / 16; ++w) {
      const int col = Int8WordColumn<kHeadDim>(w);
      query.own[w] = Normed(query.own[w], factor, gain + col);
      query.other[w] = Normed(query.other[w], factor, gain + (col + kPairs) % kHeadDim);
    }
    return query;
  }
  // words: four columns of a key a lane; lanes beyond the head have the last ones.
  __device__ __noinline__ static uint2 NormedKey(uint2 words, const float* gain, float eps) {
    const float squares = WarpSum(Lane() < kFours ? SquaresOf(words) : 0.0f);
    return Normed(words, NormFactor(squares, eps), gain + min(Lane(), kFours - 1) * 4);
  }

  __device__ const float2* RotationAt(int row, int pair) const {
    return memory_.rotations + row * kPairs + pair;
  }

  // Four columns of a query, rotated: `own`, from `col` on, with those that they are rotated with.
  __device__ uint2 RotatedFour(int row, int col, uint2 own, uint2 other) const {
    const bool low = col < kPairs;
    float a[4], b[4];
    Split(own, a);
    Split(other, b);
    const float2* const rotation = RotationAt(row, low ? col : col - kPairs);
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      a[c] = a[c] * rotation[c].x + b[c] * (low ? -rotation[c].y : rotation[c].y);
    }
    return make_uint2(RoundedPair<T>(a[0], a[1]), RoundedPair<T>(a[2], a[3]));
  }

  // The queries of a KV head, as operands; rows from the group on are zeros.
  __device__ void TakeQueries(int row, int kv_head, Tile& tile) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int of_group = Lane() / 4 + half * 8;
      const bool real = of_group < group_;
      const int head = kv_head * group_ + of_group;
      if (8 * half >= group_) {
        tile.ClearQueries(half);
        continue;
      }
      if constexpr (kInt8) {
        constexpr int kWords = kHeadDim / 16;
        WideQuery query = {};
        auto& [own, other] = query;
        const char* const from = QkvAt(row, head * kHeadDim);
        if (real) {
          AwaitAll(step_, number_, [&] {
#pragma unroll
            for (int w = 0; w < kWords; ++w) {
              const int col = Int8WordColumn<kHeadDim>(w);
              own[w] = LoadWords<uint2>(from + col * 2);
              other[w] = LoadWords<uint2>(from + (col + kPairs) % kHeadDim * 2);
            }
            bool here = true;
#pragma unroll
            for (int w = 0; w < kWords; ++w) here = here && Present(own[w]) && Present(other[w]);
            return here;
          });
        }
        __syncwarp();
        if (HasNorms()) query = NormedQuery(query, op_.gain, op_.eps);
        tile.q.template Load<T>(
            [&](int w) { return RotatedFour(row, Int8WordColumn<kHeadDim>(w), own[w], other[w]); },
            real, half);
        __syncwarp();
      } else {
        // A pair and the one that it is rotated with are the same lane's.
        constexpr int kSteps = kHeadDim / 16;
        Query query;
        auto& words = query.words;
        const char* const from = QkvAt(row, head * kHeadDim + Lane() % 4 * 2);
        AwaitAll(step_, number_, [&] {
          bool here = true;
#pragma unroll
          for (int k = 0; k < kSteps; ++k) {
#pragma unroll
            for (int i = 0; i < 2; ++i) {
              words[k][i] = real ? LoadWords<uint32_t>(from + k * 32 + i * 16) : 0;
            }
          }
#pragma unroll
          for (int k = 0; k < kSteps; ++k) {
            here = here && Present(words[k][0]) && Present(words[k][1]);
          }
          return here;
        });
        __syncwarp();
        if (HasNorms()) query = NormedQuery(query, op_.gain, op_.eps);
#pragma unroll
        for (int k = 0; k < kSteps / 2; ++k) {
#pragma unroll
          for (int i = 0; i < 2; ++i) {
            const float4 turns =
                *reinterpret_cast<const float4*>(RotationAt(row, k * 16 + i * 8 + Lane() % 4 * 2));
            const float2 a = FloatsOf<T>(words[k][i]);
            const float2 b = FloatsOf<T>(words[k + kSteps / 2][i]);
            tile.q[k][half + 2 * i] =
                RoundedPair<T>(a.x * turns.x - b.x * turns.y, a.y * turns.z - b.y * turns.w);
            tile.q[k + kSteps / 2][half + 2 * i] =
                RoundedPair<T>(b.x * turns.x + a.x * turns.y, b.y * turns.z + a.y * turns.w);
          }
        }
      }
    }
  }

  __device__ void WriteRow(char* block, bool is_value, int in_block, const float (&x)[4]) const {
    if constexpr (kInt8) {
      WriteInt8Row(block, kHeadDim, is_value, in_block, x);
    } else {
      Write16BitRow<T>(block, kHeadDim, is_value, in_block, x);
    }
  }

  // Lays the newest positions of the row's sequence, up to its own, into the block where it has
  // them. number: of the block in the sequence.
  __device__ void LayNewest(const Segment& segment, int number, char* block) const {
    const int own = memory_.positions[segment.row];
    const int first_row = memory_.first_rows[segment.row];
    const int first_new = own - (segment.row - first_row);
    const int begin = max(first_new, number * kKvBlock);
    const int end = min(own + 1, (number + 1) * kKvBlock);
    if (begin >= end) return;
    const int lane = min(Lane(), kFours - 1);  // what is more does the same again
    const bool low = lane < kFours / 2;
    const int other = low ? lane + kFours / 2 : lane - kFours / 2;
    const AttentionHeads& attention = step_.attention;
    for (int position = begin; position < end; ++position) {
      const int row = first_row + position - first_new;
      const char* const key = QkvAt(row, (attention.heads + segment.kv_head) * kHeadDim + lane * 4);
      const char* const value = key + int64_t{attention.kv_heads} * kHeadDim * 2;
      const uint2 key_look = LoadWords<uint2>(key);
      const uint2 value_look = LoadWords<uint2>(value);
      float k[4], v[4], turned[4];
      uint2 key_words = Await(key, key_look, step_, number_);
      Split(Await(value, value_look, step_, number_), v);
      __syncwarp();
      if (HasNorms()) key_words = NormedKey(key_words, op_.k_gain, op_.eps);
      Split(key_words, k);
      const float2* const rotation = RotationAt(row, (low ? lane : other) * 4);
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        const float theirs = __shfl_sync(0xffffffffu, k[c], other);
        turned[c] = k[c] * rotation[c].x + theirs * (low ? -rotation[c].y : rotation[c].y);
      }
      const int in_block = position % kKvBlock;
      WriteRow(block, false, in_block, turned);
      WriteRow(block, true, in_block, v);
      if (position < own) continue;
      const int64_t slot = step_.kv_slots[segment.row];
      if (slot < 0) continue;  // of nobody
      KvLayer layer = step_.kv;
      layer.data = op_.memory;
      char* const in_cache = layer.Block(slot / layer.page_size, segment.kv_head,
                                         static_cast<int>(slot % layer.page_size));
      WriteRow(in_cache, false, in_block, turned);
      WriteRow(in_cache, true, in_block, v);
    }
    FenceBeforeBulkCopy();
    __syncwarp();
  }

  __device__ void AttendTo(const Segment& segment, int& pieces_before, RingUnit& ring) {
    const int pieces = (segment.blocks + kStageBlocks - 1) / kStageBlocks;
    const int first = (warp_ - pieces_before % kComputeWarps + kComputeWarps) % kComputeWarps;
    pieces_before += pieces;
    const bool has_part = first < pieces;
    Tile tile;
    typename Tile::State state;
    if (has_part) TakeQueries(segment.row, segment.kv_head, tile);
    const int end = memory_.positions[segment.row] + 1;
    const int begin = op_.window > 0 ? max(0, end - op_.window) : 0;
    RingUnit unit = ring;
    unit.Skip(first);
#pragma unroll 1
    for (int piece = first; piece < pieces; piece += kSegmentParts, unit.Skip(kSegmentParts)) {
      WaitForOwn(memory_, unit);
      const int blocks = min(kStageBlocks, segment.blocks - piece * kStageBlocks);
      char* const first_block = memory_.ring[unit.stage];
      const int number = segment.block + piece * kStageBlocks;
      const auto attend = [&]<int kBlocks>(int i) {
        char* all[kBlocks];
#pragma unroll
        for (int b = 0; b < kBlocks; ++b) {
          all[b] = first_block + (i + b) * kBlockBytes;
          LayNewest(segment, number + i + b, all[b]);
        }
        tile.Attend(all, (number + i) * kKvBlock, begin, end, op_.scale, state);
      };
      int i = 0;
      if constexpr (kTogether > 1) {
#pragma unroll 1
        for (; i + kTogether <= blocks; i += kTogether) attend.template operator()<kTogether>(i);
      }
#pragma unroll 1
      for (; i < blocks; ++i) attend.template operator()<1>(i);
      __syncwarp();
      if (Lane() < kComputeWarps) Arrive(&memory_.empty[unit.stage]);  // for all warps
    }
    ring.Skip(pieces);
    if (has_part) PublishPart(segment, first, state);
  }

  // part: of the segment.
  __device__ void PublishPart(const Segment& segment, int part,
                              const typename Tile::State& state) const {
    const int of_row = segment.number * work_.PartsOf(segment.row).of_segment + part;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if (8 * half >= group_) break;
      const int of_group = Lane() / 4 + half * 8;
      const int head = segment.kv_head * group_ + of_group;
      const bool real = of_group < group_;
      const float weight = QuadSum(state.softmax.sum[half]);
      const float inverse = 1.0f / weight;
      const float logarithm = state.softmax.largest[half] * (op_.scale * kLog2E) + __log2f(weight);
      char* const to = PartAt(segment.row, head, of_row, 0);
      const auto publish = [&](int four, uint32_t first, uint32_t second) {
        if (!real) return;
        StorePart(to + four * static_cast<int>(sizeof(Part)),
                  Part{make_uint2(first, second), logarithm, PartNumber()});
      };
      if constexpr (kInt8) {
#pragma unroll
        for (int d = 0; d < kHeadDim / 8; d += 4) {
#pragma unroll
          for (int i = 0; i < 2; ++i) {
            const auto sum = [&](int more) { return state.o[d + more][2 * half + i] * inverse; };
            publish(Int8SumColumn<kHeadDim>(d, i) / 4, RoundedPair<T>(sum(0), sum(1)),
                    RoundedPair<T>(sum(2), sum(3)));
          }
        }
      } else {
        // Two lanes have two columns of four each: one takes these, one those 8 further on.
        const bool odd = Lane() % 2 != 0;
        const int four = (odd ? 2 : 0) + Lane() % 4 / 2;
#pragma unroll
        for (int d = 0; d < kHeadDim / 8; d += 2) {
          const uint32_t here =
              RoundedPair<T>(state.o[d][2 * half] * inverse, state.o[d][2 * half + 1] * inverse);
          const uint32_t further = RoundedPair<T>(state.o[d + 1][2 * half] * inverse,
                                                  state.o[d + 1][2 * half + 1] * inverse);
          const uint32_t theirs = __shfl_xor_sync(0xffffffffu, odd ? here : further, 1);
          publish(four + 2 * d, odd ? theirs : here, odd ? further : theirs);
        }
      }
    }
  }

  // Puts the parts of every query head together: a warp has some columns of one, its lanes four
  // columns and every so manieth part. How many lanes share the parts depends on these alone.
  __device__ void Combine() {
    int job = static_cast<int>(blockIdx.x) + warp_ * static_cast<int>(gridDim.x);
    int first_job = 0;  // of the row
    for (int row = 0; row < step_.rows; ++row) {
      const int parts = work_.PartsOf(row).all;
      const int lanes = parts <= 4 * kPartsAtOnce ? 4 : 16;
      const int fours = kWarp / lanes;  // of a job
      const int jobs = step_.attention.heads * kFours / fours;
      for (; job < first_job + jobs; job += kComputeWarps * static_cast<int>(gridDim.x)) {
        const int four = (job - first_job) * fours + Lane() % fours;
        CombineFour(row, four, parts, fours);
      }
      first_job += jobs;
    }
  }

  // four: of the row's heads.
  __device__ void CombineFour(int row, int four, int parts, int fours) const {
    const int head = four / kFours;
    const int lanes = kWarp / fours;
    float largest = -INFINITY;
    float total = 0;
    float sums[4] = {};
    const char* const from = PartAt(row, head, 0, four % kFours);
    constexpr int kPartStride = kFours * static_cast<int>(sizeof(Part));
#pragma unroll 1
    for (int first = Lane() / fours; first < parts; first += kPartsAtOnce * lanes) {
      Part loaded[kPartsAtOnce];
      AwaitAll(step_, number_, [&] {
        bool here = true;
#pragma unroll
        for (int i = 0; i < kPartsAtOnce; ++i) {
          loaded[i] = LoadPart(from + min(first + i * lanes, parts - 1) * kPartStride);
        }
#pragma unroll
        for (int i = 0; i < kPartsAtOnce; ++i) here = here && loaded[i].number == PartNumber();
        return here;
      });
      float top = largest;
#pragma unroll
      for (int i = 0; i < kPartsAtOnce; ++i) {
        if (first + i * lanes >= parts) loaded[i].logarithm = -INFINITY;
        top = fmaxf(top, loaded[i].logarithm);
      }
      const float before = Exp2(largest - top);
      largest = top;
      total *= before;
#pragma unroll
      for (int c = 0; c < 4; ++c) sums[c] *= before;
#pragma unroll
      for (int i = 0; i < kPartsAtOnce; ++i) {
        float values[4];
        Split(loaded[i].elements, values);
        const float weight = Exp2(loaded[i].logarithm - top);
        total += weight;
#pragma unroll
        for (int c = 0; c < 4; ++c) sums[c] += values[c] * weight;
      }
    }
    __syncwarp();
    float top = largest;
    for (int distance = fours; distance < kWarp; distance *= 2) {
      top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, distance));
    }
    const float factor = Exp2(largest - top);
    total *= factor;
#pragma unroll
    for (int c = 0; c < 4; ++c) sums[c] *= factor;
    for (int distance = fours; distance < kWarp; distance *= 2) {
      total += __shfl_xor_sync(0xffffffffu, total, distance);
#pragma unroll
      for (int c = 0; c < 4; ++c) sums[c] += __shfl_xor_sync(0xffffffffu, sums[c], distance);
    }
    if (Lane() >= fours) return;
    const float inverse = 1.0f / total;
    const int col = 4 * four;
    char* const to = PlaceIn(step_.arena, step_.rows, op_.out) +
                     OperandPlace(col / kTileCols, step_.rows, row, col % 8 / 2) + col / 8 % 2 * 4;
    StoreWords(to, RoundedPair<T>(sums[0] * inverse, sums[1] * inverse));
    StoreWords(to + 8, RoundedPair<T>(sums[2] * inverse, sums[3] * inverse));
  }

  const PersistentStep& step_;
  BlockMemory& memory_;
  const StepOp& op_;
  const int number_;
  const int warp_, group_;
  const AttentionWork<kStageBlocks> work_;
};

}  // namespace skein::kernels::cuda
