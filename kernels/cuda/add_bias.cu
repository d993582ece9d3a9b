#include "absl/strings/str_cat.h"
#include "kernels/cuda/add_bias.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/load_kernels.h"
#include "kernels/cuda/row_launch.cuh"
#include "kernels/cuda/vectors.cuh"

namespace skein::kernels::cuda {
namespace {

// Blocks (columns / 2048, rows); a thread has 8 columns of a row.
template <typename T>
__global__ void __launch_bounds__(kRowThreads) AddBiasKernel(AddBias op) {
  LetNextBegin();
  const int64_t vector = int64_t{blockIdx.x} * kRowThreads + threadIdx.x;
  const int64_t col = vector * kVector;
  if (col >= op.cols) return;
  const bool halves = op.layout == GateUpLayout::kHalves;
  float bias[kVector];
  LoadVector(op.bias + (halves ? col : vector % 2 * (op.cols / 2) + vector / 2 * kVector), bias);
  WaitForPrevious();
  for (int64_t row = blockIdx.y; row < op.rows; row += gridDim.y) {
    T* const at = static_cast<T*>(op.x) + row * op.stride + col;
    float x[kVector];
    LoadVector(at, x);
#pragma unroll
    for (int i = 0; i < kVector; ++i) x[i] += bias[i];
    StoreVector(at, x);
  }
}

}  // namespace

absl::Status Enqueue(const AddBias& op, Stream stream) {
  const int64_t multiple = op.layout == GateUpLayout::kHalves ? kVector : 2 * kVector;
  if (op.cols <= 0 || op.cols % multiple != 0 || op.stride % kVector != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "AddBias of ", op.cols, " columns: a multiple of ", multiple, ", and strides of 8"));
  }
  if (!Aligned16({op.x, op.bias})) {
    return absl::InvalidArgumentError("AddBias: operands are 16-byte aligned");
  }
  if (op.rows == 0) return absl::OkStatus();
  const LaunchShape shape = ShapeOfRows("AddBias", op.rows, op.cols);
  if (op.dtype == DType::kF32) return Launch(AddBiasKernel<float>, shape, stream, op);
  return With16BitType(op.dtype, [&]<typename T>(TypeTag<T>) {
    return Launch(AddBiasKernel<T>, shape, stream, op);
  });
}

const void* KernelOfAddBias() {
  return reinterpret_cast<const void*>(AddBiasKernel<__nv_bfloat16>);
}

}  // namespace skein::kernels::cuda
