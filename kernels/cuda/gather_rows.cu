#include "absl/strings/str_cat.h"
#include "kernels/cuda/gather_rows.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/load_kernels.h"
#include "kernels/cuda/row_launch.cuh"
#include "kernels/cuda/vectors.cuh"

namespace skein::kernels::cuda {
namespace {

// Blocks (columns / 2048, rows); a thread copies 8 columns of a row.
template <typename In, typename Out>
__global__ void __launch_bounds__(kRowThreads) GatherRowsKernel(GatherRows op) {
  WaitForPrevious();
  LetNextBegin();
  const int64_t col = (int64_t{blockIdx.x} * kRowThreads + threadIdx.x) * kVector;
  if (col >= op.cols) return;
  for (int64_t row = blockIdx.y; row < op.rows; row += gridDim.y) {
    const int64_t id = op.ids[row] - op.first_id;
    float x[kVector] = {};
    if (id >= 0 && id < op.count) {
      LoadVector(static_cast<const In*>(op.in) + id * op.in_stride + col, x);
    }
    StoreVector(static_cast<Out*>(op.out) + row * op.out_stride + col, x);
  }
}

}  // namespace

absl::Status Enqueue(const GatherRows& op, Stream stream) {
  if (op.cols <= 0 || (op.cols | op.in_stride | op.out_stride) % kVector != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("GatherRows of ", op.cols, " columns: these and strides are multiples of 8"));
  }
  if (!Aligned16({op.in, op.out})) {
    return absl::InvalidArgumentError("GatherRows: operands are 16-byte aligned");
  }
  if (op.rows == 0) return absl::OkStatus();
  const LaunchShape shape = ShapeOfRows("GatherRows", op.rows, op.cols);
  if (op.in_dtype == DType::kF32 && op.out_dtype == DType::kF32) {
    return Launch(GatherRowsKernel<float, float>, shape, stream, op);
  }
  return With16BitType(op.in_dtype, [&]<typename T>(TypeTag<T>) {
    return WithFloatOr<T>(op.out_dtype, op.in_dtype, [&]<typename Out>(TypeTag<Out>) {
      return Launch(GatherRowsKernel<T, Out>, shape, stream, op);
    });
  });
}

const void* KernelOfGatherRows() {
  return reinterpret_cast<const void*>(GatherRowsKernel<float, float>);
}

}  // namespace skein::kernels::cuda
