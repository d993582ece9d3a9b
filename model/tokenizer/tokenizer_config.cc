#include "model/tokenizer/tokenizer_config.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "base/json/json.h"
#include "base/status_macros.h"
#include "base/status_util.h"
#include "model/tokenizer/json_field.h"
#include "model/tokenizer/json_pipeline.h"
#include "model/tokenizer/pipeline_tokenizer.h"

namespace skein::model {
namespace {

// A token with a role: its content, or an object that has it. Empty: there is none.
absl::StatusOr<std::string> RoleToken(const JsonField& field) {
  if (field.IsObject()) return field.String("content");
  return field.String();
}

absl::Status ReadRoles(const JsonField& root, TokenizerConfig& config) {
  for (const auto& [name, token] :
       {std::pair<const char*, std::string*>("bos_token", &config.bos_token),
        {"eos_token", &config.eos_token},
        {"unk_token", nullptr},
        {"pad_token", nullptr}}) {
    SKEIN_ASSIGN_OR_RETURN(const bool has, root.Has(name));
    if (!has) continue;
    SKEIN_ASSIGN_OR_RETURN(const JsonField field, root.Get(name));
    SKEIN_ASSIGN_OR_RETURN(const std::string content, RoleToken(field));
    config.special_tokens.push_back(content);
    if (token != nullptr) *token = content;
  }
  for (const char* name : {"additional_special_tokens", "extra_special_tokens"}) {
    SKEIN_ASSIGN_OR_RETURN(const bool has, root.Has(name));
    if (!has) continue;
    SKEIN_ASSIGN_OR_RETURN(const JsonField list, root.Get(name));
    if (list.IsObject()) {
      for (const auto& [key, value] : list.value().items()) {
        SKEIN_ASSIGN_OR_RETURN(
            config.special_tokens.emplace_back(),
            RoleToken(JsonField(value, absl::StrCat(list.path(), "[\"", key, "\"]"))));
      }
      continue;
    }
    SKEIN_ASSIGN_OR_RETURN(const std::vector<JsonField> elements, list.Elements());
    for (const JsonField& element : elements) {
      SKEIN_ASSIGN_OR_RETURN(config.special_tokens.emplace_back(), RoleToken(element));
    }
  }
  return absl::OkStatus();
}

// Null: no token of `config` is like it.
const AddedToken* FindLike(const TokenizerConfig& config, const AddedToken& token) {
  for (const AddedToken& known : config.added_tokens) {
    if (known.content == token.content || known.id == token.id) return &known;
  }
  return nullptr;
}

// Published ones have up to some MB, with thousands of added tokens.
constexpr int64_t kMaxFileBytes = 16 << 20;

// A JSON file that may be missing: then it says nothing.
absl::StatusOr<std::string> ReadOptional(const std::string& path) {
  absl::StatusOr<std::string> text = ReadFile(path, kMaxFileBytes);
  if (absl::IsNotFound(text.status())) return "{}";
  return text;
}

}  // namespace

absl::StatusOr<TokenizerConfig> ParseTokenizerConfig(std::string_view json) {
  SKEIN_ASSIGN_OR_RETURN(const nlohmann::json document, ParseJson(json));
  const JsonField root(document, "");
  TokenizerConfig config;
  SKEIN_ASSIGN_OR_RETURN(config.add_bos_token, root.Bool("add_bos_token", config.add_bos_token));
  SKEIN_ASSIGN_OR_RETURN(config.add_eos_token, root.Bool("add_eos_token", config.add_eos_token));
  SKEIN_ASSIGN_OR_RETURN(config.legacy, root.Bool("legacy", config.legacy));
  SKEIN_ASSIGN_OR_RETURN(const bool has_prefix, root.Has("add_prefix_space"));
  if (has_prefix) {
    SKEIN_ASSIGN_OR_RETURN(config.add_prefix_space, root.Bool("add_prefix_space"));
  }
  SKEIN_RETURN_IF_ERROR(ReadRoles(root, config));
  SKEIN_ASSIGN_OR_RETURN(const bool has, root.Has("added_tokens_decoder"));
  if (!has) return config;
  SKEIN_ASSIGN_OR_RETURN(const JsonField added, root.Get("added_tokens_decoder"));
  if (!added.IsObject()) return added.Error("must be an object of ids and tokens");
  for (const auto& [key, value] : added.value().items()) {
    const JsonField field(value, absl::StrCat(added.path(), "[\"", key, "\"]"));
    AddedToken token;
    SKEIN_ASSIGN_OR_RETURN(token, ReadAddedToken(field));
    if (!absl::SimpleAtoi(key, &token.id) || token.id < 0 || token.id >= kMaxVocabSize) {
      return field.Error(absl::StrCat("is no id in [0, ", kMaxVocabSize, ")"));
    }
    if (const AddedToken* const like = FindLike(config, token)) {
      return field.Error(absl::StrCat("has the content or the id of another, \"", like->content,
                                      "\" of id ", like->id));
    }
    config.added_tokens.push_back(std::move(token));
  }
  return config;
}

absl::Status AddAddedTokens(std::string_view json, TokenizerConfig& config) {
  SKEIN_ASSIGN_OR_RETURN(const nlohmann::json document, ParseJson(json));
  const JsonField root(document, "");
  if (!root.IsObject()) return root.Error("must be an object of tokens and ids");
  for (const auto& [content, value] : document.items()) {
    const JsonField field(value, absl::StrCat("[\"", content, "\"]"));
    if (content.empty() || content.size() > kMaxAddedTokenBytes) {
      return field.Error(
          absl::StrCat("has ", content.size(), " bytes, must have 1 to ", kMaxAddedTokenBytes));
    }
    AddedToken token;
    token.content = content;
    SKEIN_ASSIGN_OR_RETURN(token.id, field.Index(kMaxVocabSize));
    token.special = std::find(config.special_tokens.begin(), config.special_tokens.end(),
                              content) != config.special_tokens.end();
    if (FindLike(config, token) == nullptr) config.added_tokens.push_back(std::move(token));
  }
  return absl::OkStatus();
}

absl::StatusOr<TokenizerConfig> LoadTokenizerConfig(const std::string& folder) {
  const std::string config_path = folder + "/tokenizer_config.json";
  SKEIN_ASSIGN_OR_RETURN(const std::string config_text, ReadOptional(config_path));
  absl::StatusOr<TokenizerConfig> config = ParseTokenizerConfig(config_text);
  if (!config.ok()) return Annotate(config.status(), config_path);
  const std::string added_path = folder + "/added_tokens.json";
  SKEIN_ASSIGN_OR_RETURN(const std::string added_text, ReadOptional(added_path));
  SKEIN_RETURN_IF_ERROR(Annotate(AddAddedTokens(added_text, *config), added_path));
  return config;
}

}  // namespace skein::model
