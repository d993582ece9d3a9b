// How blocks exchange vectors: by words that say themselves whether they have come.
//
// Every word of the arena is absent (present_words.cuh) until its value is stored, once in a step,
// by one thread. Readers look at the words that they need until all are present.
//
// Vectors that products read lie as operands B of mma: [tiles of 16 columns][rows][4 quads], 8
// bytes each, for columns 2 * quad, 2 * quad + 1, 8 + 2 * quad and 9 + 2 * quad of the tile. So
// what a tile of a weight gives is one run of memory.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda/peer_packets.cuh"
#include "kernels/cuda/persistent/schedule.h"
#include "kernels/cuda/persistent/step.h"
#include "kernels/cuda/present_words.cuh"
#include "kernels/cuda/vectors.cuh"

namespace skein::kernels::cuda {

// Bytes from the begin of a vector.
__device__ inline int64_t OperandPlace(int tile, int rows, int row, int quad) {
  return ((int64_t{tile} * rows + row) * 4 + quad) * 8;
}

// Likewise of the sum of squares of a row's tile, a float; [rows][tiles].
__device__ inline int64_t SquarePlace(int tile, int tiles, int row) {
  return (int64_t{row} * tiles + tile) * 4;
}

// Four elements of a part of attention, the logarithm of what they weigh, and a number that tells
// which operation of which step they are of. 16 bytes that are stored and loaded at once, so that
// their place is used again by the next layer: what a layer exchanges behind attention says that
// all of it was read.
struct Part {
  uint2 elements;
  float logarithm;
  uint32_t number;
};
__device__ inline Part LoadPart(const void* from) {
  uint64_t low, high;
  asm volatile(
      "{\n"
      ".reg .b128 all;\n"
      "ld.relaxed.gpu.global.b128 all, [%2];\n"
      "mov.b128 {%0, %1}, all;\n"
      "}"
      : "=l"(low), "=l"(high)
      : "l"(from)
      : "memory");
  return {make_uint2(static_cast<uint32_t>(low), static_cast<uint32_t>(low >> 32)),
          __uint_as_float(static_cast<uint32_t>(high)), static_cast<uint32_t>(high >> 32)};
}
__device__ inline void StorePart(void* to, const Part& part) {
  const uint64_t low = part.elements.x | uint64_t{part.elements.y} << 32;
  const uint64_t high = __float_as_uint(part.logarithm) | uint64_t{part.number} << 32;
  asm volatile(
      "{\n"
      ".reg .b128 all;\n"
      "mov.b128 all, {%1, %2};\n"
      "st.relaxed.gpu.global.b128 [%0], all;\n"
      "}" ::"l"(to),
      "l"(low), "l"(high)
      : "memory");
}

__device__ inline uint64_t Nanoseconds() {
  uint64_t now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}

// Nobody waits any more; the host reads why.
__device__ inline void GiveUp(const PersistentStep& step, uint32_t op, uint32_t peer) {
  StepReport& report = *step.report;
  StoreWord(&report.block, blockIdx.x);
  StoreWord(&report.peer, peer);
  StoreWord(&report.op, op);
  __threadfence_system();
  StoreWord(&report.aborted, 1);
}

// What a thread that waits asks now and then: whether to wait on.
class Patience {
 public:
  __device__ Patience(const PersistentStep& step, uint32_t op) : step_(step), op_(op) {}

  // Whether data are void and nobody is waited for any more.
  __device__ bool Ends() {
    if (++looks_ % kLooks != 0) return false;
    since_ = Ask(step_, op_, since_);
    return since_ == kEnded;
  }

 private:
  static constexpr uint64_t kEnded = 1;

  // since: when the wait was asked for first; 0: it was not. Code that hardly ever runs is kept
  // out of the way.
  __device__ __noinline__ static uint64_t Ask(const PersistentStep& step, uint32_t op,
                                              uint64_t since) {
    if (LoadWord(&step.report->aborted) != 0) return kEnded;
    const uint64_t now = Nanoseconds();
    if (since == 0) return now;
    if (now - since < step.most_nanoseconds) return since;
    GiveUp(step, op, StepReport::kNone);
    return kEnded;
  }

  const PersistentStep& step_;
  const uint32_t op_;
  int looks_ = 0;
  uint64_t since_ = 0;
};

// Calls look() until it says that all is there, or nobody is waited for any more.
template <typename Look>
__device__ void AwaitAll(const PersistentStep& step, uint32_t op, const Look& look) {
  Patience patience(step, op);
#pragma unroll 1
  while (!look() && !patience.Ends()) {
  }
}

// Waits for 8 bytes. `words`: what a first look has found.
__device__ inline uint2 Await(const void* from, uint2 words, const PersistentStep& step,
                              uint32_t op) {
  if (Present(words)) return words;
  AwaitAll(step, op, [&] { return Present(words = LoadWords<uint2>(from)); });
  return words;
}

}  // namespace skein::kernels::cuda
