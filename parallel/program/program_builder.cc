#include "parallel/program/program_builder.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"

namespace skein::plan {

using kernels::WeightId;
using kernels::WeightSpec;

kernels::BufferId ProgramBuilder::AddBuffer(kernels::BufferSpec spec) {
  result_.program.buffers.push_back(std::move(spec));
  return static_cast<kernels::BufferId>(result_.program.buffers.size()) - 1;
}

absl::StatusOr<DType> ProgramBuilder::DTypeOf(const std::string& tensor,
                                              std::vector<int64_t> shape) const {
  if (tensors_ == nullptr) return config_.DTypeOf(tensor);
  SKEIN_ASSIGN_OR_RETURN(const model::TensorInfo* info, tensors_->Find(tensor));
  if (info->shape != shape) {
    return absl::InvalidArgumentError(
        absl::StrCat(std::string(tensors_->description()), ": tensor '", tensor, "' has shape [",
                     absl::StrJoin(info->shape, ", "), "], but config.json implies [",
                     absl::StrJoin(shape, ", "), "]"));
  }
  return info->dtype;
}

absl::StatusOr<WeightId> ProgramBuilder::AddMatrix(std::string name,
                                                   std::vector<MatrixSlice> slices,
                                                   int32_t inner_blocks, int64_t min_rows,
                                                   std::vector<int64_t> inner_bounds) {
  const WeightId id = static_cast<WeightId>(result_.program.weights.size());
  WeightSpec spec = {.kind = WeightSpec::Kind::kMatrix,
                     .inner_blocks = inner_blocks,
                     .inner_bounds = std::move(inner_bounds)};
  spec.cols = slices.front().cols.size();
  std::vector<WeightSpec::Part> parts;
  for (size_t i = 0; i < slices.size(); ++i) {
    MatrixSlice& slice = slices[i];
    SKEIN_ASSIGN_OR_RETURN(const DType dtype,
                           DTypeOf(slice.tensor, {slice.total_rows, slice.total_cols}));
    if (i == 0) spec.dtype = dtype;
    if (!slice.rows.empty()) {
      result_.parts.push_back({.weight = id,
                               .first_row = spec.rows,
                               .tensor = slice.tensor,
                               .slice = {slice.rows, slice.cols}});
    }
    spec.rows += slice.rows.size();
    if (!parts.empty() && parts.back().dtype == dtype) {
      parts.back().rows += slice.rows.size();
    } else if (!slice.rows.empty()) {
      parts.push_back({slice.rows.size(), dtype});
    }
  }
  if (parts.size() > 1) {
    parts.back().rows += std::max<int64_t>(min_rows - spec.rows, 0);
    spec.parts = std::move(parts);
  }
  spec.rows = std::max(spec.rows, min_rows);
  result_.program.weights.push_back({std::move(name), spec});
  return id;
}

absl::StatusOr<WeightId> ProgramBuilder::AddVector(std::vector<VectorSlice> slices, float add) {
  const WeightId id = static_cast<WeightId>(result_.program.weights.size());
  WeightSpec spec = {.kind = WeightSpec::Kind::kVector, .rows = 1, .dtype = DType::kF32};
  for (const VectorSlice& slice : slices) {
    SKEIN_RETURN_IF_ERROR(DTypeOf(slice.tensor, {slice.total_size}).status());
    spec.cols += slice.elements.size();
  }
  result_.program.weights.push_back({slices.front().tensor, spec});
  result_.vectors.push_back({id, std::move(slices), add});
  return id;
}

WeightId ProgramBuilder::AddConstant(std::string name, std::vector<float> values) {
  const WeightId id = static_cast<WeightId>(result_.program.weights.size());
  result_.program.weights.push_back({std::move(name),
                                     {.kind = WeightSpec::Kind::kVector,
                                      .rows = 1,
                                      .cols = static_cast<int64_t>(values.size()),
                                      .dtype = DType::kF32}});
  result_.constants.push_back({id, std::move(values)});
  return id;
}

}  // namespace skein::plan
