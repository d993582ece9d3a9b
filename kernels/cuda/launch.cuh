// How kernels are started: on Hopper so that the next one on the stream may begin before this one
// ends.
//
// Every block of every kernel calls WaitForPrevious() before it touches what other kernels write.
// In front of its wait it reads only what no kernel of the stream writes, as weights: what the
// kernels before it wrote is sure to be seen behind the wait alone, even where they have ended.
//
// A kernel that fills the device calls LetNextBegin() behind its wait: all kernels before it have
// ended when the next one begins. A short one between two of these calls it first, so that the next
// one's blocks take each multiprocessor as the kernel before the short one leaves it, and fetch
// weights meanwhile. A kernel still ends behind all before it.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/dtype.h"
#include "base/stream.h"
#include "kernels/cuda/cuda_status.h"
#include "kernels/cuda/forms.h"

namespace skein::kernels::cuda {

__device__ inline void WaitForPrevious() {
  if constexpr (kHopper) asm volatile("griddepcontrol.wait;" ::: "memory");
}
__device__ inline void LetNextBegin() {
  if constexpr (kHopper) asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

// Whether kernels may read and write 16 bytes at once there; null is.
inline bool Aligned16(std::initializer_list<const void*> pointers) {
  uintptr_t bits = 0;
  for (const void* pointer : pointers) bits |= reinterpret_cast<uintptr_t>(pointer);
  return bits % 16 == 0;
}

struct LaunchShape {
  const char* name;  // for messages
  dim3 grid;
  dim3 block;
  size_t shared_bytes = 0;  // dynamic
  unsigned cluster = 1;     // blocks that run at once as a cluster; divides the grid's x
};

inline cudaLaunchAttribute ClusterOf(unsigned blocks) {
  cudaLaunchAttribute cluster;
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim = {blocks, 1, 1};
  return cluster;
}

// Bytes of dynamic shared memory that a kernel gets without asking: 48 KB less what it may have of
// its own.
inline constexpr size_t kDefaultSharedBytes = 32 * 1024;

template <typename... Params, typename... Args>
absl::Status Launch(void (*kernel)(Params...), const LaunchShape& shape, Stream stream,
                    Args&&... args) {
  if (shape.shared_bytes > kDefaultSharedBytes) {
    const cudaError_t code = cudaFuncSetAttribute(
        kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shape.shared_bytes));
    if (code != cudaSuccess) {
      return CudaStatus(
          code, absl::StrCat(shape.shared_bytes, " bytes of shared memory for ", shape.name));
    }
  }
  cudaLaunchAttribute attributes[2];
  unsigned count = 0;
  if (HopperForms()) {  // kernels of the other form do not wait
    cudaLaunchAttribute& overlap = attributes[count++];
    overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    overlap.val.programmaticStreamSerializationAllowed = 1;
  }
  if (shape.cluster > 1) attributes[count++] = ClusterOf(shape.cluster);
  cudaLaunchConfig_t config = {};
  config.gridDim = shape.grid;
  config.blockDim = shape.block;
  config.dynamicSmemBytes = shape.shared_bytes;
  config.stream = CudaStream(stream);
  config.attrs = attributes;
  config.numAttrs = count;
  const cudaError_t code = cudaLaunchKernelEx(&config, kernel, Params(std::forward<Args>(args))...);
  if (code == cudaSuccess) return absl::OkStatus();
  return CudaStatus(code, absl::StrCat("launch of ", shape.name));
}

template <typename T>
struct TypeTag {
  using type = T;
};

// Calls f(TypeTag<T>()) for the kernel's element type.
template <typename F>
absl::Status With16BitType(DType dtype, F&& f) {
  switch (dtype) {
    case DType::kBF16:
      return f(TypeTag<__nv_bfloat16>());
    case DType::kF16:
      return f(TypeTag<__half>());
    default:
      return absl::UnimplementedError(
          absl::StrCat("a kernel for ", std::string(DTypeName(dtype)), "; there are BF16 and F16"));
  }
}

// For a buffer that is either as the other operands are, T, or F32.
template <typename T, typename F>
absl::Status WithFloatOr(DType dtype, DType same, F&& f) {
  if (dtype == DType::kF32) return f(TypeTag<float>());
  if (dtype == same) return f(TypeTag<T>());
  return absl::UnimplementedError(absl::StrCat("a buffer of ", std::string(DTypeName(dtype)),
                                               " beside ", std::string(DTypeName(same)),
                                               "; it is that or F32"));
}

}  // namespace skein::kernels::cuda
