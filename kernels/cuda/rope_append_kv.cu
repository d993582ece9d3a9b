#include <algorithm>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/kv_write.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/load_kernels.h"
#include "kernels/cuda/rope_append_kv.h"
#include "kernels/cuda/vectors.cuh"

namespace skein::kernels::cuda {
namespace {

// A row of 32 + 2 * 8 heads of 128 has 384 tasks. With int8, 8 warps have its queries, and 16 a key
// or a value each.
template <bool kInt8>
inline constexpr int kMaxThreads = kInt8 ? 768 : 384;

// Where the block of a row's key (or value) of a head has its keys (values).
__device__ char* KvRows(const KvLayer& kv, int64_t slot, int head, bool value) {
  const int offset = static_cast<int>(slot % kv.page_size);
  return kv.Block(slot / kv.page_size, head, offset) +
         (value ? KvValuesByte(kv.head_dim, kv.int8) : 0);
}

// Eight pairs of a head: in place for a query, into the cache for a key.
template <typename T>
__device__ void Rotate(const RopeAppendKv& op, int64_t row, int64_t slot, int head, int chunk) {
  const int half = op.kv.head_dim / 2;
  T* in = static_cast<T*>(op.qkv) + row * op.qkv_stride + int64_t{head} * op.kv.head_dim +
          chunk * kVector;
  float a[kVector];
  float b[kVector];
  float frequencies[kVector];
  LoadVector(in, a);
  LoadVector(in + half, b);
  LoadVector(op.inverse_frequencies + chunk * kVector, frequencies);
  const auto position = static_cast<float>(op.positions[row]);
#pragma unroll
  for (int i = 0; i < kVector; ++i) {
    float sine;
    float cosine;
    SineCosine(position * frequencies[i], &sine, &cosine);
    const float first = a[i] * cosine - b[i] * sine;
    b[i] = b[i] * cosine + a[i] * sine;
    a[i] = first;
  }
  if (head < op.heads) {
    StoreVector(in, a);
    StoreVector(in + half, b);
    return;
  }
  T* key = reinterpret_cast<T*>(KvRows(op.kv, slot, head - op.heads, false));
  const int in_block = static_cast<int>(slot % kKvBlock);
  StoreVector(key + KvChunkOffset(op.kv.head_dim, in_block, chunk), a);
  StoreVector(key + KvChunkOffset(op.kv.head_dim, in_block, chunk + half / kVector), b);
}

// 16 columns of a value: chunks 2 * pair and the next one.
template <typename T>
__device__ void CopyValue(const RopeAppendKv& op, int64_t row, int64_t slot, int head, int pair) {
  const T* in = static_cast<const T*>(op.qkv) + row * op.qkv_stride +
                int64_t{op.heads + op.kv.kv_heads + head} * op.kv.head_dim;
  T* value = reinterpret_cast<T*>(KvRows(op.kv, slot, head, true));
#pragma unroll
  for (int chunk = 2 * pair; chunk < 2 * pair + 2; ++chunk) {
    const int at = KvChunkOffset(op.kv.head_dim, static_cast<int>(slot % kKvBlock), chunk);
    *reinterpret_cast<uint4*>(value + at) = *reinterpret_cast<const uint4*>(in + chunk * kVector);
  }
}

// A key or a value of a head, which a warp makes int8: a lane has 4 columns, and for a key those
// that they are rotated with are another lane's. `vector`: the KV heads' keys, then their values.
template <typename T>
__device__ void Quantize(const RopeAppendKv& op, int64_t row, int64_t slot, int vector) {
  const int lanes = op.kv.head_dim / 4;
  const int lane = min(Lane(), lanes - 1);  // what is more does the same again
  const bool is_value = vector >= op.kv.kv_heads;
  const T* in = static_cast<const T*>(op.qkv) + row * op.qkv_stride +
                int64_t{op.heads + vector} * op.kv.head_dim;
  const uint2 raw = reinterpret_cast<const uint2*>(in)[lane];
  const float2 first = FloatsOf<T>(raw.x);
  const float2 second = FloatsOf<T>(raw.y);
  float x[4] = {first.x, first.y, second.x, second.y};
  if (!is_value) {
    const bool low = lane < lanes / 2;
    const int other = low ? lane + lanes / 2 : lane - lanes / 2;
    const int pair = low ? lane : other;
    const float4 four = reinterpret_cast<const float4*>(op.inverse_frequencies)[pair];
    const float frequencies[4] = {four.x, four.y, four.z, four.w};
    const auto position = static_cast<float>(op.positions[row]);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float theirs = __shfl_sync(0xffffffffu, x[i], other);
      float sine;
      float cosine;
      SineCosine(position * frequencies[i], &sine, &cosine);
      x[i] = x[i] * cosine + theirs * (low ? -sine : sine);
    }
  }
  char* const block = KvRows(op.kv, slot, vector - (is_value ? op.kv.kv_heads : 0), false);
  WriteInt8Row(block, op.kv.head_dim, is_value, static_cast<int>(slot % kKvBlock), x);
}

// A block a row. Task: a head's 8 pairs, or 16 columns of a value; head_dim / 16 tasks a head.
template <typename T>
__global__ void __launch_bounds__(kMaxThreads<false>) RopeAppendKvKernel(RopeAppendKv op) {
  LetNextBegin();
  WaitForPrevious();
  const int64_t row = blockIdx.x;
  const int64_t slot = op.kv_slots[row];
  if (slot < 0) return;
  const int per_head = op.kv.head_dim / (2 * kVector);
  const int rotated = (op.heads + op.kv.kv_heads) * per_head;
  const int tasks = rotated + op.kv.kv_heads * per_head;
  for (int task = static_cast<int>(threadIdx.x); task < tasks;
       task += static_cast<int>(blockDim.x)) {
    if (task < rotated) {
      Rotate<T>(op, row, slot, task / per_head, task % per_head);
    } else {
      CopyValue<T>(op, row, slot, (task - rotated) / per_head, task % per_head);
    }
  }
}

// Warps that a row's queries take, as tasks.
__host__ __device__ int QueryWarps(const RopeAppendKv& op) {
  return (op.heads * (op.kv.head_dim / (2 * kVector)) + kWarp - 1) / kWarp;
}

// A block a row. First warps have the queries' tasks, the others a key or a value each.
template <typename T>
__global__ void __launch_bounds__(kMaxThreads<true>) RopeAppendInt8KvKernel(RopeAppendKv op) {
  LetNextBegin();
  WaitForPrevious();
  const int64_t row = blockIdx.x;
  const int64_t slot = op.kv_slots[row];
  if (slot < 0) return;
  const int per_head = op.kv.head_dim / (2 * kVector);
  const int queries = QueryWarps(op);
  for (int i = static_cast<int>(threadIdx.x) / kWarp; i < queries + 2 * op.kv.kv_heads;
       i += static_cast<int>(blockDim.x) / kWarp) {
    const int task = i * kWarp + Lane();
    if (i >= queries) {
      Quantize<T>(op, row, slot, i - queries);
    } else if (task < op.heads * per_head) {
      Rotate<T>(op, row, slot, task / per_head, task % per_head);
    }
  }
}

}  // namespace

absl::Status Enqueue(const RopeAppendKv& op, Stream stream) {
  if (!KvHeadDimIsSupported(op.kv.head_dim) || op.kv.page_size <= 0 ||
      op.kv.page_size % kKvBlock != 0 || op.qkv_stride % kVector != 0) {
    return absl::UnimplementedError(
        absl::StrCat("RopeAppendKv of heads of ", op.kv.head_dim, " and pages of ", op.kv.page_size,
                     ": heads of 64, 96 or 128, pages of a multiple of 16"));
  }
  if (op.kv.kv_heads <= 0 || op.heads < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("RopeAppendKv of ", op.heads, " heads and ", op.kv.kv_heads, " KV heads"));
  }
  if (!Aligned16({op.qkv, op.kv.data, op.inverse_frequencies})) {
    return absl::InvalidArgumentError("RopeAppendKv: operands are 16-byte aligned");
  }
  if (op.rows == 0) return absl::OkStatus();
  const int tasks = (op.heads + 2 * op.kv.kv_heads) * (op.kv.head_dim / (2 * kVector));
  const int threads =
      op.kv.int8 ? std::min((QueryWarps(op) + 2 * op.kv.kv_heads) * kWarp, kMaxThreads<true>)
                 : std::min((tasks + kWarp - 1) / kWarp * kWarp, kMaxThreads<false>);
  const LaunchShape shape = {"RopeAppendKv", dim3(static_cast<unsigned>(op.rows)),
                             dim3(static_cast<unsigned>(threads))};
  return With16BitType(op.dtype, [&]<typename T>(TypeTag<T>) {
    return Launch(op.kv.int8 ? RopeAppendInt8KvKernel<T> : RopeAppendKvKernel<T>, shape, stream,
                  op);
  });
}

const void* KernelOfRopeAppendKv() {
  return reinterpret_cast<const void*>(RopeAppendKvKernel<__nv_bfloat16>);
}

}  // namespace skein::kernels::cuda
