#include "model/quantize/quantize.h"

#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/status_util.h"
#include "model/convert/convert.h"
#include "model/format/gguf.h"
#include "model/format/gguf_keys.h"
#include "model/format/gguf_writer.h"
#include "model/format/tensor_source.h"
#include "model/quantize/importance.h"
#include "model/quantize/quantized_tensors.h"
#include "model/quantize/recipes.h"

namespace skein::model {
namespace {

absl::StatusOr<GgufModel> Open(const std::string& model) {
  return IsGgufPath(model) ? OpenGguf(model) : OpenAsGgufModel(model, std::nullopt);
}

// What was counted per row, or per expert, has the tensor's shape.
absl::Status CheckImportance(const Importance& importance, const TensorInfo& tensor) {
  const int64_t experts = tensor.shape.size() == 3 ? tensor.shape[0] : 1;
  if (importance.cols == tensor.shape.back() && importance.experts() == experts) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "it is of another model: '", tensor.name, "' has ", experts, " x ", tensor.shape.back(),
      " inputs, and ", importance.experts(), " x ", importance.cols, " there"));
}

absl::Status CheckImportance(const ImportanceMatrix& matrix, const TensorSource& tensors) {
  for (const TensorInfo& tensor : tensors.tensors()) {
    const auto found = matrix.tensors.find(tensor.name);
    if (found != matrix.tensors.end()) {
      SKEIN_RETURN_IF_ERROR(CheckImportance(found->second, tensor));
    }
  }
  return absl::OkStatus();
}

// The type that the tensor gets.
absl::StatusOr<DType> Choose(const Recipe& recipe, const RecipeFacts& facts,
                             const TensorInfo& tensor) {
  if (!IsQuantized(tensor.dtype)) return TypeOf(recipe, facts, tensor);
  return absl::UnimplementedError(
      absl::StrCat("tensor '", tensor.name, "' is of ", std::string(DTypeName(tensor.dtype)),
                   " already, and would lose once more; quantise the model that it was made of"));
}

}  // namespace

absl::StatusOr<Quantized> QuantizeToGguf(const std::string& model, const std::string& path,
                                         const QuantizeOptions& options) {
  SKEIN_ASSIGN_OR_RETURN(const Recipe* recipe, FindRecipe(options.recipe));
  SKEIN_ASSIGN_OR_RETURN(GgufModel file, Open(model));
  absl::StatusOr<RecipeFacts> facts = FactsOf(file.metadata, *file.tensors);
  if (!facts.ok()) return Annotate(facts.status(), model);
  ImportanceMatrix importance;
  const bool has_importance = !options.importance_file.empty();
  if (has_importance) {
    SKEIN_ASSIGN_OR_RETURN(importance, ReadImportance(options.importance_file));
    SKEIN_RETURN_IF_ERROR(
        Annotate(CheckImportance(importance, *file.tensors), options.importance_file));
  }

  Quantized result;
  std::vector<DType> types;
  for (const TensorInfo& tensor : file.tensors->tensors()) {
    const absl::StatusOr<DType> type = Choose(*recipe, *facts, tensor);
    if (!type.ok()) return Annotate(type.status(), model);
    types.push_back(*type);
    result.weights += tensor.elements();
    result.bytes_before += DTypeBytes(tensor.dtype, tensor.elements());
    result.bytes += DTypeBytes(*type, tensor.elements());
    if (tensor.shape.size() > 1) result.elements[*type] += tensor.elements();
    if (*type == tensor.dtype) continue;
    if (has_importance && !importance.tensors.contains(tensor.name)) {
      result.without_importance.push_back(tensor.name);
    }
    if (tensor.shape.back() % BlockElements(recipe->base) != 0) {
      result.fallen_back.push_back(tensor.name);
    }
  }

  GgufMetadata::Values metadata = file.metadata.values();
  std::erase_if(metadata,
                [](const auto& entry) { return absl::StartsWith(entry.first, "split."); });
  metadata[std::string(kGgufFileType)] = GgufUint32(recipe->file_type);
  metadata[std::string(kGgufQuantizationVersion)] = GgufUint32(2);
  if (has_importance) {
    metadata["quantize.imatrix.file"] = GgufText(options.importance_file);
    metadata["quantize.imatrix.entries_count"] =
        GgufUint32(static_cast<int64_t>(importance.tensors.size()));
    metadata["quantize.imatrix.chunks_count"] = GgufUint32(importance.chunks);
    if (!importance.texts.empty()) {
      metadata["quantize.imatrix.dataset"] = GgufText(importance.texts[0]);
    }
  }
  const std::unique_ptr<TensorSource> quantized =
      AsQuantizedTensors(std::move(file.tensors), std::move(types),
                         has_importance ? &importance : nullptr, options.threads);
  GgufWriteOptions write;
  write.max_file_bytes = options.max_file_bytes;
  if (options.on_progress) {
    write.on_progress = [&](int64_t written) { options.on_progress(written, result.bytes); };
  }
  SKEIN_ASSIGN_OR_RETURN(result.files, WriteGguf(metadata, *quantized, path, write));
  return result;
}

}  // namespace skein::model
