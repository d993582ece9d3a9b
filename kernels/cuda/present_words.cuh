// Words that blocks of a device hand to each other while they run: a word says itself whether it is
// there. Who writes needs no fence, who reads no flag; each word comes whole, but not all of
// several at once.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace skein::kernels::cuda {

// What memory holds where nothing was left yet: no sum has these bits, a NaN's, and no two elements
// that a conversion gave.
inline constexpr uint32_t kAbsent = 0xffffffffu;

// One, two or four words, aligned by as much.
template <typename Words>
__device__ Words LoadWords(const void* from);
template <>
__device__ inline uint32_t LoadWords<uint32_t>(const void* from) {
  uint32_t word;
  asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(word) : "l"(from) : "memory");
  return word;
}
template <>
__device__ inline uint2 LoadWords<uint2>(const void* from) {
  uint2 words;
  asm volatile("ld.relaxed.gpu.global.v2.u32 {%0, %1}, [%2];"
               : "=r"(words.x), "=r"(words.y)
               : "l"(from)
               : "memory");
  return words;
}
template <>
__device__ inline uint4 LoadWords<uint4>(const void* from) {
  uint4 words;
  asm volatile("ld.relaxed.gpu.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(words.x), "=r"(words.y), "=r"(words.z), "=r"(words.w)
               : "l"(from)
               : "memory");
  return words;
}

__device__ inline void StoreWords(void* to, uint32_t word) {
  asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(to), "r"(word) : "memory");
}
__device__ inline void StoreWords(void* to, const uint2& words) {
  asm volatile("st.relaxed.gpu.global.v2.u32 [%0], {%1, %2};" ::"l"(to), "r"(words.x), "r"(words.y)
               : "memory");
}
__device__ inline void StoreWords(void* to, const uint4& words) {
  asm volatile("st.relaxed.gpu.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(words.x),
               "r"(words.y), "r"(words.z), "r"(words.w)
               : "memory");
}

__device__ inline bool Present(uint32_t word) { return word != kAbsent; }
__device__ inline bool Present(const uint2& words) { return Present(words.x) && Present(words.y); }
__device__ inline bool Present(const uint4& words) {
  return Present(words.x) && Present(words.y) && Present(words.z) && Present(words.w);
}

// A word that can be left: NaNs in the place of others, whether it is a float or two of 16 bits.
__device__ inline uint32_t PresentWord(uint32_t word) {
  return word == kAbsent ? 0x7fffffffu : word;
}
__device__ inline uint32_t PresentWord(float x) { return PresentWord(__float_as_uint(x)); }

}  // namespace skein::kernels::cuda
