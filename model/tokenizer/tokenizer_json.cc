#include "model/tokenizer/tokenizer_json.h"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/json/json.h"
#include "base/status_macros.h"
#include "base/status_util.h"
#include "model/tokenizer/byte_alphabet.h"
#include "model/tokenizer/json_field.h"
#include "model/tokenizer/json_pipeline.h"

namespace skein::model {
namespace {

using Tokens = std::vector<BpeTokenizer::Token>;

// Gives `id` its bytes. False when it has some already.
bool SetToken(int32_t id, std::string bytes, bool special, Tokens& tokens) {
  if (static_cast<size_t>(id) >= tokens.size()) tokens.resize(id + 1);
  if (!tokens[id].bytes.empty()) return false;
  tokens[id] = {std::move(bytes), special};
  return true;
}

std::string BytesOf(const std::string& token, Spelling spelling) {
  // A token outside of the alphabet can only be an added one, or is never made.
  if (spelling == Spelling::kBytes) return UnspellBytes(token).value_or(token);
  if (const std::optional<uint8_t> byte = ByteOfToken(token)) {
    return std::string(1, static_cast<char>(*byte));
  }
  return UnmarkSpaces(token);
}

absl::StatusOr<Vocabulary> ReadVocabulary(const JsonField& model, Spelling spelling,
                                          Tokens& tokens) {
  SKEIN_ASSIGN_OR_RETURN(const JsonField field, model.Get("vocab"));
  if (!field.IsObject()) return field.Error("must be an object of tokens and ids");
  Vocabulary vocabulary;
  vocabulary.reserve(field.value().size());
  for (const auto& [token, value] : field.value().items()) {
    if (token.empty()) return field.Error("has an empty token");
    SKEIN_ASSIGN_OR_RETURN(
        const int32_t id,
        JsonField(value, absl::StrCat(field.path(), "[\"", token, "\"]")).Index(kMaxVocabSize));
    if (!SetToken(id, BytesOf(token, spelling), false, tokens)) {
      return field.Error(absl::StrCat("id ", id, " has two tokens, one of them \"", token, "\""));
    }
    vocabulary.emplace(token, id);
  }
  return vocabulary;
}

absl::StatusOr<std::pair<std::string, std::string>> ReadMerge(const JsonField& field) {
  if (field.IsString()) {
    SKEIN_ASSIGN_OR_RETURN(const std::string merge, field.String());
    const size_t space = merge.find(' ');
    if (space == std::string::npos || merge.find(' ', space + 1) != std::string::npos) {
      return field.Error("must be two tokens with a space between them");
    }
    return std::make_pair(merge.substr(0, space), merge.substr(space + 1));
  }
  SKEIN_ASSIGN_OR_RETURN(const std::vector<JsonField> sides, field.Elements());
  if (sides.size() != 2) return field.Error("must be a pair of tokens");
  SKEIN_ASSIGN_OR_RETURN(std::string left, sides[0].String());
  SKEIN_ASSIGN_OR_RETURN(std::string right, sides[1].String());
  return std::make_pair(std::move(left), std::move(right));
}

// What would change ids and is not supported must be null, false, zero or empty.
absl::Status RefuseUnlessEmpty(const JsonField& object, std::initializer_list<const char*> keys) {
  for (const char* key : keys) {
    SKEIN_ASSIGN_OR_RETURN(const bool has, object.Has(key));
    if (!has) continue;
    SKEIN_ASSIGN_OR_RETURN(const JsonField field, object.Get(key));
    const nlohmann::json& value = field.value();
    if (value == "" || value == 0 || value == false) continue;
    const absl::StatusOr<std::string> type = field.String("type");
    return field.Unimplemented(absl::StrCat(type.ok() ? absl::StrCat("type ", *type, " ") : "",
                                            "is not supported; make the tokenizer without it"));
  }
  return absl::OkStatus();
}

// The tokens of single bytes; every byte must have one, so that no text is unknown.
absl::StatusOr<std::array<int32_t, 256>> ReadByteTokens(const JsonField& model,
                                                        const Vocabulary& vocabulary) {
  SKEIN_ASSIGN_OR_RETURN(const bool fallback, model.Bool("byte_fallback", false));
  std::array<int32_t, 256> ids;
  ids.fill(-1);
  for (int byte = 0; byte < 256; ++byte) {
    const auto token = vocabulary.find(absl::StrFormat("<0x%02X>", byte));
    if (token != vocabulary.end()) ids[static_cast<size_t>(byte)] = token->second;
  }
  if (!fallback || std::find(ids.begin(), ids.end(), -1) != ids.end()) {
    return model.Unimplemented(
        "has characters that become unknown; only BPE of bytes, and with byte_fallback and a token "
        "for each byte, is supported");
  }
  return ids;
}

absl::StatusOr<Bpe> ReadModel(const JsonField& root, Spelling spelling, Vocabulary& vocabulary,
                              Tokens& tokens) {
  SKEIN_ASSIGN_OR_RETURN(const JsonField model, root.Get("model"));
  // Files of 2020 name no type.
  SKEIN_ASSIGN_OR_RETURN(const bool has_type, model.Has("type"));
  if (has_type) {
    SKEIN_ASSIGN_OR_RETURN(const std::string type, model.String("type"));
    if (type != "BPE") {
      return model.Unimplemented(absl::StrCat("type ", type, " is not supported, only BPE"));
    }
  }
  // unk_token and fuse_unk never matter: every byte has a token.
  SKEIN_RETURN_IF_ERROR(
      RefuseUnlessEmpty(model, {"dropout", "continuing_subword_prefix", "end_of_word_suffix"}));
  if (spelling == Spelling::kBytes) {
    SKEIN_RETURN_IF_ERROR(RefuseUnlessEmpty(model, {"byte_fallback"}));
  } else {
    SKEIN_RETURN_IF_ERROR(RefuseUnlessEmpty(model, {"ignore_merges"}));
  }
  SKEIN_ASSIGN_OR_RETURN(const bool ignore_merges, model.Bool("ignore_merges", false));
  SKEIN_ASSIGN_OR_RETURN(vocabulary, ReadVocabulary(model, spelling, tokens));

  SKEIN_ASSIGN_OR_RETURN(const JsonField merges_field, model.Get("merges"));
  SKEIN_ASSIGN_OR_RETURN(const std::vector<JsonField> elements, merges_field.Elements());
  std::vector<std::pair<std::string, std::string>> merges;
  merges.reserve(elements.size());
  for (const JsonField& element : elements) {
    SKEIN_ASSIGN_OR_RETURN(auto merge, ReadMerge(element));
    merges.push_back(std::move(merge));
  }
  std::array<int32_t, 256> bytes = {};
  if (spelling == Spelling::kCharacters) {
    SKEIN_ASSIGN_OR_RETURN(bytes, ReadByteTokens(model, vocabulary));
  }
  absl::StatusOr<Bpe> bpe =
      spelling == Spelling::kBytes
          ? Bpe::Create(vocabulary, merges, ignore_merges)
          : Bpe::CreateOfCharacters(vocabulary, merges, /*orders=*/{}, bytes, /*unknown=*/-1);
  if (!bpe.ok()) return Annotate(bpe.status(), model.path());
  return bpe;
}

absl::StatusOr<AddedToken> ReadAddedToken(const JsonField& field, const Vocabulary& vocabulary,
                                          Tokens& tokens) {
  AddedToken token;
  SKEIN_ASSIGN_OR_RETURN(token.content, field.String("content"));
  if (token.content.empty() || token.content.size() > kMaxAddedTokenBytes) {
    return field.Error(absl::StrCat("content has ", token.content.size(), " bytes, must have 1 to ",
                                    kMaxAddedTokenBytes));
  }
  SKEIN_ASSIGN_OR_RETURN(const JsonField id, field.Get("id"));
  SKEIN_ASSIGN_OR_RETURN(token.id, id.Index(kMaxVocabSize));
  SKEIN_ASSIGN_OR_RETURN(token.special, field.Bool("special", false));
  SKEIN_ASSIGN_OR_RETURN(token.lstrip, field.Bool("lstrip", false));
  SKEIN_ASSIGN_OR_RETURN(token.rstrip, field.Bool("rstrip", false));
  SKEIN_ASSIGN_OR_RETURN(token.normalized, field.Bool("normalized", !token.special));
  SKEIN_RETURN_IF_ERROR(RefuseUnlessEmpty(field, {"single_word"}));

  const auto known = vocabulary.find(token.content);
  if (known != vocabulary.end()) {
    if (known->second != token.id) {
      return id.Error(absl::StrCat("is ", token.id, ", but model.vocab gives \"", token.content,
                                   "\" the id ", known->second));
    }
    tokens[token.id] = {token.content, token.special};
  } else if (!SetToken(token.id, token.content, token.special, tokens)) {
    return id.Error(absl::StrCat(token.id, " is already the id of another token"));
  }
  return token;
}

absl::StatusOr<AddedTokens> ReadAddedTokens(const JsonField& root, const Vocabulary& vocabulary,
                                            Spelling spelling, Normalizer normalizer,
                                            Tokens& tokens) {
  std::vector<AddedToken> added;
  SKEIN_ASSIGN_OR_RETURN(const bool has, root.Has("added_tokens"));
  if (!has) return AddedTokens({}, std::move(normalizer));
  SKEIN_ASSIGN_OR_RETURN(const JsonField field, root.Get("added_tokens"));
  SKEIN_ASSIGN_OR_RETURN(const std::vector<JsonField> elements, field.Elements());
  for (const JsonField& element : elements) {
    SKEIN_ASSIGN_OR_RETURN(AddedToken token, ReadAddedToken(element, vocabulary, tokens));
    added.push_back(std::move(token));
  }
  std::vector<std::string_view> contents;
  for (const AddedToken& token : added) contents.push_back(token.content);
  std::sort(contents.begin(), contents.end());
  const auto twice = std::adjacent_find(contents.begin(), contents.end());
  if (twice != contents.end()) {
    return field.Error(absl::StrCat("\"", std::string(*twice), "\" is there twice"));
  }
  for (AddedToken& token : added) {
    if (token.normalized) {
      absl::StatusOr<std::string> content = normalizer.Apply(token.content);
      if (!content.ok()) return Annotate(content.status(), field.path());
      token.content = *std::move(content);
    }
    if (token.content.size() > kMaxAddedTokenBytes) {
      return field.Error(absl::StrCat("id ", token.id, " has ", token.content.size(),
                                      " bytes when it is normalised, may have ",
                                      kMaxAddedTokenBytes));
    }
    tokens[token.id].bytes =
        spelling == Spelling::kCharacters ? UnmarkSpaces(token.content) : token.content;
  }
  // Of tokens that are equal when they are normalised the first is found.
  absl::flat_hash_set<std::string> seen;
  std::erase_if(added, [&](const AddedToken& token) {
    return token.content.empty() || (token.normalized && !seen.insert(token.content).second);
  });
  return AddedTokens(std::move(added), std::move(normalizer));
}

absl::StatusOr<std::vector<int32_t>> ReadTemplateToken(const JsonField& processor,
                                                       const JsonField& piece, size_t vocab_size) {
  SKEIN_ASSIGN_OR_RETURN(const std::string name, piece.String("id"));
  SKEIN_ASSIGN_OR_RETURN(const JsonField tokens, processor.Get("special_tokens"));
  SKEIN_ASSIGN_OR_RETURN(const JsonField token, tokens.Get(name));
  SKEIN_ASSIGN_OR_RETURN(const JsonField ids, token.Get("ids"));
  SKEIN_ASSIGN_OR_RETURN(const std::vector<JsonField> elements, ids.Elements());
  std::vector<int32_t> result;
  for (const JsonField& element : elements) {
    SKEIN_ASSIGN_OR_RETURN(const int32_t id, element.Index(static_cast<int32_t>(vocab_size)));
    result.push_back(id);
  }
  return result;
}

// What the template puts before and after the text.
absl::Status ReadTemplate(const JsonField& processor, BpeTokenizer::Parts& parts) {
  SKEIN_ASSIGN_OR_RETURN(const JsonField single, processor.Get("single"));
  SKEIN_ASSIGN_OR_RETURN(const std::vector<JsonField> pieces, single.Elements());
  bool has_text = false;
  for (const JsonField& piece : pieces) {
    SKEIN_ASSIGN_OR_RETURN(const bool is_token, piece.Has("SpecialToken"));
    if (is_token) {
      SKEIN_ASSIGN_OR_RETURN(const JsonField token, piece.Get("SpecialToken"));
      SKEIN_ASSIGN_OR_RETURN(const std::vector<int32_t> ids,
                             ReadTemplateToken(processor, token, parts.tokens.size()));
      std::vector<int32_t>& side = has_text ? parts.suffix : parts.prefix;
      side.insert(side.end(), ids.begin(), ids.end());
      continue;
    }
    SKEIN_ASSIGN_OR_RETURN(const JsonField sequence, piece.Get("Sequence"));
    SKEIN_ASSIGN_OR_RETURN(const std::string id, sequence.String("id"));
    if (id != "A" || has_text) return sequence.Unimplemented("must be A, and there only once");
    has_text = true;
  }
  if (!has_text) return single.Unimplemented("has no Sequence: the text would be dropped");
  return absl::OkStatus();
}

absl::Status ReadPostProcessor(const JsonField& root, BpeTokenizer::Parts& parts) {
  SKEIN_ASSIGN_OR_RETURN(const bool has, root.Has("post_processor"));
  if (!has) return absl::OkStatus();
  SKEIN_ASSIGN_OR_RETURN(const JsonField field, root.Get("post_processor"));
  SKEIN_ASSIGN_OR_RETURN(const std::vector<JsonField> members, Flatten(field, "processors"));
  bool has_template = false;
  for (const JsonField& member : members) {
    SKEIN_ASSIGN_OR_RETURN(const std::string type, member.String("type"));
    if (type == "TemplateProcessing") {
      if (has_template) return member.Unimplemented("is a second template, only one is supported");
      has_template = true;
      SKEIN_RETURN_IF_ERROR(ReadTemplate(member, parts));
    } else if (type != "ByteLevel") {  // which changes offsets only
      return member.Unimplemented(
          absl::StrCat("type ", type, " is not supported, only TemplateProcessing and ByteLevel"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<BpeTokenizer>> ParseTokenizerJson(std::string_view json) {
  SKEIN_ASSIGN_OR_RETURN(const nlohmann::json document, ParseJson(json));
  const JsonField root(document, "");
  SKEIN_RETURN_IF_ERROR(RefuseUnlessEmpty(root, {"truncation", "padding"}));
  SKEIN_ASSIGN_OR_RETURN(Normalizer normalizer, ReadNormalizer(root));
  Spelling spelling;
  SKEIN_ASSIGN_OR_RETURN(PreTokenizer pre_tokenizer, ReadPreTokenizer(root, spelling));
  SKEIN_RETURN_IF_ERROR(CheckDecoder(root, spelling));
  Vocabulary vocabulary;
  Tokens tokens;
  SKEIN_ASSIGN_OR_RETURN(Bpe bpe, ReadModel(root, spelling, vocabulary, tokens));
  SKEIN_ASSIGN_OR_RETURN(AddedTokens added, ReadAddedTokens(root, vocabulary, spelling,
                                                            std::move(normalizer), tokens));
  BpeTokenizer::Parts parts = {
      std::move(added), std::move(pre_tokenizer), std::move(bpe), std::move(tokens), {}, {}};
  SKEIN_RETURN_IF_ERROR(ReadPostProcessor(root, parts));
  return std::make_unique<BpeTokenizer>(std::move(parts));
}

}  // namespace skein::model
