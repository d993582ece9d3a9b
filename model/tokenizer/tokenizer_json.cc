#include "model/tokenizer/tokenizer_json.h"

#include <algorithm>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
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

using Tokens = std::vector<PipelineTokenizer::Token>;

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
  const std::optional<uint8_t> byte = ByteOfToken(token);
  if (byte && spelling == Spelling::kCharactersWithBytes) {
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

ByteIds FindByteIds(const Vocabulary& vocabulary) {
  ByteIds ids = kNoByteIds;
  for (int byte = 0; byte < 256; ++byte) {
    const auto token = vocabulary.find(absl::StrFormat("<0x%02X>", byte));
    if (token != vocabulary.end()) ids[static_cast<size_t>(byte)] = token->second;
  }
  return ids;
}

absl::StatusOr<Bpe::CharacterOptions> ReadCharacterOptions(const JsonField& model,
                                                           const Vocabulary& vocabulary) {
  Bpe::CharacterOptions options;
  SKEIN_ASSIGN_OR_RETURN(const bool fallback, model.Bool("byte_fallback", false));
  if (fallback) options.bytes = FindByteIds(vocabulary);
  SKEIN_ASSIGN_OR_RETURN(options.fuse_unknown, model.Bool("fuse_unk", false));
  SKEIN_ASSIGN_OR_RETURN(options.ignore_merges, model.Bool("ignore_merges", false));
  SKEIN_ASSIGN_OR_RETURN(const bool has_unknown, model.Has("unk_token"));
  if (!has_unknown) return options;
  SKEIN_ASSIGN_OR_RETURN(const std::string unknown, model.String("unk_token"));
  const auto token = vocabulary.find(unknown);
  if (token == vocabulary.end()) {
    return model.Error(absl::StrCat("unk_token \"", unknown, "\" is not in vocab"));
  }
  options.unknown = token->second;
  return options;
}

absl::StatusOr<Bpe> ReadBpe(const JsonField& model, Spelling spelling, Vocabulary& vocabulary,
                            Tokens& tokens) {
  SKEIN_RETURN_IF_ERROR(
      RefuseUnlessEmpty(model, {"dropout", "continuing_subword_prefix", "end_of_word_suffix"}));
  SKEIN_ASSIGN_OR_RETURN(vocabulary, ReadVocabulary(model, spelling, tokens));
  SKEIN_ASSIGN_OR_RETURN(const auto merges, ReadMerges(model));
  absl::StatusOr<Bpe> bpe;
  if (spelling == Spelling::kBytes) {
    // unk_token and fuse_unk never matter: every byte has a token.
    SKEIN_RETURN_IF_ERROR(RefuseUnlessEmpty(model, {"byte_fallback"}));
    SKEIN_ASSIGN_OR_RETURN(const bool ignore_merges, model.Bool("ignore_merges", false));
    bpe = Bpe::Create(vocabulary, merges, ignore_merges);
  } else {
    SKEIN_ASSIGN_OR_RETURN(Bpe::CharacterOptions options, ReadCharacterOptions(model, vocabulary));
    bpe = Bpe::CreateOfCharacters(vocabulary, merges, std::move(options));
  }
  if (!bpe.ok()) return Annotate(bpe.status(), model.path());
  return bpe;
}

absl::StatusOr<Unigram> ReadUnigram(const JsonField& model, Spelling spelling,
                                    Vocabulary& vocabulary, Tokens& tokens) {
  if (spelling == Spelling::kBytes) {
    return model.Unimplemented("type Unigram behind ByteLevel is not supported");
  }
  SKEIN_ASSIGN_OR_RETURN(const JsonField field, model.Get("vocab"));
  SKEIN_ASSIGN_OR_RETURN(const std::vector<JsonField> elements, field.Elements());
  if (elements.size() > kMaxVocabSize) {
    return field.Error(absl::StrCat("has ", elements.size(), " tokens, at most ", kMaxVocabSize));
  }
  std::vector<Unigram::Piece> pieces;
  double least = 0;
  for (const JsonField& element : elements) {
    SKEIN_ASSIGN_OR_RETURN(const std::vector<JsonField> pair, element.Elements());
    if (pair.size() != 2 || !pair[1].value().is_number()) {
      return element.Error("must be a token and its score");
    }
    Unigram::Piece& piece = pieces.emplace_back();
    SKEIN_ASSIGN_OR_RETURN(piece.text, pair[0].String());
    piece.id = static_cast<int32_t>(pieces.size()) - 1;
    piece.score = pair[1].value().get<double>();
    least = pieces.size() == 1 ? piece.score : std::min(least, piece.score);
    SetToken(piece.id, BytesOf(piece.text, spelling), false, tokens);
    vocabulary[piece.text] = piece.id;
  }
  Unigram::Options options;
  constexpr double kUnknownPenalty = 10;  // as in SentencePiece
  options.unknown_score = least - kUnknownPenalty;
  SKEIN_ASSIGN_OR_RETURN(const bool fallback, model.Bool("byte_fallback", false));
  if (fallback) options.bytes = FindByteIds(vocabulary);
  SKEIN_ASSIGN_OR_RETURN(const bool has_unknown, model.Has("unk_id"));
  if (has_unknown) {
    SKEIN_ASSIGN_OR_RETURN(const JsonField unknown, model.Get("unk_id"));
    SKEIN_ASSIGN_OR_RETURN(options.unknown, unknown.Index(static_cast<int32_t>(pieces.size())));
  }
  absl::StatusOr<Unigram> unigram = Unigram::Create(pieces, options);
  if (!unigram.ok()) return Annotate(unigram.status(), model.path());
  return unigram;
}

absl::StatusOr<std::variant<Bpe, Unigram>> ReadModel(const JsonField& root, Spelling spelling,
                                                     Vocabulary& vocabulary, Tokens& tokens) {
  SKEIN_ASSIGN_OR_RETURN(const JsonField model, root.Get("model"));
  // Files of 2020 name no type.
  SKEIN_ASSIGN_OR_RETURN(const bool has_type, model.Has("type"));
  std::string type = "BPE";
  if (has_type) {
    SKEIN_ASSIGN_OR_RETURN(type, model.String("type"));
  }
  if (type != "BPE" && type != "Unigram") {
    return model.Unimplemented(
        absl::StrCat("type ", type, " is not supported, only BPE and Unigram"));
  }
  SKEIN_ASSIGN_OR_RETURN(const bool fallback, model.Bool("byte_fallback", false));
  if (fallback && spelling == Spelling::kCharacters) {
    return model.Unimplemented("byte_fallback without the decoder ByteFallback is not supported");
  }
  if (type == "Unigram") return ReadUnigram(model, spelling, vocabulary, tokens);
  return ReadBpe(model, spelling, vocabulary, tokens);
}

absl::StatusOr<AddedToken> ReadAddedToken(const JsonField& field, const Vocabulary& vocabulary,
                                          Tokens& tokens) {
  SKEIN_ASSIGN_OR_RETURN(AddedToken token, ReadAddedToken(field));
  SKEIN_ASSIGN_OR_RETURN(const JsonField id, field.Get("id"));
  SKEIN_ASSIGN_OR_RETURN(token.id, id.Index(kMaxVocabSize));
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
      absl::StatusOr<Normalizer::Result> content = normalizer.Apply(token.content);
      if (!content.ok()) return Annotate(content.status(), field.path());
      token.content = std::move(content)->text;
    }
    if (token.content.size() > kMaxAddedTokenBytes) {
      return field.Error(absl::StrCat("id ", token.id, " has ", token.content.size(),
                                      " bytes when it is normalised, may have ",
                                      kMaxAddedTokenBytes));
    }
    tokens[token.id].bytes =
        spelling == Spelling::kBytes ? token.content : UnmarkSpaces(token.content);
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
absl::Status ReadTemplate(const JsonField& processor, PipelineTokenizer::Parts& parts) {
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

absl::Status ReadPostProcessor(const JsonField& root, PipelineTokenizer::Parts& parts) {
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

absl::StatusOr<std::unique_ptr<PipelineTokenizer>> ParseTokenizerJson(std::string_view json) {
  SKEIN_ASSIGN_OR_RETURN(const nlohmann::json document, ParseJson(json));
  const JsonField root(document, "");
  SKEIN_RETURN_IF_ERROR(RefuseUnlessEmpty(root, {"truncation", "padding"}));
  SKEIN_ASSIGN_OR_RETURN(Normalizer normalizer, ReadNormalizer(root));
  Spelling spelling;
  SKEIN_ASSIGN_OR_RETURN(PreTokenizer pre_tokenizer, ReadPreTokenizer(root, spelling));
  SKEIN_RETURN_IF_ERROR(CheckDecoder(root, spelling));
  Vocabulary vocabulary;
  Tokens tokens;
  SKEIN_ASSIGN_OR_RETURN(auto model, ReadModel(root, spelling, vocabulary, tokens));
  SKEIN_ASSIGN_OR_RETURN(AddedTokens added, ReadAddedTokens(root, vocabulary, spelling,
                                                            std::move(normalizer), tokens));
  PipelineTokenizer::Parts parts = {
      std::move(added), std::move(pre_tokenizer), std::move(model), std::move(tokens), {}, {}};
  SKEIN_RETURN_IF_ERROR(ReadPostProcessor(root, parts));
  return std::make_unique<PipelineTokenizer>(std::move(parts));
}

}  // namespace skein::model
