#include <algorithm>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/load_kernels.h"
#include "kernels/cuda/rms_norm.h"
#include "kernels/cuda/vectors.cuh"

namespace skein::kernels::cuda {
namespace {

// As many as a block can have.
constexpr int kMaxThreads = 1024;
// Vectors of a row that a thread keeps in registers: 32 floats.
constexpr int kMaxVectors = 4;

// One block a row. The row is read once: thread i holds vectors i, i + blockDim, ... of the sum in
// registers while the block adds up the squares, then scales and writes them.
template <typename T, typename Residual, typename Delta, int kVectors>
__global__ void __launch_bounds__(kMaxThreads) RmsNormKernel(RmsNorm op) {
  __shared__ float scratch[kWarp];
  LetNextBegin();
  WaitForPrevious();

  const int64_t row = blockIdx.x;
  auto* residual = static_cast<Residual*>(op.residual) + row * op.residual_stride;
  const auto* delta = static_cast<const Delta*>(op.delta) + row * op.delta_stride;
  float x[kVectors][kVector];
  float squares = 0;
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    const int col = (v * static_cast<int>(blockDim.x) + static_cast<int>(threadIdx.x)) * kVector;
    if (col >= op.cols) break;
    LoadVector(residual + col, x[v]);
    if (op.delta != nullptr) {
      float add[kVector];
      LoadVector(delta + col, add);
#pragma unroll
      for (int i = 0; i < kVector; ++i) x[v][i] = Rounded<Residual>(x[v][i] + add[i]);
      StoreVector(residual + col, x[v]);
    }
#pragma unroll
    for (int i = 0; i < kVector; ++i) squares += x[v][i] * x[v][i];
  }
  if (op.out == nullptr) return;

  const float mean = BlockSum(squares, scratch) / static_cast<float>(op.cols);
  const float scale = 1.0f / sqrtf(mean + op.eps);
  auto* out = static_cast<T*>(op.out) + row * op.out_stride;
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    const int col = (v * static_cast<int>(blockDim.x) + static_cast<int>(threadIdx.x)) * kVector;
    if (col >= op.cols) break;
    float gain[kVector];
    LoadVector(op.gain + col, gain);
#pragma unroll
    for (int i = 0; i < kVector; ++i) gain[i] *= x[v][i] * scale;
    StoreVector(out + col, gain);
  }
}

template <typename T, typename Residual, typename Delta>
absl::Status Start(const RmsNorm& op, Stream stream) {
  const int64_t vectors = op.cols / kVector;
  const int64_t threads = std::min<int64_t>((vectors + kWarp - 1) / kWarp * kWarp, kMaxThreads);
  const LaunchShape shape = {"RmsNorm", dim3(static_cast<unsigned>(op.rows)),
                             dim3(static_cast<unsigned>(threads))};
  const int64_t each = (vectors + threads - 1) / threads;
  if (each == 1) return Launch(RmsNormKernel<T, Residual, Delta, 1>, shape, stream, op);
  if (each == 2) return Launch(RmsNormKernel<T, Residual, Delta, 2>, shape, stream, op);
  return Launch(RmsNormKernel<T, Residual, Delta, kMaxVectors>, shape, stream, op);
}

}  // namespace

absl::Status Enqueue(const RmsNorm& op, Stream stream) {
  constexpr int64_t kMaxCols = int64_t{kMaxThreads} * kMaxVectors * kVector;
  if (op.cols <= 0 || op.cols % kVector != 0 || op.cols > kMaxCols) {
    return absl::InvalidArgumentError(
        absl::StrCat("RmsNorm of ", op.cols, " columns: a multiple of 8 to ", kMaxCols));
  }
  if ((op.residual_stride | op.delta_stride | op.out_stride) % kVector != 0) {
    return absl::InvalidArgumentError("RmsNorm: strides are multiples of 8");
  }
  if (!Aligned16({op.residual, op.delta, op.gain, op.out})) {
    return absl::InvalidArgumentError("RmsNorm: operands are 16-byte aligned");
  }
  if (op.rows == 0) return absl::OkStatus();
  const DType delta_dtype = op.delta == nullptr ? op.dtype : op.delta_dtype;
  return With16BitType(op.dtype, [&]<typename T>(TypeTag<T>) {
    return WithFloatOr<T>(op.residual_dtype, op.dtype, [&]<typename Residual>(TypeTag<Residual>) {
      return WithFloatOr<T>(delta_dtype, op.dtype, [&]<typename Delta>(TypeTag<Delta>) {
        return Start<T, Residual, Delta>(op, stream);
      });
    });
  });
}

const void* KernelOfRmsNorm() {
  return reinterpret_cast<const void*>(RmsNormKernel<__nv_bfloat16, float, float, 1>);
}

}  // namespace skein::kernels::cuda
