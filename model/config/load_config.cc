// The files of a Hugging Face folder that describe a model.
#include <string>

#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "base/json/json.h"
#include "base/status_macros.h"
#include "base/status_util.h"
#include "model/config/model_config.h"

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

absl::StatusOr<ModelConfig> LoadModelConfig(const std::string& folder) {
  const std::string path = folder + "/config.json";
  SKEIN_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMaxFileBytes));
  absl::StatusOr<ModelConfig> config = ParseModelConfig(text);
  if (!config.ok()) return Annotate(config.status(), path);
  return config;
}

absl::StatusOr<GenerationDefaults> LoadGenerationDefaults(const std::string& folder) {
  const std::string path = folder + "/generation_config.json";
  const absl::StatusOr<std::string> text = ReadFile(path, kMaxFileBytes);
  if (absl::IsNotFound(text.status())) return GenerationDefaults{};
  SKEIN_RETURN_IF_ERROR(text.status());
  absl::StatusOr<GenerationDefaults> defaults = ParseGenerationDefaults(*text);
  if (!defaults.ok()) return Annotate(defaults.status(), path);
  return defaults;
}

absl::StatusOr<std::optional<std::string>> LoadChatTemplate(const std::string& folder) {
  absl::StatusOr<std::string> jinja = ReadFile(folder + "/chat_template.jinja", kMaxFileBytes);
  if (jinja.ok()) return *std::move(jinja);
  if (!absl::IsNotFound(jinja.status())) return jinja.status();

  const std::string path = folder + "/tokenizer_config.json";
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
