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

struct FormOptions {
  utf8proc_option_t decompose, whole;
};

FormOptions OptionsOf(Normalizer::Form form) {
  const bool compose = form == Normalizer::Form::kNfc || form == Normalizer::Form::kNfkc;
  const bool compatible = form == Normalizer::Form::kNfkc || form == Normalizer::Form::kNfkd;
  const int decompose = UTF8PROC_DECOMPOSE | (compatible ? UTF8PROC_COMPAT : 0);
  const int whole = UTF8PROC_STABLE | (compose ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE) |
                    (compatible ? UTF8PROC_COMPAT : 0);
  return {static_cast<utf8proc_option_t>(decompose), static_cast<utf8proc_option_t>(whole)};
}

absl::StatusOr<std::string> ToForm(const FormOptions& options, std::string_view text) {
  if (IsAscii(text)) return std::string(text);
  utf8proc_uint8_t* made = nullptr;
  const utf8proc_ssize_t size =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                   static_cast<utf8proc_ssize_t>(text.size()), &made, options.whole);
  const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(made, std::free);
  if (size < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("text cannot be normalised: ", utf8proc_errmsg(size)));
  }
  return std::string(reinterpret_cast<const char*>(made), static_cast<size_t>(size));
}

// Whether what stands before `at` and what follows have forms of their own: no character of the one
// is sorted behind, or composed with, one of the other. What composes with a character before it is
// a mark, or a vowel or final consonant of Hangul.
bool IsFormBoundary(const FormOptions& options, std::string_view text, size_t at) {
  if (at == 0 || at >= text.size()) return true;
  if ((text[at] & 0xC0) == 0x80) return false;  // inside a character
  const auto code_point = static_cast<utf8proc_int32_t>(ReadCodePoint(text, at));
  utf8proc_int32_t parts[32];
  int boundary = 0;
  const utf8proc_ssize_t count =
      utf8proc_decompose_char(code_point, parts, std::ssize(parts), options.decompose, &boundary);
  if (count <= 0) return false;
  if (parts[0] >= 0x1160 && parts[0] <= 0x11FF) return false;
  const utf8proc_category_t category = utf8proc_category(parts[0]);
  return category != UTF8PROC_CATEGORY_MN && category != UTF8PROC_CATEGORY_MC &&
         category != UTF8PROC_CATEGORY_ME && utf8proc_get_property(parts[0])->combining_class == 0;
}

// A piece of the text up to `end`, of which [mark.begin, mark.end) is marked. What is marked is so
// alone where its form does not depend on what is beside it.
absl::Status FormAround(const FormOptions& options, std::string_view text, const Range& mark,
                        size_t end, Rewrite& rewrite) {
  const size_t begin = rewrite.at();
  const size_t cuts[] = {begin, std::max(begin, static_cast<size_t>(mark.begin)),
                         std::min(end, static_cast<size_t>(mark.end)), end};
  SKEIN_ASSIGN_OR_RETURN(const std::string whole, ToForm(options, text.substr(begin, end - begin)));
  std::string parts[3];
  for (size_t i = 0; i < 3; ++i) {
    const std::string_view part = text.substr(cuts[i], cuts[i + 1] - cuts[i]);
    SKEIN_ASSIGN_OR_RETURN(parts[i], ToForm(options, part));
  }
  if (absl::StrCat(parts[0], parts[1], parts[2]) != whole) {
    rewrite.Replace(end, whole);
    return absl::OkStatus();
  }
  for (size_t i = 0; i < 3; ++i) rewrite.Replace(cuts[i + 1], parts[i]);
  return absl::OkStatus();
}

absl::StatusOr<MarkedText> ApplyStep(Normalizer::Form form, const MarkedText& from,
                                     int64_t& /*begins*/) {
  const std::string_view text = from.text;
  if (IsAscii(text)) return from;
  const FormOptions options = OptionsOf(form);
  SKEIN_RETURN_IF_ERROR(CheckMarks(text, options.decompose));
  Rewrite rewrite(from);
  const auto add = [&](size_t end) -> absl::Status {
    SKEIN_ASSIGN_OR_RETURN(const std::string made,
                           ToForm(options, text.substr(rewrite.at(), end - rewrite.at())));
    rewrite.Replace(end, made);
    return absl::OkStatus();
  };
  for (const Range& mark : from.marked) {
    if (static_cast<size_t>(mark.end) <= rewrite.at()) continue;
    auto begin = static_cast<size_t>(mark.begin);
    while (begin > rewrite.at() && !IsFormBoundary(options, text, begin)) --begin;
    auto end = static_cast<size_t>(mark.end);
    while (!IsFormBoundary(options, text, end)) ++end;
    SKEIN_RETURN_IF_ERROR(add(std::max(begin, rewrite.at())));
    SKEIN_RETURN_IF_ERROR(FormAround(options, text, mark, end, rewrite));
  }
  SKEIN_RETURN_IF_ERROR(add(text.size()));
  return rewrite.Take();
}

void Append(uint32_t code_point, std::string& text) {
  utf8proc_uint8_t bytes[4];
  const utf8proc_ssize_t size =
      utf8proc_encode_char(static_cast<utf8proc_int32_t>(code_point), bytes);
  text.append(reinterpret_cast<const char*>(bytes), static_cast<size_t>(size));
}

absl::StatusOr<MarkedText> ApplyStep(Normalizer::Lowercase, const MarkedText& from,
                                     int64_t& /*begins*/) {
  constexpr uint32_t kDottedCapitalI = 0x130;  // the one letter whose lower case is two
  Rewrite rewrite(from);
  std::string lower;
  for (size_t at = 0; at < from.text.size();) {
    const uint32_t code_point = ReadCodePoint(from.text, at);
    lower.clear();
    if (code_point == kDottedCapitalI) {
      lower += "i\u0307";
    } else {
      Append(static_cast<uint32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(code_point))),
             lower);
    }
    rewrite.Replace(at, lower);
  }
  return rewrite.Take();
}

absl::StatusOr<MarkedText> ApplyStep(const Normalizer::Strip& strip, const MarkedText& from,
                                     int64_t& begins) {
  const std::string_view text = from.text;
  const size_t begin = strip.left ? WhiteSpaceEnd(text, 0) : 0;
  begins -= CountCharacters(text.substr(0, begin));
  const size_t end = strip.right ? WhiteSpaceBegin(text, text.size(), begin) : text.size();
  Rewrite rewrite(from);
  rewrite.Replace(begin, "");
  rewrite.Keep(end);
  rewrite.Replace(text.size(), "");
  return rewrite.Take();
}

absl::StatusOr<MarkedText> ApplyStep(const Normalizer::Prepend& prepend, const MarkedText& from,
                                     int64_t& begins) {
  if (from.text.empty()) return from;
  if (begins > 0) begins += CountCharacters(prepend.text);
  Rewrite rewrite(from);
  rewrite.Replace(0, prepend.text);
  return rewrite.Take();
}

// `match` is at the text's begin. What replaces it is made of its last character.
void ReplaceBegin(std::string_view match, std::string_view by, int64_t& begins) {
  begins -= CountCharacters(match);
  if (begins >= 0) begins += CountCharacters(by);
}

absl::StatusOr<MarkedText> ApplyStep(const Normalizer::Replace& replace, const MarkedText& from,
                                     int64_t& begins) {
  const std::string_view text = from.text;
  if (text.starts_with(replace.text)) ReplaceBegin(replace.text, replace.by, begins);
  Rewrite rewrite(from);
  for (size_t found; (found = text.find(replace.text, rewrite.at())) != text.npos;) {
    rewrite.Keep(found);
    rewrite.Replace(found + replace.text.size(), replace.by);
  }
  return rewrite.Take();
}

absl::StatusOr<MarkedText> ApplyStep(const Normalizer::ReplaceMatches& replace,
                                     const MarkedText& from, int64_t& begins) {
  const std::string_view text = from.text;
  SKEIN_ASSIGN_OR_RETURN(const auto matches, replace.pattern.Cut({text}, /*keep_matches=*/true,
                                                                 /*keep_gaps=*/false));
  if (!matches.empty() && matches.front().data() == text.data()) {
    ReplaceBegin(matches.front(), replace.by, begins);
  }
  Rewrite rewrite(from);
  for (const std::string_view match : matches) {
    const auto begin = static_cast<size_t>(match.data() - text.data());
    rewrite.Keep(begin);
    rewrite.Replace(begin + match.size(), replace.by);
  }
  return rewrite.Take();
}

absl::StatusOr<MarkedText> ApplyStep(const SentencePieceNormalizer& normalizer,
                                     const MarkedText& from, int64_t& begins) {
  return normalizer.Apply(from, begins > 0);
}

// The characters that `ranges` touch.
std::vector<Range> WholeCharacters(std::string_view text, absl::Span<const Range> ranges) {
  const auto continues = [text](int64_t at) {
    return at < std::ssize(text) && (text[static_cast<size_t>(at)] & 0xC0) == 0x80;
  };
  std::vector<Range> whole;
  for (Range range : ranges) {
    while (continues(range.begin)) --range.begin;
    while (continues(range.end)) ++range.end;
    if (!whole.empty() && range.begin <= whole.back().end) {
      whole.back().end = range.end;
    } else {
      whole.push_back(range);
    }
  }
  return whole;
}

}  // namespace

absl::StatusOr<Normalizer::Result> Normalizer::Apply(std::string_view text, bool at_begin,
                                                     absl::Span<const Range> marked) const {
  MarkedText made = {std::string(text), WholeCharacters(text, marked)};
  int64_t begins = at_begin ? 1 : 0;
  for (const Step& step : steps_) {
    SKEIN_ASSIGN_OR_RETURN(
        made, std::visit([&](const auto& s) { return ApplyStep(s, made, begins); }, step));
    if (made.text.size() > kMaxBytes) {
      return absl::InvalidArgumentError("text passes 2 GiB when it is normalised");
    }
  }
  return Result{std::move(made), /*keeps_begin=*/begins > 0};
}

}  // namespace skein::model
