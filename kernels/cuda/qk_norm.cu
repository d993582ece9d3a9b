#include "absl/strings/str_cat.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/load_kernels.h"
#include "kernels/cuda/qk_norm.h"
#include "kernels/cuda/vectors.cuh"

namespace skein::kernels::cuda {
namespace {

constexpr int kWarps = 8;
constexpr int kMaxHeadDim = 4 * kWarp;

// A warp has a head of a row, a lane four of its columns.
template <typename T>
__global__ void __launch_bounds__(kWarps* kWarp) QkNormKernel(QkNorm op) {
  LetNextBegin();
  WaitForPrevious();
  const int normed = op.heads + op.kv_heads;
  const int64_t task = int64_t{blockIdx.x} * kWarps + threadIdx.x / kWarp;
  if (task >= op.rows * normed) return;
  const int head = static_cast<int>(task % normed);
  const bool real = Lane() * 4 < op.head_dim;
  auto* const at =
      reinterpret_cast<uint2*>(static_cast<T*>(op.qkv) + task / normed * op.qkv_stride +
                               int64_t{head} * op.head_dim) +
      Lane();
  const uint2 words = real ? *at : make_uint2(0, 0);
  const float2 low = FloatsOf<T>(words.x);
  const float2 high = FloatsOf<T>(words.y);
  const float squares = WarpSum(low.x * low.x + low.y * low.y + high.x * high.x + high.y * high.y);
  if (!real) return;
  const float scale = 1.0f / sqrtf(squares / static_cast<float>(op.head_dim) + op.eps);
  const float4 gain =
      reinterpret_cast<const float4*>(head < op.heads ? op.q_gain : op.k_gain)[Lane()];
  *at = make_uint2(RoundedPair<T>(low.x * scale * gain.x, low.y * scale * gain.y),
                   RoundedPair<T>(high.x * scale * gain.z, high.y * scale * gain.w));
}

}  // namespace

absl::Status Enqueue(const QkNorm& op, Stream stream) {
  if (op.head_dim <= 0 || op.head_dim % 4 != 0 || op.head_dim > kMaxHeadDim) {
    return absl::UnimplementedError(
        absl::StrCat("QkNorm of heads of ", op.head_dim, ": a multiple of 4, up to ", kMaxHeadDim));
  }
  if (op.qkv_stride % kVector != 0) {
    return absl::InvalidArgumentError("QkNorm: strides are multiples of 8");
  }
  if (op.heads < 0 || op.kv_heads < 0 || op.heads + op.kv_heads == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("QkNorm of ", op.heads, " heads and ", op.kv_heads, " KV heads"));
  }
  if (!Aligned16({op.qkv, op.q_gain, op.k_gain})) {
    return absl::InvalidArgumentError("QkNorm: operands are 16-byte aligned");
  }
  if (op.rows == 0) return absl::OkStatus();
  const int64_t tasks = op.rows * (op.heads + op.kv_heads);
  const LaunchShape shape = {"QkNorm", dim3(static_cast<unsigned>((tasks + kWarps - 1) / kWarps)),
                             dim3(kWarps * kWarp)};
  return With16BitType(
      op.dtype, [&]<typename T>(TypeTag<T>) { return Launch(QkNormKernel<T>, shape, stream, op); });
}

const void* KernelOfQkNorm() { return reinterpret_cast<const void*>(QkNormKernel<__nv_bfloat16>); }

}  // namespace skein::kernels::cuda
