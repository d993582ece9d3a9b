#include "model/tokenizer/tokenizer_json.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <initializer_list>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "base/json/json.h"
#include "base/status_macros.h"
#include "base/status_util.h"
#include "model/tokenizer/byte_alphabet.h"
#include "model/tokenizer/json_field.h"

namespace skein::model {
namespace {

using Tokens = std::vector<BpeTokenizer::Token>;

// How tokens are spelled.
enum class Spelling {
  kBytes,       // by the alphabet of byte_alphabet.h
  kCharacters,  // as they are, with marks for spaces; "<0x0A>" is a byte
};

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

// A pattern's text, and whether it is a regular expression.
struct Pattern {
  std::string text;
  bool is_regex = false;
};
absl::StatusOr<Pattern> ReadPattern(const JsonField& field) {
  SKEIN_ASSIGN_OR_RETURN(const JsonField pattern, field.Get("pattern"));
  SKEIN_ASSIGN_OR_RETURN(const bool is_regex, pattern.Has("Regex"));
  SKEIN_ASSIGN_OR_RETURN(std::string text, pattern.String(is_regex ? "Regex" : "String"));
  return Pattern{std::move(text), is_regex};
}
absl::StatusOr<Regex> CompilePattern(const JsonField& field) {
  SKEIN_ASSIGN_OR_RETURN(const Pattern pattern, ReadPattern(field));
  absl::StatusOr<Regex> regex = Regex::Compile(pattern.text, /*literal=*/!pattern.is_regex);
  if (!regex.ok()) return Annotate(regex.status(), absl::StrCat(field.path(), ".pattern"));
  return regex;
}

absl::StatusOr<PreTokenizerStep> ReadSplit(const JsonField& field) {
  PreTokenizerStep step;
  SKEIN_ASSIGN_OR_RETURN(step.regex, CompilePattern(field));
  SKEIN_ASSIGN_OR_RETURN(const bool invert, field.Bool("invert"));
  SKEIN_ASSIGN_OR_RETURN(const std::string behavior, field.String("behavior"));
  constexpr std::pair<std::string_view, SplitBehavior> kBehaviors[] = {
      {"Isolated", SplitBehavior::kIsolated},
      {"Removed", SplitBehavior::kRemoved},
      {"MergedWithPrevious", SplitBehavior::kMergedWithPrevious},
      {"MergedWithNext", SplitBehavior::kMergedWithNext},
      {"Contiguous", SplitBehavior::kContiguous},
  };
  const auto found = std::find_if(std::begin(kBehaviors), std::end(kBehaviors),
                                  [&](const auto& known) { return known.first == behavior; });
  if (found == std::end(kBehaviors)) {
    return field.Error(absl::StrCat("behavior ", behavior,
                                    " is none of Isolated, Removed, MergedWithPrevious, "
                                    "MergedWithNext and Contiguous"));
  }
  step.behavior = found->second;
  if (step.behavior != SplitBehavior::kIsolated && step.behavior != SplitBehavior::kRemoved &&
      step.regex->MatchesEmpty()) {
    return field.Unimplemented(
        absl::StrCat("behavior ", behavior, " with a pattern that matches nothing, too"));
  }
  if (!invert || step.behavior == SplitBehavior::kIsolated) return step;
  if (step.behavior != SplitBehavior::kRemoved) {
    return field.Unimplemented(
        absl::StrCat("behavior ", behavior, " with invert is not supported"));
  }
  step.behavior = SplitBehavior::kGapsRemoved;
  return step;
}

absl::StatusOr<PreTokenizerStep> ReadMetaspace(const JsonField& field) {
  using Prefix = PreTokenizerStep::Prefix;
  PreTokenizerStep step;
  SKEIN_ASSIGN_OR_RETURN(step.space_mark, field.String("replacement"));
  if (step.space_mark != kSpaceMark) {
    return field.Unimplemented(absl::StrCat("replacement \"", step.space_mark,
                                            "\" is not supported, only \"", std::string(kSpaceMark),
                                            "\""));
  }
  SKEIN_ASSIGN_OR_RETURN(const bool has_scheme, field.Has("prepend_scheme"));
  std::string scheme = "always";
  if (has_scheme) {
    SKEIN_ASSIGN_OR_RETURN(scheme, field.String("prepend_scheme"));
  } else {  // files before 0.14
    SKEIN_ASSIGN_OR_RETURN(const bool before, field.Bool("add_prefix_space", true));
    if (!before) scheme = "never";
  }
  if (scheme == "always" || scheme == "first") {
    step.prefix = scheme == "always" ? Prefix::kAlways : Prefix::kFirst;
  } else if (scheme != "never") {
    return field.Error(
        absl::StrCat("prepend_scheme ", scheme, " is none of always, first and never"));
  }
  SKEIN_ASSIGN_OR_RETURN(const bool split, field.Bool("split", true));
  if (split) {
    SKEIN_ASSIGN_OR_RETURN(step.regex, Regex::Compile(kSpaceMark, /*literal=*/true));
    step.behavior = SplitBehavior::kMergedWithNext;
  }
  return step;
}

absl::StatusOr<PreTokenizerStep> ReadDigits(const JsonField& field) {
  PreTokenizerStep step;
  SKEIN_ASSIGN_OR_RETURN(const bool individual, field.Bool("individual_digits"));
  // Digits are numbers of any kind. The library takes them from its compiler's Unicode, which may
  // be newer: 0.23.3 knows 13 more, of Unicode 17.
  SKEIN_ASSIGN_OR_RETURN(step.regex,
                         Regex::Compile(individual ? R"(\p{N})" : R"(\p{N}+)", /*literal=*/false));
  return step;
}

absl::StatusOr<PreTokenizerStep> ReadByteLevel(const JsonField& field) {
  PreTokenizerStep step;
  SKEIN_ASSIGN_OR_RETURN(const bool prefix, field.Bool("add_prefix_space"));
  if (prefix) step.prefix = PreTokenizerStep::Prefix::kAlways;
  SKEIN_ASSIGN_OR_RETURN(const bool use_regex, field.Bool("use_regex", true));
  if (use_regex) {
    SKEIN_ASSIGN_OR_RETURN(step.regex, Regex::Compile(kGpt2Pattern, /*literal=*/false));
  }
  return step;
}

// The processors in `field`, with those of a Sequence in its place; `list` is where the Sequence
// has them.
absl::StatusOr<std::vector<JsonField>> Flatten(const JsonField& field, const std::string& list) {
  SKEIN_ASSIGN_OR_RETURN(const std::string type, field.String("type"));
  if (type != "Sequence") return std::vector<JsonField>{field};
  SKEIN_ASSIGN_OR_RETURN(const JsonField members, field.Get(list));
  return members.Elements();
}

absl::StatusOr<Normalizer::Step> ReadNormalizerStep(const JsonField& field) {
  SKEIN_ASSIGN_OR_RETURN(const std::string type, field.String("type"));
  if (type == "NFC") return Normalizer::Form::kNfc;
  if (type == "NFD") return Normalizer::Form::kNfd;
  if (type == "NFKC") return Normalizer::Form::kNfkc;
  if (type == "NFKD") return Normalizer::Form::kNfkd;
  if (type == "Lowercase") return Normalizer::Lowercase{};
  if (type == "Strip") {
    Normalizer::Strip strip;
    SKEIN_ASSIGN_OR_RETURN(strip.left, field.Bool("strip_left"));
    SKEIN_ASSIGN_OR_RETURN(strip.right, field.Bool("strip_right"));
    return strip;
  }
  if (type == "Prepend") {
    SKEIN_ASSIGN_OR_RETURN(std::string text, field.String("prepend"));
    return Normalizer::Prepend{std::move(text)};
  }
  if (type == "Replace") {
    SKEIN_ASSIGN_OR_RETURN(const Pattern pattern, ReadPattern(field));
    SKEIN_ASSIGN_OR_RETURN(std::string by, field.String("content"));
    if (pattern.text.empty()) return field.Error("has an empty pattern");
    if (!pattern.is_regex) return Normalizer::Replace{pattern.text, std::move(by)};
    SKEIN_ASSIGN_OR_RETURN(Regex regex, CompilePattern(field));
    if (regex.MatchesEmpty()) return field.Unimplemented("has a pattern that matches nothing, too");
    return Normalizer::ReplaceMatches{std::move(regex), std::move(by)};
  }
  return field.Unimplemented(absl::StrCat(
      "type ", type,
      " is not supported, only NFC, NFD, NFKC, NFKD, Lowercase, Strip, Prepend and Replace"));
}

absl::StatusOr<Normalizer> ReadNormalizer(const JsonField& root) {
  std::vector<Normalizer::Step> steps;
  SKEIN_ASSIGN_OR_RETURN(const bool has, root.Has("normalizer"));
  if (!has) return Normalizer();
  SKEIN_ASSIGN_OR_RETURN(const JsonField field, root.Get("normalizer"));
  SKEIN_ASSIGN_OR_RETURN(const std::vector<JsonField> members, Flatten(field, "normalizers"));
  for (const JsonField& member : members) {
    SKEIN_ASSIGN_OR_RETURN(Normalizer::Step step, ReadNormalizerStep(member));
    steps.push_back(std::move(step));
  }
  return Normalizer(std::move(steps));
}

// `spelling` is that of the tokens into which BPE joins what is cut.
absl::StatusOr<PreTokenizer> ReadPreTokenizer(const JsonField& root, Spelling& spelling) {
  spelling = Spelling::kCharacters;
  std::vector<PreTokenizerStep> steps;
  SKEIN_ASSIGN_OR_RETURN(const bool has, root.Has("pre_tokenizer"));
  if (!has) return PreTokenizer(std::move(steps));
  SKEIN_ASSIGN_OR_RETURN(const JsonField field, root.Get("pre_tokenizer"));
  SKEIN_ASSIGN_OR_RETURN(const std::vector<JsonField> members, Flatten(field, "pretokenizers"));
  for (const JsonField& member : members) {
    if (spelling == Spelling::kBytes) {
      return member.Unimplemented("comes after ByteLevel, which must be the last");
    }
    SKEIN_ASSIGN_OR_RETURN(const std::string type, member.String("type"));
    if (type == "ByteLevel") {
      spelling = Spelling::kBytes;
      SKEIN_ASSIGN_OR_RETURN(steps.emplace_back(), ReadByteLevel(member));
    } else if (type == "Split") {
      SKEIN_ASSIGN_OR_RETURN(steps.emplace_back(), ReadSplit(member));
    } else if (type == "Digits") {
      SKEIN_ASSIGN_OR_RETURN(steps.emplace_back(), ReadDigits(member));
    } else if (type == "Metaspace") {
      SKEIN_ASSIGN_OR_RETURN(steps.emplace_back(), ReadMetaspace(member));
    } else {
      return member.Unimplemented(absl::StrCat(
          "type ", type, " is not supported, only Split, Digits, Metaspace and ByteLevel"));
    }
  }
  return PreTokenizer(std::move(steps));
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

// Tokens stand for their bytes, marks in them for spaces. What decoders leave out at a text's begin
// is kept: an answer goes on where its prompt ends.
absl::Status CheckDecoder(const JsonField& root, Spelling spelling) {
  SKEIN_ASSIGN_OR_RETURN(const JsonField field, root.Get("decoder"));
  if (field.value().is_null()) {
    return field.Unimplemented("is null; only decoders of bytes and of space marks are supported");
  }
  SKEIN_ASSIGN_OR_RETURN(const std::vector<JsonField> members, Flatten(field, "decoders"));
  bool bytes = false;
  for (const JsonField& member : members) {
    SKEIN_ASSIGN_OR_RETURN(const std::string type, member.String("type"));
    bytes |= type == "ByteLevel" || type == "ByteFallback";
    if (spelling == Spelling::kBytes
            ? type == "ByteLevel"
            : type == "Metaspace" || type == "ByteFallback" || type == "Fuse") {
      continue;
    }
    if (spelling == Spelling::kCharacters && type == "Strip") {
      SKEIN_ASSIGN_OR_RETURN(const std::string content, member.String("content"));
      if (content == " ") continue;
    }
    if (spelling == Spelling::kCharacters && type == "Replace") {
      SKEIN_ASSIGN_OR_RETURN(const Pattern pattern, ReadPattern(member));
      SKEIN_ASSIGN_OR_RETURN(const std::string by, member.String("content"));
      if (!pattern.is_regex && pattern.text == kSpaceMark && by == " ") continue;
    }
    return member.Unimplemented(absl::StrCat(
        "type ", type, " is not supported, only ",
        spelling == Spelling::kBytes
            ? "ByteLevel"
            : "Replace of space marks, Metaspace, ByteFallback, Fuse and Strip of spaces"));
  }
  if (bytes) return absl::OkStatus();
  return field.Unimplemented("has neither ByteLevel nor ByteFallback");
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
