#include "model/format/quantized_scales.h"

#include <array>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace skein::model {

absl::Status TensorError(const TensorInfo& tensor, const std::string& reason) {
  return absl::InvalidArgumentError(
      absl::StrCat("tensor '", tensor.name, "', ", std::string(DTypeName(tensor.dtype)), " ", "[",
                   absl::StrJoin(tensor.shape, ", "), "]", ", ", reason));
}

absl::Status CheckShape(const TensorInfo& tensor, DType dtype, const std::vector<int64_t>& shape) {
  if (tensor.dtype == dtype && tensor.shape == shape) return absl::OkStatus();
  return TensorError(tensor, absl::StrCat("must be ", std::string(DTypeName(dtype)), " [",
                                          absl::StrJoin(shape, ", "), "]"));
}

absl::Status CheckSizes(const std::string& name, int64_t rows, int64_t cols) {
  if (rows < 1) return absl::InvalidArgumentError(absl::StrCat("'", name, "' has no rows"));
  if (cols > 0 && cols % kBlockCols == 0) return absl::OkStatus();
  return absl::UnimplementedError(absl::StrCat("'", name, "' is quantised and has ", cols,
                                               " columns; Skein reads multiples of ", kBlockCols));
}

absl::StatusOr<std::vector<float>> ReadFloats(const TensorSource& stored, const TensorInfo& tensor,
                                              absl::Span<const Range> slice) {
  int64_t count = 1;
  for (const Range& range : slice) count *= range.size();
  std::vector<std::byte> bytes(static_cast<size_t>(DTypeBytes(tensor.dtype, count)));
  SKEIN_RETURN_IF_ERROR(stored.Read(tensor, slice, absl::MakeSpan(bytes)));
  std::vector<float> values(static_cast<size_t>(count));
  ConvertToFloat(tensor.dtype, bytes.data(), count, values.data());
  return values;
}

absl::StatusOr<Scales> Scales::Open(const TensorSource& stored, const TensorInfo& tensor,
                                    int64_t rows, int64_t cols, int64_t tile_rows,
                                    int64_t tile_cols) {
  if (tensor.dtype != DType::kF32 && tensor.dtype != DType::kF16 && tensor.dtype != DType::kBF16) {
    return TensorError(tensor, "must be F32, F16 or BF16");
  }
  Scales scales(stored, tensor);
  if (tensor.elements() == 1) {
    scales.tile_rows_ = rows;
    scales.tile_cols_ = cols;
    return scales;
  }
  const bool is_matrix = tensor.shape.size() == 2;
  const int64_t groups = is_matrix ? tensor.shape[1] : 1;
  if (tensor.shape.empty() || tensor.shape.size() > 2 || groups < 1) {
    return TensorError(tensor, "must have one or two dimensions");
  }
  const bool in_tiles = tile_rows > 0 && tile_cols > 0 &&
                        CeilDiv(rows, tile_rows) == tensor.shape[0] &&
                        CeilDiv(cols, tile_cols) == groups;
  if (!in_tiles && tensor.shape[0] == rows) {
    tile_rows = 1;
    tile_cols = cols % groups == 0 ? cols / groups : 0;
  }
  if (tile_rows < 1 || tile_cols < 1 || CeilDiv(rows, tile_rows) != tensor.shape[0] ||
      CeilDiv(cols, tile_cols) != groups) {
    return TensorError(tensor, absl::StrCat("are no scales of [", rows, ", ", cols, "]",
                                            tile_rows > 1 ? absl::StrCat(" in tiles of ", tile_rows,
                                                                         " x ", tile_cols)
                                                          : ""));
  }
  if (groups > 1 && tile_cols % kBlockCols != 0) {
    return absl::UnimplementedError(absl::StrCat("tensor '", tensor.name, "' has groups of ",
                                                 tile_cols, " columns; Skein reads multiples of ",
                                                 kBlockCols));
  }
  scales.tile_rows_ = tile_rows;
  scales.tile_cols_ = tile_cols;
  return scales;
}

absl::StatusOr<OfGroups<float>> Scales::Read(Range rows, Range cols) const {
  const Range of_rows = Tiles(rows, tile_rows_);
  const Range of_cols = Tiles(cols, tile_cols_);
  const std::array<Range, 2> both = {of_rows, of_cols};
  const std::vector<Range> one(tensor_->shape.size(), Range{0, 1});
  SKEIN_ASSIGN_OR_RETURN(
      std::vector<float> tiles,
      ReadFloats(*stored_, *tensor_,
                 tensor_->elements() == 1 ? absl::Span<const Range>(one)
                                          : absl::MakeConstSpan(both).first(one.size())));
  OfGroups<float> result = {std::move(tiles), of_rows, of_cols};
  if (tile_rows_ == 1) return result;
  OfGroups<float> spread = {{}, rows, of_cols};
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    for (int64_t col = of_cols.begin; col < of_cols.end; ++col) {
      spread.values.push_back(result.At(row / tile_rows_, col));
    }
  }
  return spread;
}

}  // namespace skein::model
