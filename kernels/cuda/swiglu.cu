#include "absl/strings/str_cat.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/load_kernels.h"
#include "kernels/cuda/row_launch.cuh"
#include "kernels/cuda/swiglu.h"
#include "kernels/cuda/vectors.cuh"

namespace skein::kernels::cuda {
namespace {

// Blocks (columns / 2048, rows); a thread makes 8 columns of a row.
template <typename T, GateUpLayout kLayout>
__global__ void __launch_bounds__(kRowThreads) SwiGluKernel(SwiGlu op) {
  LetNextBegin();
  WaitForPrevious();
  const int64_t col = (int64_t{blockIdx.x} * kRowThreads + threadIdx.x) * kVector;
  if (col >= op.cols) return;
  const int64_t gate_at = kLayout == GateUpLayout::kHalves ? col : 2 * col;
  const int64_t up_at = kLayout == GateUpLayout::kHalves ? op.cols + col : 2 * col + kVector;
  for (int64_t row = blockIdx.y; row < op.rows; row += gridDim.y) {
    const T* in = static_cast<const T*>(op.gate_up) + row * op.gate_up_stride;
    float gate[kVector];
    float up[kVector];
    LoadVector(in + gate_at, gate);
    LoadVector(in + up_at, up);
#pragma unroll
    for (int i = 0; i < kVector; ++i) up[i] *= gate[i] / (1.0f + __expf(-gate[i]));
    StoreVector(static_cast<T*>(op.out) + row * op.out_stride + col, up);
  }
}

}  // namespace

absl::Status Enqueue(const SwiGlu& op, Stream stream) {
  if (op.cols <= 0 || (op.cols | op.gate_up_stride | op.out_stride) % kVector != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("SwiGlu of ", op.cols, " columns: these and strides are multiples of 8"));
  }
  if (!Aligned16({op.gate_up, op.out})) {
    return absl::InvalidArgumentError("SwiGlu: operands are 16-byte aligned");
  }
  if (op.rows == 0) return absl::OkStatus();
  const LaunchShape shape = ShapeOfRows("SwiGlu", op.rows, op.cols);
  return With16BitType(op.dtype, [&]<typename T>(TypeTag<T>) {
    return op.layout == GateUpLayout::kHalves
               ? Launch(SwiGluKernel<T, GateUpLayout::kHalves>, shape, stream, op)
               : Launch(SwiGluKernel<T, GateUpLayout::kInterleaved>, shape, stream, op);
  });
}

const void* KernelOfSwiGlu() {
  return reinterpret_cast<const void*>(SwiGluKernel<__nv_bfloat16, GateUpLayout::kHalves>);
}

}  // namespace skein::kernels::cuda
