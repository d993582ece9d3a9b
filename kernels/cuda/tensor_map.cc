#include "kernels/cuda/tensor_map.h"

#include <cuda_runtime_api.h>

#include <array>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/cuda_status.h"

namespace skein::kernels::cuda {
namespace {

using Encode = decltype(&cuTensorMapEncodeTiled);

// The driver is not linked: where it is missing, programs run all the same.
absl::StatusOr<Encode> FindEncode() {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found = {};
  SKEIN_CUDA_RETURN_IF_ERROR(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function,
                                                              12000, cudaEnableDefault, &found));
  if (found != cudaDriverEntryPointSuccess || function == nullptr) {
    return absl::UnimplementedError("the driver has no cuTensorMapEncodeTiled");
  }
  return reinterpret_cast<Encode>(function);
}

}  // namespace

absl::StatusOr<CUtensorMap> MapOf(DType dtype, const void* data, int64_t rows, int64_t cols,
                                  int64_t stride, int box_rows) {
  static const absl::StatusOr<Encode> encode = FindEncode();
  SKEIN_RETURN_IF_ERROR(encode.status());
  const std::array<cuuint64_t, 2> sizes = {static_cast<cuuint64_t>(cols),
                                           static_cast<cuuint64_t>(rows)};
  const std::array<cuuint64_t, 1> strides = {static_cast<cuuint64_t>(stride) * 2};
  const std::array<cuuint32_t, 2> box = {64, static_cast<cuuint32_t>(box_rows)};
  const std::array<cuuint32_t, 2> steps = {1, 1};
  CUtensorMap map;
  const CUresult code = (*encode)(
      &map,
      dtype == DType::kBF16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
      sizes.size(), const_cast<void*>(data), sizes.data(), strides.data(), box.data(), steps.data(),
      CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
      CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (code == CUDA_SUCCESS) return map;
  return absl::InvalidArgumentError(absl::StrCat("cuTensorMapEncodeTiled of ", rows, " x ", cols,
                                                 ", rows ", stride, " apart: error ",
                                                 static_cast<int>(code)));
}

}  // namespace skein::kernels::cuda
