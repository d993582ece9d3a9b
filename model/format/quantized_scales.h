// The scales of a quantised checkpoint's matrices, and what is checked of the tensors of one.
// Internal to quantized_weights.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/dtype.h"
#include "base/range.h"
#include "base/status_macros.h"
#include "model/format/tensor_source.h"

namespace skein::model {

// So many columns have a block, whatever the type.
inline constexpr int64_t kBlockCols = BlockElements(DType::kInt4);
static_assert(BlockElements(DType::kFp8) == kBlockCols &&
              BlockElements(DType::kInt8) == kBlockCols);

constexpr int64_t CeilDiv(int64_t a, int64_t b) { return a / b + (a % b != 0 ? 1 : 0); }

// InvalidArgument: "tensor 'x', I32 [4, 8], <reason>".
absl::Status TensorError(const TensorInfo& tensor, const std::string& reason);
absl::Status CheckShape(const TensorInfo& tensor, DType dtype, const std::vector<int64_t>& shape);
// Of a matrix that is to be blocks.
absl::Status CheckSizes(const std::string& name, int64_t rows, int64_t cols);

// The slice's elements, T being what the tensor is stored as.
template <typename T>
absl::StatusOr<std::vector<T>> ReadAs(const TensorSource& stored, const TensorInfo& tensor,
                                      absl::Span<const Range> slice) {
  int64_t count = 1;
  for (const Range& range : slice) count *= range.size();
  std::vector<T> values(static_cast<size_t>(count));
  const absl::Span<std::byte> bytes(reinterpret_cast<std::byte*>(values.data()),
                                    values.size() * sizeof(T));
  SKEIN_RETURN_IF_ERROR(stored.Read(tensor, slice, bytes));
  return values;
}

// Those of a tensor of floats of any width.
absl::StatusOr<std::vector<float>> ReadFloats(const TensorSource& stored, const TensorInfo& tensor,
                                              absl::Span<const Range> slice);

// Those of rows and groups of columns that were read: [rows, groups].
template <typename T>
struct OfGroups {
  std::vector<T> values;
  Range rows;
  Range groups;

  T At(int64_t row, int64_t group) const {
    return values[static_cast<size_t>((row - rows.begin) * groups.size() + group - groups.begin)];
  }
};

// A scale for each tile of so many rows and columns.
class Scales {
 public:
  // `tensor` has one element, one a row, or one a tile; of `tile_rows` x `tile_cols`, or, where
  // these are 0, of one row and as many columns as come out even.
  static absl::StatusOr<Scales> Open(const TensorSource& stored, const TensorInfo& tensor,
                                     int64_t rows, int64_t cols, int64_t tile_rows,
                                     int64_t tile_cols);

  int64_t tile_cols() const { return tile_cols_; }

  // Those of all rows and columns.
  absl::StatusOr<OfGroups<float>> Read(Range rows, Range cols) const;

 private:
  Scales(const TensorSource& stored, const TensorInfo& tensor)
      : stored_(&stored), tensor_(&tensor) {}

  static Range Tiles(Range elements, int64_t tile) {
    return {elements.begin / tile, CeilDiv(elements.end, tile)};
  }

  const TensorSource* stored_;
  const TensorInfo* tensor_;
  int64_t tile_rows_ = 1;
  int64_t tile_cols_ = 1;
};

}  // namespace skein::model
