// Blocks of a cluster, which run at once and read each other's shared memory: Hopper's.
#pragma once

#include <cstdint>

#include "kernels/cuda/forms.h"
#include "kernels/cuda/mma.cuh"

namespace skein::kernels::cuda {

// Which block of its cluster this is.
__device__ inline int ClusterRank() {
  uint32_t rank = 0;
  if constexpr (kHopper) asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return static_cast<int>(rank);
}

// A barrier of all threads of all blocks; what they wrote in front of it is seen behind it.
__device__ inline void SyncCluster() {
  if constexpr (kHopper) {
    asm volatile(
        "barrier.cluster.arrive.release.aligned;\n"
        "barrier.cluster.wait.acquire.aligned;" ::
            : "memory");
  }
}

// Reads what block `rank` has where this one has `own`, in shared memory, 16-byte aligned.
__device__ inline float4 LoadOfBlock(const float4* own, int rank) {
  float4 value = {};
  if constexpr (kHopper) {
    asm volatile(
        "{\n"
        ".reg .b32 at;\n"
        "mapa.shared::cluster.u32 at, %4, %5;\n"
        "ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [at];\n"
        "}"
        : "=f"(value.x), "=f"(value.y), "=f"(value.z), "=f"(value.w)
        : "r"(SharedAddress(own)), "r"(rank)
        : "memory");
  }
  return value;
}

}  // namespace skein::kernels::cuda
