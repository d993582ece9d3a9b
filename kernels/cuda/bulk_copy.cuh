// Bulk copies from the device's memory to shared memory, and the barriers that tell their arrival.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "kernels/cuda/forms.h"
#include "kernels/cuda/mma.cuh"
#include "kernels/cuda/vectors.cuh"

namespace skein::kernels::cuda {

// A barrier in shared memory that opens when so many threads have arrived, and the bytes that they
// announced have come; then it is closed for the next round. 8-byte aligned.
using ArrivalBarrier = uint64_t;

// By one thread, then PublishBarriers() and a barrier of the threads that wait.
__device__ inline void InitBarrier(ArrivalBarrier* barrier, uint32_t arrivals = 1) {
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(SharedAddress(barrier)), "r"(arrivals)
               : "memory");
}
__device__ inline void PublishBarriers() {
  if constexpr (kHopper) asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ inline void Arrive(ArrivalBarrier* barrier) {
  asm volatile(
      "{\n"
      ".reg .b64 state;\n"
      "mbarrier.arrive.shared.b64 state, [%0];\n"
      "}" ::"r"(SharedAddress(barrier))
      : "memory");
}
// Arrives, and announces bytes.
__device__ inline void ExpectBytes(ArrivalBarrier* barrier, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(SharedAddress(barrier)),
               "r"(bytes)
               : "memory");
}

// parity: of the round, the first one's is 0. The one before the first counts as over.
__device__ inline void WaitFor(ArrivalBarrier* barrier, uint32_t parity) {
  if constexpr (kHopper) {
    asm volatile(
        "{\n"
        ".reg .pred arrived;\n"
        "again:\n"
        "mbarrier.try_wait.parity.shared.b64 arrived, [%0], %1;\n"
        "@!arrived bra again;\n"
        "}" ::"r"(SharedAddress(barrier)),
        "r"(parity)
        : "memory");
  } else {
    asm volatile(
        "{\n"
        ".reg .pred arrived;\n"
        "again:\n"
        "mbarrier.test_wait.parity.shared.b64 arrived, [%0], %1;\n"
        "@!arrived bra again;\n"
        "}" ::"r"(SharedAddress(barrier)),
        "r"(parity)
        : "memory");
  }
}

// A stage of a ring, and which round it is in.
template <int kStages>
struct RingPlace {
  int stage = 0;
  uint32_t parity = 0;
  __device__ void Next() {
    if (++stage == kStages) stage = 0, parity ^= 1;
  }
};

// How L2 keeps what is read once, and what is read again.
__device__ inline uint64_t EvictFirst() {
  uint64_t policy;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}
__device__ inline uint64_t EvictLast() {
  uint64_t policy;
  asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}

// `bytes`, a multiple of 16, to `to`; both 16-byte aligned.
__device__ inline void BulkCopy(void* to, const void* from, uint32_t bytes,
                                ArrivalBarrier* barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(SharedAddress(to)),
      "l"(from), "r"(bytes), "r"(SharedAddress(barrier))
      : "memory");
}
__device__ inline void BulkCopy(void* to, const void* from, uint32_t bytes, ArrivalBarrier* barrier,
                                uint64_t cache_policy) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
      "[%0], [%1], %2, [%3], %4;" ::"r"(SharedAddress(to)),
      "l"(from), "r"(bytes), "r"(SharedAddress(barrier)), "l"(cache_policy)
      : "memory");
}

// Of a barrier that WarpCopy arrives at.
inline constexpr uint32_t kCopyArrivals = kHopper ? 1 : kWarp;

// By all lanes of a warp: each copies its `bytes`, which may be 0; `total` is their sum. In
// Hopper's form these are bulk copies; else the lanes copy one lane's bytes after the other's, 16
// each at once. kOnce: nobody reads them again soon.
template <bool kOnce = false>
__device__ void WarpCopy(void* to, const void* from, uint32_t bytes, uint32_t total,
                         ArrivalBarrier* barrier) {
  if constexpr (kHopper) {
    if (Lane() == 0) ExpectBytes(barrier, total);
    __syncwarp();
    if (bytes == 0) return;
    if constexpr (kOnce) {
      BulkCopy(to, from, bytes, barrier, EvictFirst());
    } else {
      BulkCopy(to, from, bytes, barrier);
    }
  } else {
    const auto source = reinterpret_cast<unsigned long long>(from);
    unsigned left = __ballot_sync(0xffffffffu, bytes > 0);
    while (left != 0) {
      const int lane = __ffs(static_cast<int>(left)) - 1;
      left &= left - 1;
      const uint32_t place = __shfl_sync(0xffffffffu, SharedAddress(to), lane);
      const unsigned long long begin = __shfl_sync(0xffffffffu, source, lane);
      const uint32_t count = __shfl_sync(0xffffffffu, bytes, lane);
      for (uint32_t i = 16 * Lane(); i < count; i += 16 * kWarp) {
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(place + i), "l"(begin + i)
                     : "memory");
      }
    }
    // Arrives when this lane's copies have come.
    asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(SharedAddress(barrier))
                 : "memory");
  }
}

// A box of a matrix, as the map describes both, to `to`, 1024-byte aligned. x, y: the box's first
// column and row. What lies beyond the matrix comes as zeros, and counts as bytes.
__device__ inline void TensorCopy(void* to, const CUtensorMap& map, int x, int y,
                                  ArrivalBarrier* barrier, uint64_t cache_policy) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
      "[%0], [%1, {%2, %3}], [%4], %5;" ::"r"(SharedAddress(to)),
      "l"(&map), "r"(x), "r"(y), "r"(SharedAddress(barrier)), "l"(cache_policy)
      : "memory");
}
// Of a matrix in panels: see PanelMapOf. x: the column in each panel; y: the first row; z: the
// first panel.
__device__ inline void TensorCopy(void* to, const CUtensorMap& map, int x, int y, int z,
                                  ArrivalBarrier* barrier, uint64_t cache_policy) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
      "[%0], [%1, {%2, %3, %4}], [%5], %6;" ::"r"(SharedAddress(to)),
      "l"(&map), "r"(x), "r"(y), "r"(z), "r"(SharedAddress(barrier)), "l"(cache_policy)
      : "memory");
}
__device__ inline void PrefetchMap(const CUtensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

// Between this thread's own accesses to shared memory and later bulk copies to the same place.
__device__ inline void FenceBeforeBulkCopy() {
  if constexpr (kHopper) asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

}  // namespace skein::kernels::cuda
