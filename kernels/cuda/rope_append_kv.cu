#include <algorithm>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/load_kernels.h"
#include "kernels/cuda/rope_append_kv.h"
#include "kernels/cuda/vectors.cuh"

namespace skein::kernels::cuda {
namespace {

// A row of 32 + 2 * 8 heads of 128 has 384 tasks.
constexpr int kMaxThreads = 384;

// Angles reach a million radians, where a float's sine would need a long reduction: the turns are
// counted in double, whose error there is 1e-10.
__device__ void SineCosine(float angle, float* sine, float* cosine) {
  constexpr double kTurnsPerRadian = 0.15915494309189533577;
  const double turns = static_cast<double>(angle) * kTurnsPerRadian;
  sincospif(2.0f * static_cast<float>(turns - rint(turns)), sine, cosine);
}

// Where a row's key (or value) of a head goes.
template <typename T>
__device__ T* KvRow(const KvLayer& kv, int64_t slot, int head, bool value) {
  const int offset = static_cast<int>(slot % kv.page_size);
  return static_cast<T*>(kv.data) + kv.BlockBegin(slot / kv.page_size, head, offset) +
         (value ? kKvBlock * kv.head_dim : 0);
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
  T* key = KvRow<T>(op.kv, slot, head - op.heads, false);
  const int in_block = static_cast<int>(slot % kKvBlock);
  StoreVector(key + KvChunkOffset(op.kv.head_dim, in_block, chunk), a);
  StoreVector(key + KvChunkOffset(op.kv.head_dim, in_block, chunk + half / kVector), b);
}

// 16 columns of a value: chunks 2 * pair and the next one.
template <typename T>
__device__ void CopyValue(const RopeAppendKv& op, int64_t row, int64_t slot, int head, int pair) {
  const T* in = static_cast<const T*>(op.qkv) + row * op.qkv_stride +
                int64_t{op.heads + op.kv.kv_heads + head} * op.kv.head_dim;
  T* value = KvRow<T>(op.kv, slot, head, true);
#pragma unroll
  for (int chunk = 2 * pair; chunk < 2 * pair + 2; ++chunk) {
    const int at = KvChunkOffset(op.kv.head_dim, static_cast<int>(slot % kKvBlock), chunk);
    *reinterpret_cast<uint4*>(value + at) = *reinterpret_cast<const uint4*>(in + chunk * kVector);
  }
}

// A block a row. Task: a head's 8 pairs, or 16 columns of a value; head_dim / 16 tasks a head.
template <typename T>
__global__ void __launch_bounds__(kMaxThreads) RopeAppendKvKernel(RopeAppendKv op) {
  WaitForPrevious();
  LetNextBegin();
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
  const int threads = std::min((tasks + kWarp - 1) / kWarp * kWarp, kMaxThreads);
  const LaunchShape shape = {"RopeAppendKv", dim3(static_cast<unsigned>(op.rows)),
                             dim3(static_cast<unsigned>(threads))};
  return With16BitType(op.dtype, [&]<typename T>(TypeTag<T>) {
    return Launch(RopeAppendKvKernel<T>, shape, stream, op);
  });
}

const void* KernelOfRopeAppendKv() {
  return reinterpret_cast<const void*>(RopeAppendKvKernel<__nv_bfloat16>);
}

}  // namespace skein::kernels::cuda
