// The files of a Hugging Face folder that describe a model, and a GGUF file's metadata.
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "base/json/json.h"
#include "base/status_macros.h"
#include "base/status_util.h"
#include "model/config/gguf_config.h"
#include "model/config/gguf_of_config.h"
#include "model/config/model_config.h"
#include "model/config/quantization_config.h"
#include "model/config/stored_types.h"
#include "model/format/gguf.h"
#include "model/format/gguf_keys.h"
#include "model/format/gguf_weights.h"
#include "model/format/open.h"

namespace skein::model {
namespace {

using nlohmann::json;

// Published ones have some 10 KB; tokenizer_config.json, with thousands of added tokens, some MB.
constexpr int64_t kMaxFileBytes = 16 << 20;

// The template of tokenizer_config.json: a string, or named ones of which "default" is meant.
absl::StatusOr<std::optional<std::string>> TemplateField(const json& config) {
  if (!config.is_object()) return absl::InvalidArgumentError("must be a JSON object");
  const json field = config.value("chat_template", json());
  if (field.is_null()) return std::nullopt;
  if (field.is_string()) return field.get<std::string>();
  if (!field.is_array()) {
    return absl::InvalidArgumentError(
        "chat_template must be a string or a list of objects with name and template");
  }
  for (const json& entry : field) {
    if (!entry.is_object() || !entry.contains("name") || !entry.contains("template") ||
        !entry["template"].is_string()) {
      return absl::InvalidArgumentError("an entry of chat_template must have name and template");
    }
    if (entry["name"] == "default") return entry["template"].get<std::string>();
  }
  return absl::InvalidArgumentError("chat_template is a list without the name 'default'");
}

}  // namespace

absl::StatusOr<ModelConfig> ConfigOfGguf(GgufModel model) {
  SKEIN_ASSIGN_OR_RETURN(const std::string text, ConfigJsonOfGguf(model));
  absl::StatusOr<ModelConfig> config = ParseModelConfig(text);
  if (!config.ok()) return Annotate(config.status(), "as its config.json would be");
  SKEIN_ASSIGN_OR_RETURN(config->rope.divisors,
                         RopeDivisorsOfGguf(model, config->rope.RotaryDim(config->head_dim) / 2));
  config->norm_offset = 0.0;  // gains are stored with it
  SKEIN_ASSIGN_OR_RETURN(const auto weights, AsHuggingFaceWeights(std::move(model)));
  config->stored = ReadStoredTypes(*weights, config->tie_word_embeddings);
  return config;
}

absl::StatusOr<ModelConfig> LoadModelConfig(const std::string& model) {
  if (IsGgufPath(model)) {
    SKEIN_ASSIGN_OR_RETURN(GgufModel file, OpenGguf(model));
    absl::StatusOr<ModelConfig> config = ConfigOfGguf(std::move(file));
    if (!config.ok()) return Annotate(config.status(), model);
    return config;
  }
  const std::string path = model + "/config.json";
  SKEIN_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMaxFileBytes));
  absl::StatusOr<ModelConfig> config = ParseModelConfig(text);
  if (!config.ok()) return Annotate(config.status(), path);
  SKEIN_ASSIGN_OR_RETURN(const std::optional<QuantizationConfig> quantization,
                         LoadQuantizationConfig(model));
  if (quantization) {
    SKEIN_ASSIGN_OR_RETURN(const auto weights, OpenTensorSource(model));
    config->stored = ReadStoredTypes(*weights, config->tie_word_embeddings);
  }
  return config;
}

absl::StatusOr<GenerationDefaults> LoadGenerationDefaults(const std::string& model) {
  if (IsGgufPath(model)) return GenerationDefaults{};
  const std::string path = model + "/generation_config.json";
  const absl::StatusOr<std::string> text = ReadFile(path, kMaxFileBytes);
  if (absl::IsNotFound(text.status())) return GenerationDefaults{};
  SKEIN_RETURN_IF_ERROR(text.status());
  absl::StatusOr<GenerationDefaults> defaults = ParseGenerationDefaults(*text);
  if (!defaults.ok()) return Annotate(defaults.status(), path);
  return defaults;
}

absl::StatusOr<std::optional<std::string>> LoadChatTemplate(const std::string& model) {
  if (IsGgufPath(model)) {
    SKEIN_ASSIGN_OR_RETURN(const GgufMetadata metadata, ReadGgufMetadata(model));
    if (!metadata.Has(kGgufChatTemplate)) return std::nullopt;
    const absl::StatusOr<std::string_view> text = metadata.String(kGgufChatTemplate);
    if (!text.ok()) return Annotate(text.status(), model);
    return std::string(*text);
  }
  absl::StatusOr<std::string> jinja = ReadFile(model + "/chat_template.jinja", kMaxFileBytes);
  if (jinja.ok()) return *std::move(jinja);
  if (!absl::IsNotFound(jinja.status())) return jinja.status();

  const std::string path = model + "/tokenizer_config.json";
  const absl::StatusOr<std::string> text = ReadFile(path, kMaxFileBytes);
  if (absl::IsNotFound(text.status())) return std::nullopt;
  SKEIN_RETURN_IF_ERROR(text.status());
  const absl::StatusOr<json> config = ParseJson(*text);
  if (!config.ok()) return Annotate(config.status(), path);
  absl::StatusOr<std::optional<std::string>> result = TemplateField(*config);
  if (!result.ok()) return Annotate(result.status(), path);
  return result;
}

}  // namespace skein::model
