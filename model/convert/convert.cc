#include "model/convert/convert.h"

#include <filesystem>
#include <memory>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/status_util.h"
#include "model/config/check_weights.h"
#include "model/config/gguf_of_config.h"
#include "model/config/model_config.h"
#include "model/convert/gguf_tensors.h"
#include "model/format/gguf.h"
#include "model/format/gguf_keys.h"
#include "model/format/gguf_writer.h"
#include "model/format/open.h"
#include "model/tokenizer/gguf_vocabulary.h"

namespace skein::model {
namespace {

// Numbers of general.file_type.
constexpr int64_t kAllF32 = 0;
constexpr int64_t kMostlyF16 = 1;
constexpr int64_t kMostlyBF16 = 32;

int64_t FileType(const TensorSource& tensors) {
  int64_t elements[3] = {};
  for (const TensorInfo& tensor : tensors.tensors()) {
    if (tensor.shape.size() < 2) continue;
    const int type = tensor.dtype == DType::kF16 ? 1 : tensor.dtype == DType::kBF16 ? 2 : 0;
    elements[type] += tensor.elements();
  }
  if (elements[2] > elements[1]) return kMostlyBF16;
  return elements[1] > 0 ? kMostlyF16 : kAllF32;
}

// Tokens that a text begins with and that end an answer, where the tokenizer did not say.
void WriteTokens(const ModelConfig& config, GgufMetadata::Values& metadata) {
  if (config.bos_token_id) {
    metadata.try_emplace(std::string(kGgufBosId), GgufUint32(*config.bos_token_id));
  }
  if (!config.eos_token_ids.empty()) {
    metadata.try_emplace(std::string(kGgufEosId), GgufUint32(config.eos_token_ids[0]));
  }
  if (config.eos_token_ids.size() > 1) {
    metadata.try_emplace("tokenizer.ggml.eot_token_id", GgufUint32(config.eos_token_ids[1]));
  }
}

absl::StatusOr<std::unique_ptr<TensorSource>> OpenAsGguf(const std::string& folder,
                                                         const ModelConfig& config,
                                                         const GgufOfConfig& made,
                                                         std::string_view architecture,
                                                         std::optional<DType> matrices) {
  SKEIN_ASSIGN_OR_RETURN(auto tensors, OpenTensorSource(folder));
  SKEIN_RETURN_IF_ERROR(CheckWeights(config, *tensors).status());
  return AsGgufTensors(std::move(tensors), config, std::string(architecture), made.tensors,
                       matrices);
}

}  // namespace

absl::StatusOr<Converted> ConvertToGguf(const std::string& folder, const std::string& path,
                                        const ConvertOptions& options) {
  if (IsGgufPath(folder)) {
    return absl::InvalidArgumentError(absl::StrCat(folder, " is a GGUF file already"));
  }
  std::error_code error;
  if (std::filesystem::exists(path, error)) {
    return absl::AlreadyExistsError(absl::StrCat(path, " is there already"));
  }
  SKEIN_ASSIGN_OR_RETURN(const ModelConfig config, LoadModelConfig(folder));
  absl::StatusOr<GgufOfConfig> made = MakeGgufOfConfig(config);
  if (!made.ok()) return Annotate(made.status(), folder);
  GgufMetadata::Values metadata = std::move(made->metadata);
  const std::string architecture = metadata.at(std::string(kGgufArchitecture)).strings[0];
  SKEIN_ASSIGN_OR_RETURN(auto tensors,
                         OpenAsGguf(folder, config, *made, architecture, options.matrices));

  Converted converted;
  absl::StatusOr<GgufMetadata::Values> vocabulary = MakeGgufVocabulary(folder, config.vocab_size);
  if (vocabulary.ok()) {
    metadata.merge(*vocabulary);
    converted.has_vocabulary = true;
    WriteTokens(config, metadata);
  } else if (!absl::IsNotFound(vocabulary.status())) {
    return vocabulary.status();
  }
  SKEIN_ASSIGN_OR_RETURN(const std::optional<std::string> chat_template, LoadChatTemplate(folder));
  if (chat_template) metadata["tokenizer.chat_template"] = GgufText(*chat_template);
  converted.has_chat_template = chat_template.has_value();
  metadata["general.type"] = GgufText("model");
  metadata["general.name"] =
      GgufText(std::filesystem::weakly_canonical(folder, error).filename().string());
  metadata["general.file_type"] = GgufUint32(FileType(*tensors));
  metadata["general.quantization_version"] = GgufUint32(2);

  SKEIN_ASSIGN_OR_RETURN(auto again,
                         OpenAsGguf(folder, config, *made, architecture, options.matrices));
  absl::StatusOr<ModelConfig> read = ConfigOfGguf({GgufMetadata(metadata), std::move(again)});
  if (!read.ok()) return Annotate(read.status(), absl::StrCat(folder, ", as a GGUF file"));
  SKEIN_RETURN_IF_ERROR(Annotate(CheckSameMeaning(config, *read), folder));

  for (const TensorInfo& tensor : tensors->tensors()) {
    converted.bytes += DTypeBytes(tensor.dtype, tensor.elements());
  }
  converted.tensors = static_cast<int64_t>(tensors->tensors().size());
  GgufWriteOptions write;
  write.max_file_bytes = options.max_file_bytes;
  if (options.on_progress) {
    write.on_progress = [&](int64_t written) { options.on_progress(written, converted.bytes); };
  }
  SKEIN_ASSIGN_OR_RETURN(converted.files, WriteGguf(metadata, *tensors, path, write));
  return converted;
}

}  // namespace skein::model
