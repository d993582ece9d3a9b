#include "model/tokenizer/normalizer.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <iterator>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "model/tokenizer/utf8.h"
#include "model/tokenizer/white_space.h"

namespace skein::model {
namespace {

constexpr size_t kMaxBytes = (size_t{1} << 31) - 1;
// utf8proc sorts marks by exchanging neighbours; Unicode's stream-safe texts have up to 30.
constexpr int kMaxMarks = 256;

bool IsAscii(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return (c & 0x80) == 0; });
}

// Counts marks as they are sorted: of what code points decompose into.
absl::Status CheckMarks(std::string_view text, utf8proc_option_t options) {
  int marks = 0;
  for (size_t at = 0; at < text.size();) {
    const auto code_point = static_cast<utf8proc_int32_t>(ReadCodePoint(text, at));
    utf8proc_int32_t parts[32];  // the longest has 18
    int boundary = 0;
    const utf8proc_ssize_t count =
        utf8proc_decompose_char(code_point, parts, std::ssize(parts), options, &boundary);
    for (utf8proc_ssize_t i = 0; i < std::min(count, std::ssize(parts)); ++i) {
      marks = utf8proc_get_property(parts[i])->combining_class == 0 ? 0 : marks + 1;
    }
    if (marks > kMaxMarks) {
      return absl::InvalidArgumentError(absl::StrCat(
          "text has more than ", kMaxMarks, " combining marks behind each other at byte ", at));
    }
  }
  return absl::OkStatus();
}

// Each step keeps `begins`: the characters in front that are made of the one which the whole text
// began with, or were put before it. Below 1: that one is gone.

int64_t CountCharacters(std::string_view text) {
  return std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; });
}

absl::StatusOr<std::string> ApplyStep(Normalizer::Form form, std::string_view text,
                                      int64_t& /*begins*/) {
  if (IsAscii(text)) return std::string(text);
  const bool compose = form == Normalizer::Form::kNfc || form == Normalizer::Form::kNfkc;
  const bool compatible = form == Normalizer::Form::kNfkc || form == Normalizer::Form::kNfkd;
  const int options = UTF8PROC_STABLE | (compose ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE) |
                      (compatible ? UTF8PROC_COMPAT : 0);
  const int decomposes = UTF8PROC_DECOMPOSE | (compatible ? UTF8PROC_COMPAT : 0);
  SKEIN_RETURN_IF_ERROR(CheckMarks(text, static_cast<utf8proc_option_t>(decomposes)));
  utf8proc_uint8_t* made = nullptr;
  const utf8proc_ssize_t size = utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                             static_cast<utf8proc_ssize_t>(text.size()), &made,
                                             static_cast<utf8proc_option_t>(options));
  const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(made, std::free);
  if (size < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("text cannot be normalised: ", utf8proc_errmsg(size)));
  }
  return std::string(reinterpret_cast<const char*>(made), static_cast<size_t>(size));
}

void Append(uint32_t code_point, std::string& text) {
  utf8proc_uint8_t bytes[4];
  const utf8proc_ssize_t size =
      utf8proc_encode_char(static_cast<utf8proc_int32_t>(code_point), bytes);
  text.append(reinterpret_cast<const char*>(bytes), static_cast<size_t>(size));
}

absl::StatusOr<std::string> ApplyStep(Normalizer::Lowercase, std::string_view text,
                                      int64_t& /*begins*/) {
  constexpr uint32_t kDottedCapitalI = 0x130;  // the one letter whose lower case is two
  std::string lower;
  lower.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const uint32_t code_point = ReadCodePoint(text, at);
    if (code_point == kDottedCapitalI) {
      lower += "i\u0307";
    } else {
      Append(static_cast<uint32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(code_point))),
             lower);
    }
  }
  return lower;
}

absl::StatusOr<std::string> ApplyStep(const Normalizer::Strip& strip, std::string_view text,
                                      int64_t& begins) {
  const size_t begin = strip.left ? WhiteSpaceEnd(text, 0) : 0;
  begins -= CountCharacters(text.substr(0, begin));
  const size_t end = strip.right ? WhiteSpaceBegin(text, text.size(), begin) : text.size();
  return std::string(text.substr(begin, end - begin));
}

absl::StatusOr<std::string> ApplyStep(const Normalizer::Prepend& prepend, std::string_view text,
                                      int64_t& begins) {
  if (text.empty()) return "";
  if (begins > 0) begins += CountCharacters(prepend.text);
  return absl::StrCat(prepend.text, std::string(text));
}

// `match` is at the text's begin. What replaces it is made of its last character.
void ReplaceBegin(std::string_view match, std::string_view by, int64_t& begins) {
  begins -= CountCharacters(match);
  if (begins >= 0) begins += CountCharacters(by);
}

absl::StatusOr<std::string> ApplyStep(const Normalizer::Replace& replace, std::string_view text,
                                      int64_t& begins) {
  std::string result;
  result.reserve(text.size());
  if (text.starts_with(replace.text)) ReplaceBegin(replace.text, replace.by, begins);
  size_t at = 0;
  for (size_t found; (found = text.find(replace.text, at)) != text.npos;) {
    result.append(text, at, found - at).append(replace.by);
    at = found + replace.text.size();
  }
  return result.append(text, at);
}

absl::StatusOr<std::string> ApplyStep(const Normalizer::ReplaceMatches& replace,
                                      std::string_view text, int64_t& begins) {
  SKEIN_ASSIGN_OR_RETURN(const auto gaps, replace.pattern.Cut({text}, /*keep_matches=*/false,
                                                              /*keep_gaps=*/true));
  SKEIN_ASSIGN_OR_RETURN(const auto matches, replace.pattern.Cut({text}, /*keep_matches=*/true,
                                                                 /*keep_gaps=*/false));
  if (!matches.empty() && matches.front().data() == text.data()) {
    ReplaceBegin(matches.front(), replace.by, begins);
  }
  std::string result;
  auto gap = gaps.begin();
  for (const std::string_view match : matches) {
    if (gap != gaps.end() && gap->data() < match.data()) result += *gap++;
    result += replace.by;
  }
  if (gap != gaps.end()) result += *gap;
  return result;
}

absl::StatusOr<std::string> ApplyStep(const SentencePieceNormalizer& normalizer,
                                      std::string_view text, int64_t& begins) {
  return normalizer.Apply(text, begins > 0);
}

}  // namespace

absl::StatusOr<Normalizer::Result> Normalizer::Apply(std::string_view text, bool at_begin) const {
  Result result = {std::string(text)};
  int64_t begins = at_begin ? 1 : 0;
  for (const Step& step : steps_) {
    SKEIN_ASSIGN_OR_RETURN(
        result.text,
        std::visit([&](const auto& s) { return ApplyStep(s, result.text, begins); }, step));
    if (result.text.size() > kMaxBytes) {
      return absl::InvalidArgumentError("text passes 2 GiB when it is normalised");
    }
  }
  result.keeps_begin = begins > 0;
  return result;
}

}  // namespace skein::model
