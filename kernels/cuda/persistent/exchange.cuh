// How blocks exchange vectors: by words that say themselves whether they have come.
//
// Every word of the arena is kAbsent until its value is stored, once in a step, by one thread.
// Readers look at the words that they need until none is absent; neither fences nor flags nor
// barriers are between. A value never is kAbsent: as two elements that is two NaNs which no
// conversion gives, as a float likewise.
//
// Vectors that products read lie as operands B of mma: [tiles of 16 columns][rows][4 quads], 8
// bytes each, for columns 2 * quad, 2 * quad + 1, 8 + 2 * quad and 9 + 2 * quad of the tile. So
// what a tile of a weight gives is one run of memory.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda/persistent/step.h"
#include "kernels/cuda/vectors.cuh"

namespace skein::kernels::cuda {

inline constexpr uint32_t kAbsent = 0xffffffffu;
inline constexpr int kTileCols = 16;

// Bytes from the begin of a vector.
__device__ inline int64_t OperandPlace(int tile, int rows, int row, int quad) {
  return ((int64_t{tile} * rows + row) * 4 + quad) * 8;
}

// Likewise of the sum of squares of a row's tile, a float; [rows][tiles].
__device__ inline int64_t SquarePlace(int tile, int tiles, int row) {
  return (int64_t{row} * tiles + tile) * 4;
}

__device__ inline uint2 LoadShared2(const void* from) {
  uint2 words;
  asm volatile("ld.volatile.global.v2.u32 {%0, %1}, [%2];"
               : "=r"(words.x), "=r"(words.y)
               : "l"(from)
               : "memory");
  return words;
}
__device__ inline uint4 LoadShared4(const void* from) {
  uint4 words;
  asm volatile("ld.volatile.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(words.x), "=r"(words.y), "=r"(words.z), "=r"(words.w)
               : "l"(from)
               : "memory");
  return words;
}
__device__ inline uint32_t LoadShared(const void* from) {
  uint32_t word;
  asm volatile("ld.volatile.global.u32 %0, [%1];" : "=r"(word) : "l"(from) : "memory");
  return word;
}
__device__ inline void Publish(void* to, uint2 words) {
  asm volatile("st.volatile.global.v2.u32 [%0], {%1, %2};" ::"l"(to), "r"(words.x), "r"(words.y)
               : "memory");
}
__device__ inline void Publish(void* to, uint32_t word) {
  asm volatile("st.volatile.global.u32 [%0], %1;" ::"l"(to), "r"(word) : "memory");
}
__device__ inline bool Absent(uint2 words) { return words.x == kAbsent || words.y == kAbsent; }
__device__ inline bool Absent(uint4 words) {
  return words.x == kAbsent || words.y == kAbsent || words.z == kAbsent || words.w == kAbsent;
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
__device__ inline void Publish(void* to, const Part& part) {
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

// What a thread that waits asks now and then: whether to wait on.
class Patience {
 public:
  __device__ Patience(StepReport* report, uint32_t op) : report_(report), op_(op) {}

  // Whether data are void and nobody is waited for any more.
  __device__ bool Ends() {
    if (++looks_ % kLooks != 0) return false;
    since_ = Ask(report_, op_, since_);
    return since_ == kEnded;
  }

 private:
  // Looks between two at the host's memory, which is 1 us away.
  static constexpr int kLooks = 1024;
  // Longer than any step may take: where the host has a deadline, that comes before.
  static constexpr uint64_t kMostNanoseconds = 30'000'000'000;
  static constexpr uint64_t kEnded = 1;

  // since: when the wait was asked for first; 0: it was not. Code that hardly ever runs is kept
  // out of the way.
  __device__ __noinline__ static uint64_t Ask(StepReport* told, uint32_t op, uint64_t since) {
    volatile StepReport& report = *told;
    if (report.aborted != 0) return kEnded;
    uint64_t now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    if (since == 0) return now;
    if (now - since < kMostNanoseconds) return since;
    report.block = blockIdx.x;
    report.op = op;
    __threadfence_system();
    report.aborted = 1;
    return kEnded;
  }

  StepReport* const report_;
  const uint32_t op_;
  int looks_ = 0;
  uint64_t since_ = 0;
};

// Waits for 8 bytes. `words`: what a first look has found.
__device__ inline uint2 Await(const void* from, uint2 words, StepReport* report, uint32_t op) {
  if (!Absent(words)) return words;
  Patience patience(report, op);
  do {
    words = LoadShared2(from);
  } while (Absent(words) && !patience.Ends());
  return words;
}

}  // namespace skein::kernels::cuda
