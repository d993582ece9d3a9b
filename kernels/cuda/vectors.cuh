// Eight elements at a time, 16-bit ones in one access of 16 bytes, and sums over threads.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

namespace skein::kernels::cuda {

// Elements that a thread loads at once. Rows are multiples of it, and begin on 16 bytes.
inline constexpr int kVector = 8;

__device__ inline float2 ToFloats(__nv_bfloat162 pair) { return __bfloat1622float2(pair); }
__device__ inline float2 ToFloats(__half2 pair) { return __half22float2(pair); }

template <typename T>
struct PairOf;
template <>
struct PairOf<__nv_bfloat16> {
  using type = __nv_bfloat162;
  __device__ static type Round(float a, float b) { return __floats2bfloat162_rn(a, b); }
};
template <>
struct PairOf<__half> {
  using type = __half2;
  __device__ static type Round(float a, float b) { return __floats2half2_rn(a, b); }
};

// Two floats, rounded, in one register; `a` in its low half.
template <typename T>
__device__ uint32_t RoundedPair(float a, float b) {
  const typename PairOf<T>::type pair = PairOf<T>::Round(a, b);
  return reinterpret_cast<const uint32_t&>(pair);
}
template <typename T>
__device__ float2 FloatsOf(uint32_t bits) {
  return ToFloats(reinterpret_cast<const typename PairOf<T>::type&>(bits));
}

template <typename T>
__device__ void Unpack(const uint4& in, float (&out)[kVector]) {
  const uint32_t words[4] = {in.x, in.y, in.z, in.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float2 pair = FloatsOf<T>(words[i]);
    out[2 * i] = pair.x;
    out[2 * i + 1] = pair.y;
  }
}

template <typename T>
__device__ void LoadVector(const T* in, float (&out)[kVector]) {
  Unpack<T>(*reinterpret_cast<const uint4*>(in), out);
}
template <>
__device__ inline void LoadVector<float>(const float* in, float (&out)[kVector]) {
  const float4 a = reinterpret_cast<const float4*>(in)[0];
  const float4 b = reinterpret_cast<const float4*>(in)[1];
  out[0] = a.x, out[1] = a.y, out[2] = a.z, out[3] = a.w;
  out[4] = b.x, out[5] = b.y, out[6] = b.z, out[7] = b.w;
}

template <typename T>
__device__ void StoreVector(T* out, const float (&in)[kVector]) {
  *reinterpret_cast<uint4*>(out) =
      make_uint4(RoundedPair<T>(in[0], in[1]), RoundedPair<T>(in[2], in[3]),
                 RoundedPair<T>(in[4], in[5]), RoundedPair<T>(in[6], in[7]));
}
template <>
__device__ inline void StoreVector<float>(float* out, const float (&in)[kVector]) {
  reinterpret_cast<float4*>(out)[0] = make_float4(in[0], in[1], in[2], in[3]);
  reinterpret_cast<float4*>(out)[1] = make_float4(in[4], in[5], in[6], in[7]);
}

// What the type keeps of a float.
template <typename T>
__device__ float Rounded(float x) {
  return static_cast<float>(static_cast<T>(x));
}

inline constexpr int kWarp = 32;
__device__ inline int Lane() { return static_cast<int>(threadIdx.x) % kWarp; }

__device__ inline float WarpSum(float x) {
#pragma unroll
  for (int step = kWarp / 2; step > 0; step /= 2) x += __shfl_xor_sync(0xffffffffu, x, step);
  return x;
}

// Of all threads, which are whole warps; all get it. `scratch` [32] is shared memory.
__device__ inline float BlockSum(float x, float* scratch) {
  const int warps = static_cast<int>(blockDim.x) / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  x = WarpSum(x);
  if (lane == 0) scratch[threadIdx.x / kWarp] = x;
  __syncthreads();
  return WarpSum(lane < warps ? scratch[lane] : 0.0f);
}

// Likewise the largest.
__device__ inline float BlockMax(float x, float* scratch) {
  const int warps = static_cast<int>(blockDim.x) / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const auto over_warp = [](float y) {
#pragma unroll
    for (int step = kWarp / 2; step > 0; step /= 2) {
      y = fmaxf(y, __shfl_xor_sync(0xffffffffu, y, step));
    }
    return y;
  };
  x = over_warp(x);
  if (lane == 0) scratch[threadIdx.x / kWarp] = x;
  __syncthreads();
  return over_warp(lane < warps ? scratch[lane] : -INFINITY);
}

__device__ inline float Silu(float x) { return x / (1.0f + __expf(-x)); }

}  // namespace skein::kernels::cuda
