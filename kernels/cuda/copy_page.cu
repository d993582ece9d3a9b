#include <algorithm>

#include "kernels/cuda/copy_page.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/load_kernels.h"

namespace skein::kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kChunkBytes = 16;
// Blocks of a layer: enough that a link to the host is full, few enough that other kernels run.
constexpr int64_t kMaxBlocks = 8;

// Blocks (part of the page, layer).
__global__ void __launch_bounds__(kThreads) CopyPageKernel(CopyPage op) {
  WaitForPrevious();
  LetNextBegin();
  const auto* const from =
      reinterpret_cast<const int4*>(op.from + int64_t{blockIdx.y} * op.from_layer_stride);
  auto* const to = reinterpret_cast<int4*>(op.to + int64_t{blockIdx.y} * op.to_layer_stride);
  const int64_t stride = int64_t{gridDim.x} * kThreads;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < op.page_bytes / kChunkBytes;
       i += stride) {
    to[i] = from[i];
  }
}

}  // namespace

absl::Status Enqueue(const CopyPage& op, Stream stream) {
  if (!Aligned16({op.from, op.to}) ||
      (op.from_layer_stride | op.to_layer_stride | op.page_bytes) % kChunkBytes != 0) {
    return absl::InvalidArgumentError("CopyPage: pages and strides are multiples of 16 bytes");
  }
  if (op.layers == 0 || op.page_bytes == 0) return absl::OkStatus();
  const int64_t chunks = op.page_bytes / kChunkBytes;
  const LaunchShape shape = {
      "CopyPage",
      dim3(static_cast<unsigned>(std::min((chunks + kThreads - 1) / kThreads, kMaxBlocks)),
           static_cast<unsigned>(op.layers)),
      dim3(kThreads)};
  return Launch(CopyPageKernel, shape, stream, op);
}

const void* KernelOfCopyPage() { return reinterpret_cast<const void*>(CopyPageKernel); }

}  // namespace skein::kernels::cuda
