#include "kernels/cuda/tensor_map.h"

#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>
#include <string>

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

// Of kDims dimensions, the innermost one of 64 elements or more of 16 bits. strides: in bytes, of
// the dimensions behind it.
template <size_t kDims>
absl::StatusOr<CUtensorMap> Encoded(DType dtype, const void* data,
                                    const std::array<cuuint64_t, kDims>& sizes,
                                    const std::array<cuuint64_t, kDims - 1>& strides,
                                    const std::array<cuuint32_t, kDims>& box,
                                    CUtensorMapL2promotion promotion, const std::string& what) {
  static const absl::StatusOr<Encode> encode = FindEncode();
  SKEIN_RETURN_IF_ERROR(encode.status());
  std::array<cuuint32_t, kDims> steps;
  steps.fill(1);
  CUtensorMap map;
  const CUresult code = (*encode)(
      &map,
      dtype == DType::kBF16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
      kDims, const_cast<void*>(data), sizes.data(), strides.data(), box.data(), steps.data(),
      CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, promotion,
      CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (code == CUDA_SUCCESS) return map;
  return absl::InvalidArgumentError(
      absl::StrCat("cuTensorMapEncodeTiled of ", what, ": error ", static_cast<int>(code)));
}

}  // namespace

absl::StatusOr<CUtensorMap> MapOf(DType dtype, const void* data, int64_t rows, int64_t cols,
                                  int64_t stride, int box_rows) {
  return Encoded<2>(dtype, data, {static_cast<cuuint64_t>(cols), static_cast<cuuint64_t>(rows)},
                    {static_cast<cuuint64_t>(stride) * 2}, {64, static_cast<cuuint32_t>(box_rows)},
                    CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                    absl::StrCat(rows, " x ", cols, ", rows ", stride, " apart"));
}

absl::StatusOr<CUtensorMap> PanelMapOf(DType dtype, const void* data, int64_t rows, int64_t cols,
                                       int box_rows, int box_panels) {
  constexpr int64_t kPanelCols = 64;
  // Of rows of 128 bytes a promotion to 256 would read the next panel's.
  return Encoded<3>(
      dtype, data,
      {kPanelCols, static_cast<cuuint64_t>(rows), static_cast<cuuint64_t>(cols / kPanelCols)},
      {static_cast<cuuint64_t>(cols) * 2, kPanelCols * 2},
      {kPanelCols, static_cast<cuuint32_t>(box_rows), static_cast<cuuint32_t>(box_panels)},
      CU_TENSOR_MAP_L2_PROMOTION_L2_128B, absl::StrCat("panels of ", rows, " x ", cols));
}

}  // namespace skein::kernels::cuda
