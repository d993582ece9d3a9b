#include "model/format/quantized_weights.h"

#include <algorithm>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/status_util.h"
#include "model/format/quantized_matrix.h"

namespace skein::model {
namespace {

// What belongs to a matrix beside its main tensor, behind its name.
constexpr std::string_view kPartsOfMatrix[] = {
    ".weight_scale", ".weight_scale_inv",  ".weight_packed", ".weight_shape", ".weight_g_idx",
    ".qweight",      ".weight_zero_point", ".qzeros",        ".scales",       ".g_idx",
};
// What quantised activations and caches are scaled by.
constexpr std::string_view kOfActivations[] = {
    ".input_scale",      ".input_zero_point", ".output_scale", ".output_zero_point",
    ".activation_scale", ".kv_scale",         ".q_scale",      ".k_scale",
    ".v_scale",          ".q_zero_point",     ".k_zero_point", ".v_zero_point",
};

class BlockWeights final : public TensorSource {
 public:
  struct Tensor {
    TensorInfo info;
    const TensorInfo* plain = nullptr;  // a stored tensor, or
    std::unique_ptr<QuantizedMatrix> matrix;
  };

  // `tensors` are sorted by name.
  BlockWeights(std::unique_ptr<TensorSource> stored, std::vector<Tensor> tensors)
      : stored_(std::move(stored)), rows_(std::move(tensors)) {
    for (const Tensor& tensor : rows_) tensors_.push_back(tensor.info);
  }

  std::string_view description() const override { return stored_->description(); }
  absl::Span<const TensorInfo> tensors() const override { return tensors_; }
  std::vector<FileInfo> files() const override { return stored_->files(); }

 protected:
  absl::Status ReadChecked(const TensorInfo& tensor, absl::Span<const Range> slice,
                           absl::Span<std::byte> out) const override {
    const Tensor& own = rows_[static_cast<size_t>(&tensor - tensors_.data())];
    if (own.plain != nullptr) return stored_->Read(*own.plain, slice, out);
    return own.matrix->Read(slice[0], slice[1], out);
  }

 private:
  const std::unique_ptr<TensorSource> stored_;
  std::vector<Tensor> rows_;
  std::vector<TensorInfo> tensors_;
};

bool Cut(std::string_view name, std::string_view ending, std::string* begin) {
  if (!name.ends_with(ending)) return false;
  *begin = name.substr(0, name.size() - ending.size());
  return true;
}

// The matrix of which `tensor` is the main part in the method's forms; null where it is none.
absl::StatusOr<std::unique_ptr<QuantizedMatrix>> OpenMatrix(const TensorSource& stored,
                                                            const TensorInfo& tensor,
                                                            const QuantizationConfig& config,
                                                            std::string* name) {
  using Method = QuantizationConfig::Method;
  if (config.method == Method::kAwq || config.method == Method::kGptq) {
    if (Cut(tensor.name, ".qweight", name)) return OpenPackedColumns(stored, *name, config);
    return nullptr;
  }
  const bool compressed = config.method == Method::kCompressedTensors;
  const bool in_bytes =
      tensor.dtype == DType::kF8E4M3 || (compressed && tensor.dtype == DType::kI8);
  if (in_bytes && Cut(tensor.name, ".weight", name)) return OpenBytes(stored, *name, config);
  if (compressed && Cut(tensor.name, ".weight_packed", name)) {
    return OpenPackedRows(stored, *name);
  }
  return nullptr;
}

bool IsOfActivations(std::string_view name) {
  return std::any_of(std::begin(kOfActivations), std::end(kOfActivations),
                     [name](std::string_view ending) { return name.ends_with(ending); });
}

absl::Status CheckType(const TensorInfo& tensor) {
  if (IsWeight(tensor.dtype)) return absl::OkStatus();
  return absl::UnimplementedError(
      absl::StrCat("tensor '", tensor.name, "' is stored as ", std::string(DTypeName(tensor.dtype)),
                   "; Skein reads F32, F16 and BF16, and matrices that config.json describes by a "
                   "quantization_config"));
}

absl::StatusOr<std::vector<BlockWeights::Tensor>> FindTensors(const TensorSource& stored,
                                                              const QuantizationConfig& config) {
  std::vector<BlockWeights::Tensor> tensors;
  std::set<std::string, std::less<>> parts;
  for (const TensorInfo& tensor : stored.tensors()) {
    std::string name;
    SKEIN_ASSIGN_OR_RETURN(std::unique_ptr<QuantizedMatrix> matrix,
                           OpenMatrix(stored, tensor, config, &name));
    if (matrix == nullptr) continue;
    parts.insert(tensor.name);
    for (const std::string_view part : kPartsOfMatrix) parts.insert(name + std::string(part));
    const QuantizedMatrix::Shape& shape = matrix->shape();
    tensors.push_back(
        {{name + ".weight", shape.dtype, {shape.rows, shape.cols}}, nullptr, std::move(matrix)});
  }
  for (const TensorInfo& tensor : stored.tensors()) {
    if (parts.contains(tensor.name) || IsOfActivations(tensor.name)) continue;
    SKEIN_RETURN_IF_ERROR(CheckType(tensor));
    tensors.push_back({tensor, &tensor, nullptr});
  }
  std::sort(tensors.begin(), tensors.end(),
            [](const auto& a, const auto& b) { return a.info.name < b.info.name; });
  for (size_t i = 1; i < tensors.size(); ++i) {
    if (tensors[i - 1].info.name != tensors[i].info.name) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("tensor '", tensors[i].info.name, "' is there in two forms"));
  }
  return tensors;
}

}  // namespace

absl::StatusOr<std::unique_ptr<TensorSource>> AsBlockWeights(
    std::unique_ptr<TensorSource> stored, const std::optional<QuantizationConfig>& quantization) {
  const std::string source(stored->description());
  if (!quantization) {
    for (const TensorInfo& tensor : stored->tensors()) {
      SKEIN_RETURN_IF_ERROR(Annotate(CheckType(tensor), source));
    }
    return stored;
  }
  absl::StatusOr<std::vector<BlockWeights::Tensor>> tensors = FindTensors(*stored, *quantization);
  if (!tensors.ok()) return Annotate(tensors.status(), source);
  return std::make_unique<BlockWeights>(std::move(stored), *std::move(tensors));
}

}  // namespace skein::model
