#include "model/quantize/quantize.h"

#include <algorithm>
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
  bool is_of_model = false;
  for (const TensorInfo& tensor : tensors.tensors()) {
    const auto found = matrix.tensors.find(tensor.name);
    if (found == matrix.tensors.end()) continue;
    SKEIN_RETURN_IF_ERROR(CheckImportance(found->second, tensor));
    is_of_model = true;
  }
  if (is_of_model) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("it is of another model: none of its ",
                                                 matrix.tensors.size(),
                                                 " tensors is one of this model's"));
}

absl::StatusOr<ChosenType> Choose(const Recipe& recipe, const RecipeFacts& facts,
                                  const TensorInfo& tensor) {
  if (!IsQuantized(tensor.dtype)) return TypeOf(recipe, facts, tensor);
  return absl::UnimplementedError(
      absl::StrCat("tensor '", tensor.name, "' is of ", std::string(DTypeName(tensor.dtype)),
                   " already, and would lose once more; quantise the model that it was made of"));
}

void Count(const TensorInfo& tensor, ChosenType chosen, Quantized& result) {
  result.weights += tensor.elements();
  result.bytes_before += DTypeBytes(tensor.dtype, tensor.elements());
  result.bytes += DTypeBytes(chosen.type, tensor.elements());
  if (tensor.shape.size() > 1) result.elements[chosen.type] += tensor.elements();
  if (chosen.type != chosen.meant) {
    result.fallen_back.push_back(absl::StrCat(tensor.name, ": ",
                                              std::string(DTypeName(chosen.type)), " for ",
                                              std::string(DTypeName(chosen.meant))));
  }
}

// Of a matrix that becomes smaller.
void CountImportance(const ImportanceMatrix& matrix, const TensorInfo& tensor,
                     const RecipeFacts& facts, Quantized& result) {
  const auto found = matrix.tensors.find(tensor.name);
  if (found != matrix.tensors.end()) {
    const std::vector<int64_t>& counts = found->second.counts;
    result.experts_without_importance += std::count(counts.begin(), counts.end(), 0);
  } else if (facts.tied || tensor.name != "token_embd.weight") {  // a table that nothing multiplies
    result.without_importance.push_back(tensor.name);
  }
}

GgufMetadata::Values MetadataOf(const GgufMetadata& original, const Recipe& recipe) {
  GgufMetadata::Values metadata = original.values();
  std::erase_if(metadata,
                [](const auto& entry) { return absl::StartsWith(entry.first, "split."); });
  metadata[std::string(kGgufFileType)] = GgufUint32(recipe.file_type);
  metadata[std::string(kGgufQuantizationVersion)] = GgufUint32(2);
  return metadata;
}

void TellImportance(const ImportanceMatrix& matrix, const std::string& file,
                    GgufMetadata::Values& metadata) {
  metadata["quantize.imatrix.file"] = GgufText(file);
  metadata["quantize.imatrix.entries_count"] =
      GgufUint32(static_cast<int64_t>(matrix.tensors.size()));
  metadata["quantize.imatrix.chunks_count"] = GgufUint32(matrix.chunks);
  if (!matrix.texts.empty()) metadata["quantize.imatrix.dataset"] = GgufText(matrix.texts[0]);
}

}  // namespace

absl::StatusOr<Quantized> QuantizeToGguf(const std::string& model, const std::string& path,
                                         const QuantizeOptions& options) {
  SKEIN_ASSIGN_OR_RETURN(const Recipe* recipe, FindRecipe(options.recipe));
  SKEIN_ASSIGN_OR_RETURN(GgufModel file, Open(model));
  absl::StatusOr<RecipeFacts> facts = FactsOf(file.metadata, *file.tensors);
  if (!facts.ok()) return Annotate(facts.status(), model);
  GgufMetadata::Values metadata = MetadataOf(file.metadata, *recipe);
  ImportanceMatrix importance;
  const bool has_importance = !options.importance_file.empty();
  if (has_importance) {
    SKEIN_ASSIGN_OR_RETURN(importance, ReadImportance(options.importance_file));
    SKEIN_RETURN_IF_ERROR(
        Annotate(CheckImportance(importance, *file.tensors), options.importance_file));
    TellImportance(importance, options.importance_file, metadata);
  }

  Quantized result;
  std::vector<DType> types;
  for (const TensorInfo& tensor : file.tensors->tensors()) {
    const absl::StatusOr<ChosenType> chosen = Choose(*recipe, *facts, tensor);
    if (!chosen.ok()) return Annotate(chosen.status(), model);
    types.push_back(chosen->type);
    Count(tensor, *chosen, result);
    if (has_importance && IsQuantized(chosen->type)) {
      CountImportance(importance, tensor, *facts, result);
    }
  }
  SKEIN_ASSIGN_OR_RETURN(
      const std::unique_ptr<TensorSource> quantized,
      AsQuantizedTensors(std::move(file.tensors), types, has_importance ? &importance : nullptr,
                         options.threads));
  GgufWriteOptions write;
  write.max_file_bytes = options.max_file_bytes;
  if (options.on_progress) {
    write.on_progress = [&](int64_t written) { options.on_progress(written, result.bytes); };
  }
  SKEIN_ASSIGN_OR_RETURN(result.files, WriteGguf(metadata, *quantized, path, write));
  return result;
}

}  // namespace skein::model
