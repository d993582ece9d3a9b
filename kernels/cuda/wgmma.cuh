// Matrix instructions of a warpgroup, 4 warps from a multiple of 4 on, which run beside it:
// D [64, n] += A [64, 16] * B [16, n], 16-bit operands, A in registers, B in shared memory.
//
// Warp i of the group has rows 16 * i on; a lane's parts of A and D are those of mma.cuh. In front
// of the first one, and after ordinary code has touched A's or D's registers, BeginProducts();
// CommitProducts() closes a batch; until WaitForProducts() their registers are not to be touched.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

namespace skein::kernels::cuda {

// Between this thread's writes to shared memory and products that read them.
__device__ inline void FenceBeforeProducts() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
__device__ inline void BeginProducts() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ inline void CommitProducts() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
// Until all but the newest kLeft batches are done.
template <int kLeft>
__device__ void WaitForProducts() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kLeft) : "memory");
}

// What the compiler sees of a product is its start: nothing ties ordinary code that uses D, or A's
// registers, to the fence and the wait. So Pin() both in front of BeginProducts(), and D after the
// wait; it costs no instruction.
template <int kCount>
__device__ void Pin(float (&d)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(d[i])::"memory");
}
template <int kCount>
__device__ void Pin(uint32_t (&a)[kCount][4]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
#pragma unroll
    for (int j = 0; j < 4; ++j) asm volatile("" : "+r"(a[i][j])::"memory");
  }
}

// Where B lies: panels of `panel_bytes` a row, 64 or 128, swizzled by as much; rows are contiguous.
// address: of the first element, in shared memory. panel_stride: bytes from panel to panel, for a B
// whose columns are contiguous.
__device__ inline uint64_t Descriptor(uint32_t address, int panel_bytes, int panel_stride) {
  const uint64_t swizzle = panel_bytes == 128 ? 1 : 2;
  return uint64_t{(address & 0x3ffffu) >> 4} | static_cast<uint64_t>(panel_stride >> 4) << 16 |
         static_cast<uint64_t>(8 * panel_bytes >> 4) << 32 | swizzle << 62;
}

// kColumns: whether a column of B is contiguous, [n, 16] in memory; else its rows are, [16, n].
// accumulate: 0 where D is to be overwritten.
template <typename T, bool kColumns>
struct Wgmma;

// D += A * B with A in shared memory as well; the rows of A and the columns of B are contiguous.
template <typename T>
struct WgmmaShared;

// D's registers, as an instruction's text names them and as its operands: the assembler wants to
// see them one by one.
#define SKEIN_D4 "%0, %1, %2, %3"
#define SKEIN_D8 SKEIN_D4 ", %4, %5, %6, %7"
#define SKEIN_D16 \
  SKEIN_D8        \
  ", %8, %9, %10, %11, %12, %13, %14, %15"
#define SKEIN_D32                            \
  SKEIN_D16                                  \
  ", %16, %17, %18, %19, %20, %21, %22, %23" \
  ", %24, %25, %26, %27, %28, %29, %30, %31"
#define SKEIN_D48                            \
  SKEIN_D32                                  \
  ", %32, %33, %34, %35, %36, %37, %38, %39" \
  ", %40, %41, %42, %43, %44, %45, %46, %47"
#define SKEIN_D56 \
  SKEIN_D48       \
  ", %48, %49, %50, %51, %52, %53, %54, %55"
#define SKEIN_D64                            \
  SKEIN_D48                                  \
  ", %48, %49, %50, %51, %52, %53, %54, %55" \
  ", %56, %57, %58, %59, %60, %61, %62, %63"
#define SKEIN_D96                            \
  SKEIN_D64                                  \
  ", %64, %65, %66, %67, %68, %69, %70, %71" \
  ", %72, %73, %74, %75, %76, %77, %78, %79" \
  ", %80, %81, %82, %83, %84, %85, %86, %87" \
  ", %88, %89, %90, %91, %92, %93, %94, %95"
#define SKEIN_D128                                   \
  SKEIN_D96                                          \
  ", %96, %97, %98, %99, %100, %101, %102, %103"     \
  ", %104, %105, %106, %107, %108, %109, %110, %111" \
  ", %112, %113, %114, %115, %116, %117, %118, %119" \
  ", %120, %121, %122, %123, %124, %125, %126, %127"
#define SKEIN_R4(i) "+f"(d[i]), "+f"(d[(i) + 1]), "+f"(d[(i) + 2]), "+f"(d[(i) + 3])
#define SKEIN_R8(i) SKEIN_R4(i), SKEIN_R4((i) + 4)
#define SKEIN_R16(i) SKEIN_R8(i), SKEIN_R8((i) + 8)
#define SKEIN_R32(i) SKEIN_R16(i), SKEIN_R16((i) + 16)
#define SKEIN_R48(i) SKEIN_R32(i), SKEIN_R16((i) + 32)
#define SKEIN_R56(i) SKEIN_R48(i), SKEIN_R8((i) + 48)
#define SKEIN_R64(i) SKEIN_R32(i), SKEIN_R32((i) + 32)
#define SKEIN_R96(i) SKEIN_R64(i), SKEIN_R32((i) + 64)
#define SKEIN_R128(i) SKEIN_R64(i), SKEIN_R64((i) + 64)

// N: columns of D. COUNT: of D's registers, N / 2. A, B, ACCUMULATE, ORDER: the operands behind
// them.
#define SKEIN_WGMMA(TYPES, N, COUNT, A, B, ACCUMULATE, ORDER)                                     \
  __device__ static void Add(float(&d)[COUNT], const uint32_t(&a)[4], uint64_t b,                 \
                             int accumulate = 1) {                                                \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " ACCUMULATE                                   \
                 ", 0;\nwgmma.mma_async.sync.aligned.m64n" N "k16.f32." TYPES " {" SKEIN_D##COUNT \
                 "}, {" A "}, " B ", p, 1, 1, " ORDER ";\n}"                                      \
                 : SKEIN_R##COUNT(0)                                                              \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate),           \
                   "n"(kColumns ? 0 : 1));                                                        \
  }
#define SKEIN_WGMMA_SHARED(TYPES, N, COUNT, A, B, ACCUMULATE)                                     \
  __device__ static void Add(float(&d)[COUNT], uint64_t a, uint64_t b, int accumulate) {          \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " ACCUMULATE                                   \
                 ", 0;\nwgmma.mma_async.sync.aligned.m64n" N "k16.f32." TYPES " {" SKEIN_D##COUNT \
                 "}, " A ", " B ", p, 1, 1, 0, 0;\n}"                                             \
                 : SKEIN_R##COUNT(0)                                                              \
                 : "l"(a), "l"(b), "r"(accumulate));                                              \
  }
#define SKEIN_WGMMAS(TYPES)                                               \
  SKEIN_WGMMA(TYPES, "64", 32, "%32, %33, %34, %35", "%36", "%37", "%38") \
  SKEIN_WGMMA(TYPES, "96", 48, "%48, %49, %50, %51", "%52", "%53", "%54") \
  SKEIN_WGMMA(TYPES, "128", 64, "%64, %65, %66, %67", "%68", "%69", "%70")
#define SKEIN_WGMMAS_SHARED(TYPES)                          \
  SKEIN_WGMMA_SHARED(TYPES, "8", 4, "%4", "%5", "%6")       \
  SKEIN_WGMMA_SHARED(TYPES, "16", 8, "%8", "%9", "%10")     \
  SKEIN_WGMMA_SHARED(TYPES, "32", 16, "%16", "%17", "%18")  \
  SKEIN_WGMMA_SHARED(TYPES, "64", 32, "%32", "%33", "%34")  \
  SKEIN_WGMMA_SHARED(TYPES, "96", 48, "%48", "%49", "%50")  \
  SKEIN_WGMMA_SHARED(TYPES, "112", 56, "%56", "%57", "%58") \
  SKEIN_WGMMA_SHARED(TYPES, "128", 64, "%64", "%65", "%66") \
  SKEIN_WGMMA_SHARED(TYPES, "192", 96, "%96", "%97", "%98") \
  SKEIN_WGMMA_SHARED(TYPES, "256", 128, "%128", "%129", "%130")

template <bool kColumns>
struct Wgmma<__nv_bfloat16, kColumns> {
  SKEIN_WGMMAS("bf16.bf16")
};
template <bool kColumns>
struct Wgmma<__half, kColumns> {
  SKEIN_WGMMAS("f16.f16")
};
template <>
struct WgmmaShared<__nv_bfloat16> {
  SKEIN_WGMMAS_SHARED("bf16.bf16")
};
template <>
struct WgmmaShared<__half> {
  SKEIN_WGMMAS_SHARED("f16.f16")
};

#undef SKEIN_D4
#undef SKEIN_D8
#undef SKEIN_D16
#undef SKEIN_D32
#undef SKEIN_D48
#undef SKEIN_D56
#undef SKEIN_D64
#undef SKEIN_D96
#undef SKEIN_D128
#undef SKEIN_R4
#undef SKEIN_R8
#undef SKEIN_R16
#undef SKEIN_R32
#undef SKEIN_R48
#undef SKEIN_R56
#undef SKEIN_R64
#undef SKEIN_R96
#undef SKEIN_R128
#undef SKEIN_WGMMA
#undef SKEIN_WGMMA_SHARED
#undef SKEIN_WGMMAS
#undef SKEIN_WGMMAS_SHARED

}  // namespace skein::kernels::cuda
