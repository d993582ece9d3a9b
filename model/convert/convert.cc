#include "model/convert/convert.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string_view>
#include <utility>

#include "absl/strings/ascii.h"
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
#include "model/tokenizer/tokenizer.h"
#include "model/tokenizer/tokenizer_config.h"

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

// The key of the token that a text begins with, and those of tokens that end an answer. `read` are
// those that a reader finds so far; what is left gets a key, too. Unimplemented: there are too
// many.
absl::Status WriteEnds(const std::vector<int32_t>& ends, const std::vector<int32_t>& read,
                       GgufMetadata::Values& metadata) {
  for (const int32_t id : ends) {
    if (std::find(read.begin(), read.end(), id) != read.end()) continue;
    bool written = false;
    for (const char* key : {"tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"}) {
      written = metadata.try_emplace(key, GgufUint32(id)).second;
      if (written) break;
    }
    if (!written) {
      return absl::UnimplementedError(
          absl::StrCat("a GGUF file has no word left for token ", id, ", which ends an answer"));
    }
  }
  return absl::OkStatus();
}

// Tokens that end an answer, by config.json and generation_config.json; first the one that
// tokenizer_config.json names.
absl::StatusOr<std::vector<int32_t>> FindEnds(const std::string& folder,
                                              const ModelConfig& config) {
  SKEIN_ASSIGN_OR_RETURN(const GenerationDefaults defaults, LoadGenerationDefaults(folder));
  std::vector<int32_t> ends = config.eos_token_ids;
  for (const int32_t id : defaults.eos_token_ids) {
    if (std::find(ends.begin(), ends.end(), id) == ends.end()) ends.push_back(id);
  }
  SKEIN_ASSIGN_OR_RETURN(const TokenizerConfig said, LoadTokenizerConfig(folder));
  if (said.eos_token.empty()) return ends;
  SKEIN_ASSIGN_OR_RETURN(const auto tokenizer, LoadTokenizer(folder));
  SKEIN_ASSIGN_OR_RETURN(
      const std::vector<int32_t> ids,
      tokenizer->Encode(said.eos_token, {.add_special_tokens = false, .parse_special = true}));
  if (ids.size() != 1) return ends;
  std::erase(ends, ids[0]);
  ends.insert(ends.begin(), ids[0]);
  return ends;
}

// llama.cpp looks for Phi-3's name, by which its tokens take the white space behind them.
std::string NameOf(const std::string& folder, std::string_view architecture) {
  std::error_code error;
  const std::string name = std::filesystem::weakly_canonical(folder, error).filename().string();
  const std::string lower = absl::AsciiStrToLower(name);
  const bool says = lower.find("phi-3") != lower.npos || lower.find("phi3") != lower.npos;
  return architecture == "phi3" && !says ? absl::StrCat("phi-3 ", name) : name;
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

absl::StatusOr<GgufModel> OpenAsGgufModel(const std::string& folder,
                                          std::optional<DType> matrices) {
  SKEIN_ASSIGN_OR_RETURN(const ModelConfig config, LoadModelConfig(folder));
  absl::StatusOr<GgufOfConfig> made = MakeGgufOfConfig(config);
  if (!made.ok()) return Annotate(made.status(), folder);
  GgufMetadata::Values metadata = std::move(made->metadata);
  const std::string architecture = metadata.at(std::string(kGgufArchitecture)).strings[0];
  SKEIN_ASSIGN_OR_RETURN(auto tensors, OpenAsGguf(folder, config, *made, architecture, matrices));

  std::vector<int32_t> ends;
  absl::StatusOr<GgufMetadata::Values> vocabulary = MakeGgufVocabulary(folder, config.vocab_size);
  if (vocabulary.ok()) {
    metadata.merge(*vocabulary);
    if (config.bos_token_id) {
      metadata.try_emplace(std::string(kGgufBosId), GgufUint32(*config.bos_token_id));
    }
    SKEIN_ASSIGN_OR_RETURN(ends, FindEnds(folder, config));
    if (!ends.empty()) metadata.try_emplace(std::string(kGgufEosId), GgufUint32(ends[0]));
  } else if (!absl::IsNotFound(vocabulary.status())) {
    return vocabulary.status();
  }
  SKEIN_ASSIGN_OR_RETURN(const std::optional<std::string> chat_template, LoadChatTemplate(folder));
  if (chat_template) metadata[std::string(kGgufChatTemplate)] = GgufText(*chat_template);
  metadata["general.type"] = GgufText("model");
  metadata["general.name"] = GgufText(NameOf(folder, architecture));
  metadata[std::string(kGgufFileType)] = GgufUint32(FileType(*tensors));
  metadata[std::string(kGgufQuantizationVersion)] = GgufUint32(2);

  SKEIN_ASSIGN_OR_RETURN(auto again, OpenAsGguf(folder, config, *made, architecture, matrices));
  absl::StatusOr<ModelConfig> read = ConfigOfGguf({GgufMetadata(metadata), std::move(again)});
  if (!read.ok()) return Annotate(read.status(), absl::StrCat(folder, ", as a GGUF file"));
  SKEIN_RETURN_IF_ERROR(Annotate(CheckSameMeaning(config, *read), folder));

  SKEIN_RETURN_IF_ERROR(Annotate(WriteEnds(ends, read->eos_token_ids, metadata), folder));
  return GgufModel{GgufMetadata(std::move(metadata)), std::move(tensors)};
}

absl::StatusOr<Converted> ConvertToGguf(const std::string& folder, const std::string& path,
                                        const ConvertOptions& options) {
  if (IsGgufPath(folder)) {
    return absl::InvalidArgumentError(absl::StrCat(folder, " is a GGUF file already"));
  }
  SKEIN_ASSIGN_OR_RETURN(const GgufModel model, OpenAsGgufModel(folder, options.matrices));
  Converted converted;
  for (const TensorInfo& tensor : model.tensors->tensors()) {
    converted.bytes += DTypeBytes(tensor.dtype, tensor.elements());
  }
  converted.tensors = static_cast<int64_t>(model.tensors->tensors().size());
  converted.has_vocabulary = model.metadata.Has(kGgufTokens);
  converted.has_chat_template = model.metadata.Has(kGgufChatTemplate);
  GgufWriteOptions write;
  write.max_file_bytes = options.max_file_bytes;
  if (options.on_progress) {
    write.on_progress = [&](int64_t written) { options.on_progress(written, converted.bytes); };
  }
  SKEIN_ASSIGN_OR_RETURN(converted.files,
                         WriteGguf(model.metadata.values(), *model.tensors, path, write));
  return converted;
}

}  // namespace skein::model
