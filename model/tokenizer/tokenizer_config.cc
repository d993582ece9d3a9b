#include "model/tokenizer/tokenizer_config.h"

#include <string>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/json/json.h"
#include "base/status_macros.h"
#include "model/tokenizer/json_field.h"
#include "model/tokenizer/json_pipeline.h"
#include "model/tokenizer/pipeline_tokenizer.h"

namespace skein::model {

absl::StatusOr<TokenizerConfig> ParseTokenizerConfig(std::string_view json) {
  SKEIN_ASSIGN_OR_RETURN(const nlohmann::json document, ParseJson(json));
  const JsonField root(document, "");
  TokenizerConfig config;
  SKEIN_ASSIGN_OR_RETURN(config.add_bos_token, root.Bool("add_bos_token", config.add_bos_token));
  SKEIN_ASSIGN_OR_RETURN(config.add_eos_token, root.Bool("add_eos_token", config.add_eos_token));
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
    config.added_tokens.push_back(std::move(token));
  }
  return config;
}

absl::StatusOr<std::vector<AddedToken>> ParseAddedTokens(std::string_view json) {
  SKEIN_ASSIGN_OR_RETURN(const nlohmann::json document, ParseJson(json));
  const JsonField root(document, "");
  if (!root.IsObject()) return root.Error("must be an object of tokens and ids");
  std::vector<AddedToken> tokens;
  for (const auto& [content, value] : document.items()) {
    AddedToken& token = tokens.emplace_back();
    const JsonField field(value, absl::StrCat("[\"", content, "\"]"));
    if (content.empty() || content.size() > kMaxAddedTokenBytes) {
      return field.Error(
          absl::StrCat("has ", content.size(), " bytes, must have 1 to ", kMaxAddedTokenBytes));
    }
    token.content = content;
    SKEIN_ASSIGN_OR_RETURN(token.id, field.Index(kMaxVocabSize));
  }
  return tokens;
}

}  // namespace skein::model
