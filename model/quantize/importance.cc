#include "model/quantize/importance.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <limits>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "base/range.h"
#include "base/status_macros.h"
#include "base/status_util.h"
#include "model/format/gguf.h"
#include "model/format/gguf_writer.h"
#include "model/format/tensor_source.h"

namespace skein::model {
namespace {

constexpr char kType[] = "general.type";
constexpr char kImatrix[] = "imatrix";
constexpr char kDatasets[] = "imatrix.datasets";
constexpr char kChunkCount[] = "imatrix.chunk_count";
constexpr char kChunkSize[] = "imatrix.chunk_size";
constexpr std::string_view kSums = ".in_sum2";
constexpr std::string_view kCounts = ".counts";

// Tensors in F32, in memory.
class MemorySource final : public TensorSource {
 public:
  void Add(std::string name, std::vector<int64_t> shape, std::vector<float> values) {
    tensors_.push_back({std::move(name), DType::kF32, std::move(shape)});
    values_.push_back(std::move(values));
  }
  std::string_view description() const override { return "an importance matrix"; }
  absl::Span<const TensorInfo> tensors() const override { return tensors_; }

 protected:
  absl::Status ReadChecked(const TensorInfo& tensor, absl::Span<const Range> slice,
                           absl::Span<std::byte> out) const override {
    const std::vector<float>& values = values_[static_cast<size_t>(&tensor - tensors_.data())];
    const int64_t cols = tensor.shape.back();
    const Range in_row = slice.back();
    for (int64_t row = slice[0].begin; row < slice[0].end; ++row) {
      const auto bytes = static_cast<size_t>(in_row.size()) * sizeof(float);
      std::memcpy(out.data(), values.data() + row * cols + in_row.begin, bytes);
      out.remove_prefix(bytes);
    }
    return absl::OkStatus();
  }

 private:
  std::vector<TensorInfo> tensors_;
  std::vector<std::vector<float>> values_;
};

absl::StatusOr<std::vector<float>> ReadAll(const TensorSource& source, const TensorInfo& tensor) {
  if (tensor.dtype != DType::kF32 || tensor.shape.empty() || tensor.shape.size() > 2) {
    return absl::InvalidArgumentError(
        absl::StrCat("tensor '", tensor.name, "' is not of one or two dimensions in F32"));
  }
  std::vector<float> values(static_cast<size_t>(tensor.elements()));
  std::vector<Range> whole;
  for (const int64_t size : tensor.shape) whole.push_back({0, size});
  SKEIN_RETURN_IF_ERROR(source.Read(
      tensor, whole,
      absl::MakeSpan(reinterpret_cast<std::byte*>(values.data()), values.size() * sizeof(float))));
  for (const float value : values) {
    if (!(value >= 0) || !std::isfinite(value)) {
      return absl::InvalidArgumentError(
          absl::StrCat("tensor '", tensor.name, "' holds ", value, ", which no sum of squares is"));
    }
  }
  return values;
}

absl::StatusOr<ImportanceMatrix> Read(const GgufModel& file) {
  const absl::StatusOr<std::string_view> type = file.metadata.String(kType);
  if (!type.ok() || *type != kImatrix) {
    return absl::InvalidArgumentError(
        "this is no importance matrix (general.type is not 'imatrix'); `skein imatrix` writes one");
  }
  ImportanceMatrix matrix;
  if (const auto texts = file.metadata.Strings(kDatasets); texts.ok()) {
    matrix.texts.assign(texts->begin(), texts->end());
  }
  for (const auto& [key, value] :
       {std::pair{kChunkCount, &matrix.chunks}, std::pair{kChunkSize, &matrix.chunk_tokens}}) {
    if (!file.metadata.Has(key)) continue;
    SKEIN_ASSIGN_OR_RETURN(*value, file.metadata.Integer(key));
    if (*value < 0 || *value > std::numeric_limits<uint32_t>::max()) {
      return absl::InvalidArgumentError(absl::StrCat(key, " is ", *value));
    }
  }
  for (const TensorInfo& tensor : file.tensors->tensors()) {
    if (!tensor.name.ends_with(kSums)) continue;
    std::string name = tensor.name.substr(0, tensor.name.size() - kSums.size());
    SKEIN_ASSIGN_OR_RETURN(const TensorInfo* counts,
                           file.tensors->Find(absl::StrCat(name, std::string(kCounts))));
    Importance importance;
    SKEIN_ASSIGN_OR_RETURN(importance.sums, ReadAll(*file.tensors, tensor));
    SKEIN_ASSIGN_OR_RETURN(const std::vector<float> rows, ReadAll(*file.tensors, *counts));
    importance.cols = tensor.shape.back();
    for (const float count : rows) {
      if (count > 1e15f)
        return absl::InvalidArgumentError(absl::StrCat(name, ": ", count, " rows"));
      importance.counts.push_back(static_cast<int64_t>(count));
    }
    if (importance.experts() * importance.cols != tensor.elements()) {
      return absl::InvalidArgumentError(
          absl::StrCat("'", name, "' has ", importance.experts(), " counts for ",
                       tensor.elements() / std::max<int64_t>(importance.cols, 1), " experts"));
    }
    matrix.tensors.emplace(std::move(name), std::move(importance));
  }
  if (matrix.tensors.empty()) return absl::InvalidArgumentError("it holds nothing of any tensor");
  return matrix;
}

}  // namespace

absl::Status CheckNewImportance(const std::string& path) {
  if (!path.ends_with(".gguf")) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": its name does not end with .gguf"));
  }
  std::error_code error;
  if (std::filesystem::exists(path, error)) {
    return absl::AlreadyExistsError(absl::StrCat(path, " is there already"));
  }
  return CheckWritable(path);
}

absl::Status WriteImportance(const ImportanceMatrix& matrix, const std::string& path) {
  GgufMetadata::Values metadata;
  metadata[kType] = GgufText(kImatrix);
  metadata[kDatasets] = GgufTexts(matrix.texts);
  metadata[kChunkCount] = GgufUint32(matrix.chunks);
  metadata[kChunkSize] = GgufUint32(matrix.chunk_tokens);
  MemorySource source;
  for (const auto& [name, importance] : matrix.tensors) {
    const int64_t experts = importance.experts();
    source.Add(absl::StrCat(name, std::string(kCounts)), {experts, 1},
               {importance.counts.begin(), importance.counts.end()});
    source.Add(absl::StrCat(name, std::string(kSums)), {experts, importance.cols}, importance.sums);
  }
  return WriteGguf(metadata, source, path).status();
}

absl::StatusOr<ImportanceMatrix> ReadImportance(const std::string& path) {
  if (!IsGgufPath(path)) {
    return absl::InvalidArgumentError(
        absl::StrCat(path,
                     ": an importance matrix is a GGUF file (*.gguf); of an older imatrix.dat, "
                     "`llama-imatrix --in-file` makes one"));
  }
  SKEIN_ASSIGN_OR_RETURN(const GgufModel file, OpenGguf(path));
  absl::StatusOr<ImportanceMatrix> matrix = Read(file);
  if (!matrix.ok()) return Annotate(matrix.status(), path);
  return matrix;
}

std::vector<float> RelativeSquares(const Importance& importance, int64_t expert) {
  if (importance.counts[static_cast<size_t>(expert)] == 0) return {};
  const float* const sums = importance.sums.data() + expert * importance.cols;
  double mean = 0;
  for (int64_t col = 0; col < importance.cols; ++col) mean += sums[col];
  mean /= static_cast<double>(importance.cols);
  if (mean == 0) return {};
  constexpr double kLeast = 1e-3;
  std::vector<float> squares;
  for (int64_t col = 0; col < importance.cols; ++col) {
    squares.push_back(static_cast<float>(std::max(sums[col] / mean, kLeast)));
  }
  return squares;
}

}  // namespace skein::model
