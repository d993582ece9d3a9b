#include "model/format/quantized_matrix.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/quantized_blocks.h"
#include "base/status_macros.h"
#include "model/format/quantized_scales.h"

namespace skein::model {
namespace {

constexpr int64_t kCodes = 8;  // numbers of four bits in a word

absl::StatusOr<const TensorInfo*> FindMatrix(const TensorSource& stored, const std::string& name,
                                             DType dtype) {
  SKEIN_ASSIGN_OR_RETURN(const TensorInfo* tensor, stored.Find(name));
  if (tensor->shape.size() != 2 || tensor->dtype != dtype) {
    return TensorError(*tensor,
                       absl::StrCat("must be a matrix of ", std::string(DTypeName(dtype))));
  }
  return tensor;
}

// FP8 and INT8, whose blocks are a scale and 32 bytes.
class ByteMatrix final : public QuantizedMatrix {
 public:
  // `flipped` bits of the stored bytes make signed ones; words of `tensor` have `word_bytes` of
  // them.
  ByteMatrix(const TensorSource& stored, const TensorInfo& tensor, const Shape& shape,
             Scales scales, int64_t word_bytes, std::byte flipped)
      : QuantizedMatrix(shape),
        stored_(stored),
        tensor_(tensor),
        scales_(scales),
        word_bytes_(word_bytes),
        flipped_(flipped) {}

  absl::Status Read(Range rows, Range cols, absl::Span<std::byte> out) const override {
    SKEIN_ASSIGN_OR_RETURN(const OfGroups<float> scales, scales_.Read(rows, cols));
    std::vector<std::byte> bytes(static_cast<size_t>(rows.size() * cols.size()));
    const Range words = {cols.begin / word_bytes_, cols.end / word_bytes_};
    SKEIN_RETURN_IF_ERROR(stored_.Read(tensor_, {{rows, words}}, absl::MakeSpan(bytes)));
    const std::byte* from = bytes.data();
    std::byte* to = out.data();
    for (int64_t row = rows.begin; row < rows.end; ++row) {
      for (int64_t col = cols.begin; col < cols.end; col += kBlockCols) {
        const float scale = scales.At(row, col / scales_.tile_cols());
        std::memcpy(to, &scale, sizeof(scale));
        to += sizeof(scale);
        for (int64_t i = 0; i < kBlockCols; ++i, ++from, ++to) {
          *to = *from ^ flipped_;
          if (shape().dtype == DType::kFp8 && IsE4M3Nan(std::to_integer<uint8_t>(*to))) {
            return absl::InvalidArgumentError(
                absl::StrCat("holds a NaN at [", row, ", ", col + i, "]"));
          }
        }
      }
    }
    return absl::OkStatus();
  }

 private:
  const TensorSource& stored_;
  const TensorInfo& tensor_;
  const Scales scales_;
  const int64_t word_bytes_;
  const std::byte flipped_;
};

// Numbers of four bits, their scales and zero points, which classes of each form unpack.
class CodeMatrix : public QuantizedMatrix {
 public:
  // `group_of` each column where groups are no runs of `group_cols` columns; else empty.
  CodeMatrix(const TensorSource& stored, int64_t rows, int64_t cols, int64_t group_cols,
             std::vector<int32_t> group_of)
      : QuantizedMatrix({group_of.empty() ? DType::kInt4 : DType::kF16, rows, cols}),
        stored_(stored),
        group_cols_(group_cols),
        group_of_(std::move(group_of)) {}

  absl::Status Read(Range rows, Range cols, absl::Span<std::byte> out) const override {
    SKEIN_ASSIGN_OR_RETURN(const std::vector<uint8_t> codes, ReadCodes(rows, cols));
    Range groups = {cols.begin / group_cols_, CeilDiv(cols.end, group_cols_)};
    if (!group_of_.empty()) groups = {0, CeilDiv(shape().cols, group_cols_)};
    SKEIN_ASSIGN_OR_RETURN(const OfGroups<float> scales, ReadScales(rows, groups));
    SKEIN_ASSIGN_OR_RETURN(const OfGroups<uint8_t> zeros, ReadZeros(rows, groups));
    if (!group_of_.empty()) {
      WriteHalves(rows, cols, codes, scales, zeros, out);
      return absl::OkStatus();
    }
    return WriteBlocks(rows, cols, codes, scales, zeros, out);
  }

 protected:
  const TensorSource& stored() const { return stored_; }
  int64_t group_cols() const { return group_cols_; }

  // [rows, cols]
  virtual absl::StatusOr<std::vector<uint8_t>> ReadCodes(Range rows, Range cols) const = 0;
  virtual absl::StatusOr<OfGroups<float>> ReadScales(Range rows, Range groups) const = 0;
  virtual absl::StatusOr<OfGroups<uint8_t>> ReadZeros(Range rows, Range groups) const = 0;

 private:
  absl::Status WriteBlocks(Range rows, Range cols, const std::vector<uint8_t>& codes,
                           const OfGroups<float>& scales, const OfGroups<uint8_t>& zeros,
                           absl::Span<std::byte> out) const {
    const uint8_t* from = codes.data();
    std::byte* to = out.data();
    for (int64_t row = rows.begin; row < rows.end; ++row) {
      for (int64_t col = cols.begin; col < cols.end; col += kBlockCols, from += kBlockCols) {
        const int64_t group = col / group_cols_;
        const float scale = scales.At(row, group);
        if ((std::bit_cast<uint32_t>(scale) & 0xFFu) != 0) {
          return absl::InvalidArgumentError(
              absl::StrCat("the scale of row ", row, ", group ", group, ", is ", scale,
                           ", which needs more than 16 bits; Skein reads scales in F16 and BF16"));
        }
        const uint32_t word = Int4Scale(scale, zeros.At(row, group));
        std::memcpy(to, &word, sizeof(word));
        to += sizeof(word);
        for (int64_t i = 0; i < kBlockCols / 2; ++i, ++to) {
          *to = static_cast<std::byte>(from[i] | from[i + kBlockCols / 2] << 4);
        }
      }
    }
    return absl::OkStatus();
  }

  void WriteHalves(Range rows, Range cols, const std::vector<uint8_t>& codes,
                   const OfGroups<float>& scales, const OfGroups<uint8_t>& zeros,
                   absl::Span<std::byte> out) const {
    const uint8_t* from = codes.data();
    std::byte* to = out.data();
    for (int64_t row = rows.begin; row < rows.end; ++row) {
      for (int64_t col = cols.begin; col < cols.end; ++col, ++from, to += 2) {
        const int64_t group = group_of_[static_cast<size_t>(col)];
        const int above = *from - zeros.At(row, group);
        const uint16_t half = FloatToF16(scales.At(row, group) * static_cast<float>(above));
        std::memcpy(to, &half, sizeof(half));
      }
    }
  }

  const TensorSource& stored_;
  const int64_t group_cols_;
  const std::vector<int32_t> group_of_;
};

constexpr uint8_t CodeAt(uint32_t word, int64_t place) {
  return static_cast<uint8_t>(word >> (4 * place) & 15);
}

Range Words(Range elements) { return {elements.begin / kCodes, CeilDiv(elements.end, kCodes)}; }

// compressed-tensors' numbers, whose zero points, where there are none, are in their middle.
class PackedRows final : public CodeMatrix {
 public:
  PackedRows(const TensorSource& stored, const TensorInfo& words, int64_t cols, Scales scales,
             int64_t group_cols, const TensorInfo* zeros, std::vector<int32_t> group_of)
      : CodeMatrix(stored, words.shape[0], cols, group_cols, std::move(group_of)),
        words_(words),
        scales_(scales),
        zeros_(zeros) {}

 protected:
  absl::StatusOr<std::vector<uint8_t>> ReadCodes(Range rows, Range cols) const override {
    const Range of_cols = Words(cols);
    SKEIN_ASSIGN_OR_RETURN(const std::vector<uint32_t> words,
                           ReadAs<uint32_t>(stored(), words_, {{rows, of_cols}}));
    std::vector<uint8_t> codes;
    codes.reserve(static_cast<size_t>(rows.size() * cols.size()));
    for (int64_t row = 0; row < rows.size(); ++row) {
      const uint32_t* of_row = words.data() + row * of_cols.size();
      for (int64_t col = cols.begin; col < cols.end; ++col) {
        codes.push_back(CodeAt(of_row[col / kCodes - of_cols.begin], col % kCodes));
      }
    }
    return codes;
  }

  absl::StatusOr<OfGroups<float>> ReadScales(Range rows, Range groups) const override {
    return scales_.Read(rows, {groups.begin * group_cols(), groups.end * group_cols()});
  }

  absl::StatusOr<OfGroups<uint8_t>> ReadZeros(Range rows, Range groups) const override {
    OfGroups<uint8_t> zeros = {{}, rows, groups};
    zeros.values.resize(static_cast<size_t>(rows.size() * groups.size()), kCodes);
    if (zeros_ == nullptr) return zeros;
    const Range of_rows = Words(rows);
    SKEIN_ASSIGN_OR_RETURN(const std::vector<uint32_t> words,
                           ReadAs<uint32_t>(stored(), *zeros_, {{of_rows, groups}}));
    uint8_t* to = zeros.values.data();
    for (int64_t row = rows.begin; row < rows.end; ++row) {
      const uint32_t* of_row = words.data() + (row / kCodes - of_rows.begin) * groups.size();
      for (int64_t group = 0; group < groups.size(); ++group) {
        *to++ = CodeAt(of_row[group], row % kCodes);
      }
    }
    return zeros;
  }

 private:
  const TensorInfo& words_;
  const Scales scales_;
  const TensorInfo* const zeros_;
};

// AWQ's and GPTQ's, whose tensors' rows are columns of the matrix.
class PackedColumns final : public CodeMatrix {
 public:
  struct Tensors {
    const TensorInfo* words = nullptr;
    const TensorInfo* zeros = nullptr;
    const TensorInfo* scales = nullptr;
  };

  PackedColumns(const TensorSource& stored, const Tensors& tensors, int64_t rows, int64_t cols,
                std::vector<int32_t> group_of, bool awq, int32_t added_zero)
      : CodeMatrix(stored, rows, cols, cols / tensors.scales->shape[0], std::move(group_of)),
        tensors_(tensors),
        awq_(awq),
        added_zero_(added_zero) {}

 protected:
  absl::StatusOr<std::vector<uint8_t>> ReadCodes(Range rows, Range cols) const override {
    const Range of_rows = awq_ ? Words(rows) : rows;
    const Range of_cols = awq_ ? cols : Words(cols);
    SKEIN_ASSIGN_OR_RETURN(const std::vector<uint32_t> words,
                           ReadAs<uint32_t>(stored(), *tensors_.words, {{of_cols, of_rows}}));
    std::vector<uint8_t> codes(static_cast<size_t>(rows.size() * cols.size()));
    // Some columns of all rows at a time: what is read and what is written stay in a cache.
    for (int64_t first = cols.begin; first < cols.end; first += kBlockCols) {
      const int64_t last = std::min(first + kBlockCols, cols.end);
      for (int64_t row = rows.begin; row < rows.end; ++row) {
        uint8_t* to = codes.data() + (row - rows.begin) * cols.size() + first - cols.begin;
        for (int64_t col = first; col < last; ++col) {
          const int64_t r = (awq_ ? row / kCodes : row) - of_rows.begin;
          const int64_t c = (awq_ ? col : col / kCodes) - of_cols.begin;
          *to++ = CodeAt(words[static_cast<size_t>(c * of_rows.size() + r)],
                         awq_ ? PlaceOfRow(row) : col % kCodes);
        }
      }
    }
    return codes;
  }

  absl::StatusOr<OfGroups<float>> ReadScales(Range rows, Range groups) const override {
    SKEIN_ASSIGN_OR_RETURN(const std::vector<float> stored_scales,
                           ReadFloats(stored(), *tensors_.scales, {{groups, rows}}));
    OfGroups<float> scales = {{}, rows, groups};
    for (int64_t row = 0; row < rows.size(); ++row) {
      for (int64_t group = 0; group < groups.size(); ++group) {
        scales.values.push_back(stored_scales[static_cast<size_t>(group * rows.size() + row)]);
      }
    }
    return scales;
  }

  absl::StatusOr<OfGroups<uint8_t>> ReadZeros(Range rows, Range groups) const override {
    const Range of_rows = Words(rows);
    SKEIN_ASSIGN_OR_RETURN(const std::vector<uint32_t> words,
                           ReadAs<uint32_t>(stored(), *tensors_.zeros, {{groups, of_rows}}));
    OfGroups<uint8_t> zeros = {{}, rows, groups};
    for (int64_t row = rows.begin; row < rows.end; ++row) {
      for (int64_t group = 0; group < groups.size(); ++group) {
        const int64_t at = group * of_rows.size() + row / kCodes - of_rows.begin;
        zeros.values.push_back(static_cast<uint8_t>(
            CodeAt(words[static_cast<size_t>(at)], PlaceOfRow(row)) + added_zero_));
      }
    }
    return zeros;
  }

 private:
  // Which four bits of a word of 8 rows are a row's.
  int64_t PlaceOfRow(int64_t row) const {
    constexpr std::array<int64_t, kCodes> kAwq = {0, 4, 1, 5, 2, 6, 3, 7};
    return awq_ ? kAwq[static_cast<size_t>(row % kCodes)] : row % kCodes;
  }

  const Tensors tensors_;
  const bool awq_;
  const int32_t added_zero_;
};

// The groups of columns where they are no runs of `group_cols`; else empty.
absl::StatusOr<std::vector<int32_t>> ReadGroups(const TensorSource& stored, const std::string& name,
                                                int64_t cols, int64_t group_cols) {
  const absl::StatusOr<const TensorInfo*> tensor = stored.Find(name);
  if (!tensor.ok()) return std::vector<int32_t>();
  SKEIN_RETURN_IF_ERROR(CheckShape(**tensor, DType::kI32, {cols}));
  SKEIN_ASSIGN_OR_RETURN(std::vector<int32_t> groups,
                         ReadAs<int32_t>(stored, **tensor, {{Range{0, cols}}}));
  bool runs = true;
  for (int64_t col = 0; col < cols; ++col) {
    const int32_t group = groups[static_cast<size_t>(col)];
    if (group < 0 || group >= cols / group_cols) {
      return TensorError(**tensor, absl::StrCat("says group ", group, " of column ", col, ", of ",
                                                cols / group_cols));
    }
    runs &= group == col / group_cols;
  }
  return runs ? std::vector<int32_t>() : groups;
}

}  // namespace

absl::StatusOr<std::unique_ptr<QuantizedMatrix>> OpenBytes(const TensorSource& stored,
                                                           const std::string& name,
                                                           const QuantizationConfig& config) {
  SKEIN_ASSIGN_OR_RETURN(const TensorInfo* tensor, stored.Find(name + ".weight"));
  if (tensor->shape.size() != 2) return TensorError(*tensor, "must be a matrix");
  const int64_t rows = tensor->shape[0];
  const int64_t cols = tensor->shape[1];
  SKEIN_RETURN_IF_ERROR(CheckSizes(tensor->name, rows, cols));
  if (const auto zeros = stored.Find(name + ".weight_zero_point"); zeros.ok()) {
    return TensorError(**zeros, "is of a matrix of bytes; Skein reads those without");
  }
  absl::StatusOr<const TensorInfo*> scale = stored.Find(name + ".weight_scale_inv");
  if (!scale.ok()) scale = stored.Find(name + ".weight_scale");
  SKEIN_RETURN_IF_ERROR(scale.status());
  const bool fp8 = tensor->dtype == DType::kF8E4M3;
  SKEIN_ASSIGN_OR_RETURN(Scales scales,
                         Scales::Open(stored, **scale, rows, cols, fp8 ? config.tile_rows : 0,
                                      fp8 ? config.tile_cols : 0));
  const QuantizedMatrix::Shape shape = {fp8 ? DType::kFp8 : DType::kInt8, rows, cols};
  return std::make_unique<ByteMatrix>(stored, *tensor, shape, scales, 1, std::byte{0});
}

absl::StatusOr<std::unique_ptr<QuantizedMatrix>> OpenPackedRows(const TensorSource& stored,
                                                                const std::string& name) {
  SKEIN_ASSIGN_OR_RETURN(const TensorInfo* words,
                         FindMatrix(stored, name + ".weight_packed", DType::kI32));
  SKEIN_ASSIGN_OR_RETURN(const TensorInfo* shape, stored.Find(name + ".weight_shape"));
  SKEIN_RETURN_IF_ERROR(CheckShape(*shape, DType::kI64, {2}));
  SKEIN_ASSIGN_OR_RETURN(const std::vector<int64_t> sizes,
                         ReadAs<int64_t>(stored, *shape, {{Range{0, 2}}}));
  const int64_t rows = words->shape[0];
  const int64_t cols = sizes[1];
  SKEIN_RETURN_IF_ERROR(CheckSizes(words->name, rows, cols));
  const bool four_bits = words->shape[1] == cols / kCodes;
  if (sizes[0] != rows || (!four_bits && words->shape[1] != cols / 4)) {
    return TensorError(
        *words, absl::StrCat("holds no numbers of 4 or 8 bits of [", sizes[0], ", ", cols, "]"));
  }
  SKEIN_ASSIGN_OR_RETURN(const TensorInfo* scale, stored.Find(name + ".weight_scale"));
  SKEIN_ASSIGN_OR_RETURN(Scales scales, Scales::Open(stored, *scale, rows, cols, 0, 0));
  const absl::StatusOr<const TensorInfo*> zeros = stored.Find(name + ".weight_zero_point");
  if (!four_bits) {
    if (zeros.ok()) return TensorError(**zeros, "is of 8 bits; Skein reads those without");
    const QuantizedMatrix::Shape of_bytes = {DType::kInt8, rows, cols};
    return std::make_unique<ByteMatrix>(stored, *words, of_bytes, scales, 4, std::byte{0x80});
  }
  const int64_t group_cols = scales.tile_cols();
  if (zeros.ok()) {
    SKEIN_RETURN_IF_ERROR(
        CheckShape(**zeros, DType::kI32, {CeilDiv(rows, kCodes), cols / group_cols}));
  }
  SKEIN_ASSIGN_OR_RETURN(std::vector<int32_t> groups,
                         ReadGroups(stored, name + ".weight_g_idx", cols, group_cols));
  return std::make_unique<PackedRows>(stored, *words, cols, scales, group_cols,
                                      zeros.ok() ? *zeros : nullptr, std::move(groups));
}

absl::StatusOr<std::unique_ptr<QuantizedMatrix>> OpenPackedColumns(
    const TensorSource& stored, const std::string& name, const QuantizationConfig& config) {
  const bool awq = config.method == QuantizationConfig::Method::kAwq;
  PackedColumns::Tensors tensors;
  SKEIN_ASSIGN_OR_RETURN(tensors.words, FindMatrix(stored, name + ".qweight", DType::kI32));
  SKEIN_ASSIGN_OR_RETURN(tensors.zeros, stored.Find(name + ".qzeros"));
  SKEIN_ASSIGN_OR_RETURN(tensors.scales, stored.Find(name + ".scales"));
  const TensorInfo& scales = *tensors.scales;
  if (scales.shape.size() != 2 || scales.shape[0] < 1 || !IsWeight(scales.dtype)) {
    return TensorError(scales, "must be a matrix of floats, [groups, rows]");
  }
  const int64_t groups = scales.shape[0];
  const int64_t rows = scales.shape[1];
  const int64_t cols = tensors.words->shape[0] * (awq ? 1 : kCodes);
  SKEIN_RETURN_IF_ERROR(CheckSizes(tensors.words->name, rows, cols));
  if (rows % kCodes != 0) return TensorError(scales, "must have a multiple of 8 rows");
  const std::vector<int64_t> shape =
      awq ? std::vector{cols, rows / kCodes} : std::vector{cols / kCodes, rows};
  SKEIN_RETURN_IF_ERROR(CheckShape(*tensors.words, DType::kI32, shape));
  SKEIN_RETURN_IF_ERROR(CheckShape(*tensors.zeros, DType::kI32, {groups, rows / kCodes}));
  if (cols % groups != 0 || (groups > 1 && cols / groups % kBlockCols != 0)) {
    return absl::UnimplementedError(
        absl::StrCat("tensor '", scales.name, "' has ", groups, " groups of ", cols,
                     " columns; Skein reads groups of a multiple of ", kBlockCols));
  }
  if (groups > 1 && config.group_cols > 0 && cols / groups != config.group_cols) {
    return TensorError(
        scales, absl::StrCat("has ", groups, " groups of ", cols,
                             " columns, of which config.json has ", config.group_cols, " each"));
  }
  std::vector<int32_t> group_of;
  if (!awq) {
    SKEIN_ASSIGN_OR_RETURN(group_of, ReadGroups(stored, name + ".g_idx", cols, cols / groups));
  }
  return std::make_unique<PackedColumns>(stored, tensors, rows, cols, std::move(group_of), awq,
                                         config.added_zero);
}

}  // namespace skein::model
