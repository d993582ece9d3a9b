#include "kernels/cuda/ceilings.h"
#include "kernels/cuda/launch.cuh"

namespace skein::kernels::cuda {
namespace {

constexpr int kThreads = 512;
// Loads of a thread that are under way at once: a block has 64 KB of them, more than a
// multiprocessor's share of what memory's latency asks for.
constexpr int kInFlight = 8;

// Every block reads runs of kThreads * kInFlight vectors in turn.
__global__ void __launch_bounds__(kThreads)
    ReadKernel(const uint4* data, int64_t vectors, uint32_t* sink) {
  WaitForPrevious();
  LetNextBegin();
  uint32_t bits = 0;
  const int64_t run = int64_t{kThreads} * kInFlight;
  for (int64_t at = blockIdx.x * run; at < vectors; at += gridDim.x * run) {
    uint4 loaded[kInFlight];
#pragma unroll
    for (int i = 0; i < kInFlight; ++i) {
      const int64_t v = at + i * kThreads + threadIdx.x;
      loaded[i] = v < vectors ? __ldg(data + v) : uint4{};
    }
#pragma unroll
    for (int i = 0; i < kInFlight; ++i) {
      bits ^= loaded[i].x ^ loaded[i].y ^ loaded[i].z ^ loaded[i].w;
    }
  }
  if (bits == 0x5eed5eedu) *sink = bits;
}

__device__ inline uint32_t Mixed(uint32_t x) {
  x ^= x >> 16;
  x *= 0x7feb352du;
  x ^= x >> 15;
  x *= 0x846ca68bu;
  return x ^ x >> 16;
}

// A sign, an exponent of 2^-1 to 2^-4 and 7 bits of a fraction.
__global__ void __launch_bounds__(kThreads)
    FillKernel(uint16_t* data, int64_t count, uint32_t seed) {
  WaitForPrevious();
  LetNextBegin();
  const int64_t step = int64_t{gridDim.x} * kThreads;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < count; i += step) {
    const uint32_t bits = Mixed(static_cast<uint32_t>(i) * 2654435761u + seed);
    const uint32_t exponent = 123 + (bits >> 8 & 3);
    data[i] = static_cast<uint16_t>((bits & 0x8000u) | exponent << 7 | (bits & 0x7fu));
  }
}

}  // namespace

absl::Status EnqueueRead(const void* data, int64_t bytes, uint32_t* sink, int32_t blocks,
                         Stream stream) {
  return Launch(ReadKernel, {"read", dim3(static_cast<unsigned>(blocks)), dim3(kThreads)}, stream,
                static_cast<const uint4*>(data), bytes / static_cast<int64_t>(sizeof(uint4)), sink);
}

absl::Status EnqueueFill(void* data, int64_t count, uint32_t seed, Stream stream) {
  return Launch(FillKernel, {"fill", dim3(2048), dim3(kThreads)}, stream,
                static_cast<uint16_t*>(data), count, seed);
}

}  // namespace skein::kernels::cuda
