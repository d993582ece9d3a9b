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

// The three widths of D, which differ in nothing but the lists of registers that the assembler
// wants to see one by one. TYPES: of A and B.
#define SKEIN_WGMMA_ADDS(TYPES)                                                                    \
  __device__ static void Add(float(&d)[32], const uint32_t(&a)[4], uint64_t b,                     \
                             int accumulate = 1) {                                                 \
    asm volatile(                                                                                  \
        "{\n.reg .pred p;\nsetp.ne.b32 p, %37, 0;\n"                                               \
        "wgmma.mma_async.sync.aligned.m64n64k16.f32." TYPES                                        \
        " {%0, %1, %2, %3, %4, %5, %6, %7, %8, "                                                   \
        "%9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, "     \
        "%26, "                                                                                    \
        "%27, %28, %29, %30, %31}, {%32, %33, %34, %35}, %36, p, 1, 1, %38;\n}"                    \
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]),      \
          "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]),  \
          "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]),            \
          "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]),            \
          "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])             \
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate),                     \
          "n"(kColumns ? 0 : 1));                                                                  \
  }                                                                                                \
  __device__ static void Add(float(&d)[48], const uint32_t(&a)[4], uint64_t b,                     \
                             int accumulate = 1) {                                                 \
    asm volatile(                                                                                  \
        "{\n.reg .pred p;\nsetp.ne.b32 p, %53, 0;\n"                                               \
        "wgmma.mma_async.sync.aligned.m64n96k16.f32." TYPES                                        \
        " {%0, %1, %2, %3, %4, %5, %6, %7, %8, "                                                   \
        "%9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, "     \
        "%26, "                                                                                    \
        "%27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, "    \
        "%44, "                                                                                    \
        "%45, %46, %47}, {%48, %49, %50, %51}, %52, p, 1, 1, %54;\n}"                              \
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]),      \
          "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]),  \
          "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]),            \
          "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]),            \
          "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]),            \
          "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]),            \
          "+f"(d[38]), "+f"(d[39]), "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]),            \
          "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47])                                       \
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate),                     \
          "n"(kColumns ? 0 : 1));                                                                  \
  }                                                                                                \
  __device__ static void Add(float(&d)[64], const uint32_t(&a)[4], uint64_t b,                     \
                             int accumulate = 1) {                                                 \
    asm volatile(                                                                                  \
        "{\n.reg .pred p;\nsetp.ne.b32 p, %69, 0;\n"                                               \
        "wgmma.mma_async.sync.aligned.m64n128k16.f32." TYPES                                       \
        " {%0, %1, %2, %3, %4, %5, %6, %7, "                                                       \
        "%8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, " \
        "%26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, "    \
        "%43, "                                                                                    \
        "%44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, "    \
        "%61, "                                                                                    \
        "%62, %63}, {%64, %65, %66, %67}, %68, p, 1, 1, %70;\n}"                                   \
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]),      \
          "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]),  \
          "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]),            \
          "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]),            \
          "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]),            \
          "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]),            \
          "+f"(d[38]), "+f"(d[39]), "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]),            \
          "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]), "+f"(d[48]), "+f"(d[49]),            \
          "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]),            \
          "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]),            \
          "+f"(d[62]), "+f"(d[63])                                                                 \
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate),                     \
          "n"(kColumns ? 0 : 1));                                                                  \
  }

template <bool kColumns>
struct Wgmma<__nv_bfloat16, kColumns> {
  SKEIN_WGMMA_ADDS("bf16.bf16")
};

template <bool kColumns>
struct Wgmma<__half, kColumns> {
  SKEIN_WGMMA_ADDS("f16.f16")
};

#undef SKEIN_WGMMA_ADDS

}  // namespace skein::kernels::cuda
