#include "model/tokenizer/json_pipeline.h"

#include <algorithm>
#include <iterator>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/status_util.h"
#include "model/tokenizer/byte_alphabet.h"
#include "model/tokenizer/regex.h"

namespace skein::model {
namespace {

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
  SKEIN_ASSIGN_OR_RETURN(step.invert, field.Bool("invert"));
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

}  // namespace

absl::StatusOr<std::vector<JsonField>> Flatten(const JsonField& field, const std::string& list) {
  SKEIN_ASSIGN_OR_RETURN(const std::string type, field.String("type"));
  if (type != "Sequence") return std::vector<JsonField>{field};
  SKEIN_ASSIGN_OR_RETURN(const JsonField members, field.Get(list));
  return members.Elements();
}

absl::StatusOr<AddedToken> ReadAddedToken(const JsonField& field) {
  AddedToken token;
  SKEIN_ASSIGN_OR_RETURN(token.content, field.String("content"));
  if (token.content.empty() || token.content.size() > kMaxAddedTokenBytes) {
    return field.Error(absl::StrCat("content has ", token.content.size(), " bytes, must have 1 to ",
                                    kMaxAddedTokenBytes));
  }
  SKEIN_ASSIGN_OR_RETURN(token.special, field.Bool("special", false));
  SKEIN_ASSIGN_OR_RETURN(token.lstrip, field.Bool("lstrip", false));
  SKEIN_ASSIGN_OR_RETURN(token.rstrip, field.Bool("rstrip", false));
  SKEIN_ASSIGN_OR_RETURN(token.single_word, field.Bool("single_word", false));
  SKEIN_ASSIGN_OR_RETURN(token.normalized, field.Bool("normalized", !token.special));
  return token;
}

absl::StatusOr<std::vector<std::pair<std::string, std::string>>> ReadMerges(
    const JsonField& model) {
  SKEIN_ASSIGN_OR_RETURN(const JsonField field, model.Get("merges"));
  SKEIN_ASSIGN_OR_RETURN(const std::vector<JsonField> elements, field.Elements());
  std::vector<std::pair<std::string, std::string>> merges;
  merges.reserve(elements.size());
  for (const JsonField& element : elements) {
    SKEIN_ASSIGN_OR_RETURN(auto merge, ReadMerge(element));
    merges.push_back(std::move(merge));
  }
  return merges;
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

absl::Status CheckDecoder(const JsonField& root, Spelling& spelling) {
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
  if (spelling == Spelling::kBytes && !bytes) return field.Unimplemented("has no ByteLevel");
  if (spelling == Spelling::kCharacters && bytes) spelling = Spelling::kCharactersWithBytes;
  return absl::OkStatus();
}

}  // namespace skein::model
