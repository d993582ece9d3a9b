#include <algorithm>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/load_kernels.h"
#include "kernels/cuda/rope_append_kv.h"
#include "kernels/cuda/vectors.cuh"
#include "kernels/packing/kv_codec.h"

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

__device__ void RotatePair(float angle, float& a, float& b) {
  float sine;
  float cosine;
  SineCosine(angle, &sine, &cosine);
  const float first = a * cosine - b * sine;
  b = b * cosine + a * sine;
  a = first;
}

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
    RotatePair(position * frequencies[i], a[i], b[i]);
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

// A key or a value of a head, which a warp makes int8: a lane has pairs of columns `lane` and
// lane + 32. `vector`: KV heads' keys, then their values.
template <typename T>
__device__ void Quantize(const RopeAppendKv& op, int64_t row, int64_t slot, int vector) {
  constexpr int kPairs = 2;  // head_dim is 128 at most
  const int half = op.kv.head_dim / 2;
  const bool is_value = vector >= op.kv.kv_heads;
  const T* in = static_cast<const T*>(op.qkv) + row * op.qkv_stride +
                int64_t{op.heads + vector} * op.kv.head_dim;
  const auto position = static_cast<float>(op.positions[row]);
  float a[kPairs] = {};
  float b[kPairs] = {};
  uint32_t largest = 0;
#pragma unroll
  for (int i = 0; i < kPairs; ++i) {
    const int column = Lane() + i * kWarp;
    if (column >= half) continue;
    a[i] = static_cast<float>(in[column]);
    b[i] = static_cast<float>(in[column + half]);
    if (!is_value) RotatePair(position * op.inverse_frequencies[column], a[i], b[i]);
    largest = max(largest, max(MagnitudeBits(a[i]), MagnitudeBits(b[i])));
  }
  const float scale = Int8Scale(__reduce_max_sync(0xffffffffu, largest));
  const int in_block = static_cast<int>(slot % kKvBlock);
  const int head = vector - (is_value ? op.kv.kv_heads : 0);
  auto* to = reinterpret_cast<int8_t*>(KvRows(op.kv, slot, head, is_value));
#pragma unroll
  for (int i = 0; i < kPairs; ++i) {
    const int column = Lane() + i * kWarp;
    if (column >= half) continue;
    to[KvInt8Offset(op.kv.head_dim, in_block, column)] = ToInt8(a[i], scale);
    to[KvInt8Offset(op.kv.head_dim, in_block, column + half)] = ToInt8(b[i], scale);
  }
  if (Lane() > 0) return;
  char* block = KvRows(op.kv, slot, head, false);
  reinterpret_cast<float*>(block + KvScalesByte(op.kv.head_dim, is_value))[in_block] = scale;
}

// A block a row. Task: a head's 8 pairs, or 16 columns of a value; head_dim / 16 tasks a head. Of
// int8, tasks are queries' alone, and warps take keys and values as a whole.
template <typename T>
__global__ void __launch_bounds__(kMaxThreads) RopeAppendKvKernel(RopeAppendKv op) {
  WaitForPrevious();
  LetNextBegin();
  const int64_t row = blockIdx.x;
  const int64_t slot = op.kv_slots[row];
  if (slot < 0) return;
  const int per_head = op.kv.head_dim / (2 * kVector);
  const int rotated = (op.heads + (op.kv.int8 ? 0 : op.kv.kv_heads)) * per_head;
  const int tasks = rotated + (op.kv.int8 ? 0 : op.kv.kv_heads * per_head);
  for (int task = static_cast<int>(threadIdx.x); task < tasks;
       task += static_cast<int>(blockDim.x)) {
    if (task < rotated) {
      Rotate<T>(op, row, slot, task / per_head, task % per_head);
    } else {
      CopyValue<T>(op, row, slot, (task - rotated) / per_head, task % per_head);
    }
  }
  if (!op.kv.int8) return;
  for (int vector = static_cast<int>(threadIdx.x) / kWarp; vector < 2 * op.kv.kv_heads;
       vector += static_cast<int>(blockDim.x) / kWarp) {
    Quantize<T>(op, row, slot, vector);
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
