#include <algorithm>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/status_macros.h"
#include "model/template/arguments.h"
#include "model/template/characters.h"
#include "model/template/errors.h"
#include "model/template/format_spec.h"
#include "model/template/formatting.h"
#include "model/template/methods.h"
#include "model/template/text_edits.h"
#include "model/tokenizer/utf8.h"

namespace skein::model {
namespace {

using Result = absl::StatusOr<Value>;

// A result that is markup where the string is.
Result Like(Runtime& runtime, const Value& self, Text text) {
  return runtime.MakeString(std::move(text), IsMarkup(self));
}

template <Side kSide>
Result StripMethod(Runtime& runtime, const Value& self, const Arguments& arguments) {
  SKEIN_ASSIGN_OR_RETURN(const Bound bound, Bind("strip", arguments, {"chars"}));
  SKEIN_ASSIGN_OR_RETURN(const auto chars, OptionalTextArgument(bound[0]));
  // Each character that is stripped is looked up among these.
  if (chars) SKEIN_RETURN_IF_ERROR(runtime.Work(chars->size() * TextOf(self).size()));
  return Like(runtime, self, Strip(TextOf(self), chars, kSide));
}

template <bool kFromRight>
Result SplitMethod(Runtime& runtime, const Value& self, const Arguments& arguments) {
  SKEIN_ASSIGN_OR_RETURN(const Bound bound, Bind("split", arguments, {"sep", "maxsplit"}));
  SKEIN_ASSIGN_OR_RETURN(const auto separator, OptionalTextArgument(bound[0]));
  SKEIN_ASSIGN_OR_RETURN(const int64_t most, IntegerArgument(bound[1], -1));
  if (separator && separator->empty()) return Invalid("split() by an empty string");
  const Text& text = TextOf(self);
  SKEIN_RETURN_IF_ERROR(runtime.Reserve(text.size() * (sizeof(String) + sizeof(Value))));
  return runtime.MakeStrings(
      kFromRight ? SplitFromRight(text, separator, most) : Split(text, separator, most),
      IsMarkup(self));
}

Result SplitLinesMethod(Runtime& runtime, const Value& self, const Arguments& arguments) {
  SKEIN_ASSIGN_OR_RETURN(const Bound bound, Bind("splitlines", arguments, {"keepends"}));
  return runtime.MakeStrings(SplitLines(TextOf(self), TruthArgument(bound[0], false)),
                             IsMarkup(self));
}

template <bool kFromRight>
Result PartitionMethod(Runtime& runtime, const Value& self, const Arguments& arguments) {
  SKEIN_ASSIGN_OR_RETURN(const Bound bound, Bind("partition", arguments, {"sep"}, 1));
  SKEIN_ASSIGN_OR_RETURN(const Text* separator, TextArgument(bound[0]));
  if (separator->empty()) return Invalid("partition() by an empty string");
  const Text& text = TextOf(self);
  SKEIN_RETURN_IF_ERROR(runtime.Work(text.size()));
  const size_t found = kFromRight ? FindLastBytes(text.bytes(), separator->bytes())
                                  : FindBytes(text.bytes(), separator->bytes());
  std::vector<Text> parts(3);
  if (found == std::string::npos) {
    parts[kFromRight ? 2 : 0] = text;
  } else {
    const size_t end = found + separator->size();
    parts = {text.Part(0, found), text.Part(found, end), text.Part(end, text.size())};
  }
  std::vector<Value> items;
  for (Text& part : parts) {
    SKEIN_ASSIGN_OR_RETURN(Value item, Like(runtime, self, std::move(part)));
    items.push_back(std::move(item));
  }
  return runtime.MakeList(std::move(items), ListKind::kTuple);
}

// What the arguments "start" and "stop" leave of a text, in bytes; none where nothing can be there.
struct Window {
  size_t begin = 0;
  size_t end = 0;
  int64_t first = 0;  // character
  bool is_empty_range = false;
};

absl::StatusOr<Window> WindowOf(const Text& text, const Value* start, const Value* stop) {
  const auto is_given = [](const Value* value) { return value != nullptr && !IsNone(*value); };
  if (!is_given(start) && !is_given(stop)) return Window{.end = text.size()};
  const int64_t size = CountCharacters(text.bytes());
  SKEIN_ASSIGN_OR_RETURN(int64_t first, IntegerArgument(is_given(start) ? start : nullptr, 0));
  SKEIN_ASSIGN_OR_RETURN(int64_t last, IntegerArgument(is_given(stop) ? stop : nullptr, size));
  if (first < 0) first = std::max<int64_t>(first + size, 0);
  if (last < 0) last = std::max<int64_t>(last + size, 0);
  last = std::min(last, size);
  if (first > last) return Window{.is_empty_range = true};
  return Window{ByteOfCharacter(text.bytes(), first), ByteOfCharacter(text.bytes(), last), first};
}

template <bool kAtEnd>
Result AffixMethod(Runtime& runtime, const Value& self, const Arguments& arguments) {
  SKEIN_ASSIGN_OR_RETURN(const Bound bound,
                         Bind("startswith", arguments, {"prefix", "start", "end"}, 1));
  if (bound[1] != nullptr) SKEIN_RETURN_IF_ERROR(runtime.Work(TextOf(self).size()));
  SKEIN_ASSIGN_OR_RETURN(const Window window, WindowOf(TextOf(self), bound[1], bound[2]));
  const std::string_view bytes =
      std::string_view(TextOf(self).bytes()).substr(window.begin, window.end - window.begin);
  std::vector<Value> affixes = {*bound[0]};
  if (const List* tuple = ListOf(*bound[0], ListKind::kTuple)) affixes = tuple->items;
  bool holds = false;
  for (const Value& affix : affixes) {
    SKEIN_ASSIGN_OR_RETURN(const Text* text, TextArgument(&affix));
    SKEIN_RETURN_IF_ERROR(runtime.Step());
    SKEIN_RETURN_IF_ERROR(runtime.Work(text->size()));
    holds |= !window.is_empty_range &&
             (kAtEnd ? bytes.ends_with(text->bytes()) : bytes.starts_with(text->bytes()));
  }
  return holds;
}

// The character where the text is found, or -1.
template <bool kFromRight>
absl::StatusOr<int64_t> Find(Runtime& runtime, const Value& self, const Arguments& arguments) {
  SKEIN_ASSIGN_OR_RETURN(const Bound bound, Bind("find", arguments, {"sub", "start", "end"}, 1));
  SKEIN_ASSIGN_OR_RETURN(const Text* wanted, TextArgument(bound[0]));
  SKEIN_RETURN_IF_ERROR(runtime.Work(TextOf(self).size()));
  SKEIN_ASSIGN_OR_RETURN(const Window window, WindowOf(TextOf(self), bound[1], bound[2]));
  if (window.is_empty_range) return -1;
  const std::string_view bytes =
      std::string_view(TextOf(self).bytes()).substr(window.begin, window.end - window.begin);
  const size_t found =
      kFromRight ? FindLastBytes(bytes, wanted->bytes()) : FindBytes(bytes, wanted->bytes());
  if (found == std::string_view::npos) return -1;
  return window.first + CountCharacters(bytes.substr(0, found));
}

template <bool kFromRight>
Result FindMethodOf(Runtime& runtime, const Value& self, const Arguments& arguments) {
  SKEIN_ASSIGN_OR_RETURN(const int64_t found, Find<kFromRight>(runtime, self, arguments));
  return found;
}

template <bool kFromRight>
Result IndexMethod(Runtime& runtime, const Value& self, const Arguments& arguments) {
  SKEIN_ASSIGN_OR_RETURN(const int64_t found, Find<kFromRight>(runtime, self, arguments));
  if (found < 0) return Invalid("index() did not find the substring");
  return found;
}

Result CountMethod(Runtime& runtime, const Value& self, const Arguments& arguments) {
  SKEIN_ASSIGN_OR_RETURN(const Bound bound, Bind("count", arguments, {"sub", "start", "end"}, 1));
  SKEIN_ASSIGN_OR_RETURN(const Text* wanted, TextArgument(bound[0]));
  SKEIN_RETURN_IF_ERROR(runtime.Work(TextOf(self).size()));
  SKEIN_ASSIGN_OR_RETURN(const Window window, WindowOf(TextOf(self), bound[1], bound[2]));
  if (window.is_empty_range) return int64_t{0};
  const std::string_view bytes =
      std::string_view(TextOf(self).bytes()).substr(window.begin, window.end - window.begin);
  if (wanted->empty()) return CountCharacters(bytes) + 1;
  int64_t count = 0;
  for (size_t at = FindBytes(bytes, wanted->bytes()); at != std::string_view::npos;
       at = FindBytes(bytes, wanted->bytes(), at + wanted->size())) {
    ++count;
  }
  return count;
}

Result ReplaceMethod(Runtime& runtime, const Value& self, const Arguments& arguments) {
  SKEIN_ASSIGN_OR_RETURN(const Bound bound, Bind("replace", arguments, {"old", "new", "count"}, 2));
  SKEIN_ASSIGN_OR_RETURN(const Text* old_text, TextArgument(bound[0]));
  SKEIN_ASSIGN_OR_RETURN(const Text* new_text, TextArgument(bound[1]));
  SKEIN_ASSIGN_OR_RETURN(const int64_t most, IntegerArgument(bound[2], -1));
  const Text escaped = IsMarkup(self) && !IsMarkup(*bound[1]) ? EscapeHtml(*new_text) : *new_text;
  const size_t size = ReplacedSize(TextOf(self), old_text->bytes(), escaped, most);
  SKEIN_RETURN_IF_ERROR(runtime.Reserve(size));
  SKEIN_RETURN_IF_ERROR(runtime.Work(size));
  return Like(runtime, self, Replace(TextOf(self), old_text->bytes(), escaped, most));
}

template <Text (*kMap)(const Text&)>
Result MapMethod(Runtime& runtime, const Value& self, const Arguments& arguments) {
  SKEIN_RETURN_IF_ERROR(Bind("a method of str", arguments, {}).status());
  SKEIN_RETURN_IF_ERROR(runtime.Work(8 * TextOf(self).size()));
  return Like(runtime, self, kMap(TextOf(self)));
}

Result JoinMethod(Runtime& runtime, const Value& self, const Arguments& arguments) {
  SKEIN_ASSIGN_OR_RETURN(const Bound bound, Bind("join", arguments, {"iterable"}, 1));
  SKEIN_ASSIGN_OR_RETURN(const std::vector<Value> items, Iterate(runtime, *bound[0]));
  std::vector<Text> parts;
  size_t size = 0;
  for (const Value& item : items) {
    SKEIN_ASSIGN_OR_RETURN(const Text* text, TextArgument(&item));
    parts.push_back(IsMarkup(self) && !IsMarkup(item) ? EscapeHtml(*text) : *text);
    size += parts.back().footprint() + TextOf(self).footprint();
    SKEIN_RETURN_IF_ERROR(runtime.Reserve(size));
  }
  SKEIN_RETURN_IF_ERROR(runtime.Work(size));
  return Like(runtime, self, Join(TextOf(self), parts));
}

Result FormatMethod(Runtime& runtime, const Value& self, const Arguments& arguments) {
  SKEIN_ASSIGN_OR_RETURN(Text text, FormatBraces(runtime, TextOf(self), arguments, IsMarkup(self)));
  return Like(runtime, self, std::move(text));
}

// Whether all characters (one at least) are of a class.
template <bool (*kIs)(uint32_t)>
Result ClassMethod(Runtime& runtime, const Value& self, const Arguments& arguments) {
  SKEIN_RETURN_IF_ERROR(Bind("a method of str", arguments, {}).status());
  const std::string& bytes = TextOf(self).bytes();
  SKEIN_RETURN_IF_ERROR(runtime.Work(bytes.size()));
  for (size_t at = 0; at < bytes.size();) {
    if (!kIs(ReadCodePoint(bytes, at))) return false;
  }
  return !bytes.empty();
}

bool IsAscii(uint32_t character) { return character < 0x80; }

Result IsAsciiMethod(Runtime& runtime, const Value& self, const Arguments& arguments) {
  if (TextOf(self).empty()) return true;
  return ClassMethod<IsAscii>(runtime, self, arguments);
}

Result IsTitleMethod(Runtime& runtime, const Value& self, const Arguments& arguments) {
  SKEIN_RETURN_IF_ERROR(Bind("istitle", arguments, {}).status());
  SKEIN_RETURN_IF_ERROR(runtime.Work(TextOf(self).size()));
  const std::string& bytes = TextOf(self).bytes();
  bool after_cased = false;
  bool any = false;
  for (size_t at = 0; at < bytes.size();) {
    const uint32_t c = ReadCodePoint(bytes, at);
    const bool upper = IsUpper(c) || IsTitle(c);
    if ((upper && after_cased) || (IsLower(c) && !after_cased)) return false;
    after_cased = upper || IsLower(c);
    any |= after_cased;
  }
  return any;
}

template <bool kUpper>
Result IsCaseMethod(Runtime& runtime, const Value& self, const Arguments& arguments) {
  SKEIN_RETURN_IF_ERROR(Bind("isupper", arguments, {}).status());
  SKEIN_RETURN_IF_ERROR(runtime.Work(TextOf(self).size()));
  return IsInCase(TextOf(self).bytes(), kUpper);
}

template <bool kAtEnd>
Result RemoveAffixMethod(Runtime& runtime, const Value& self, const Arguments& arguments) {
  SKEIN_ASSIGN_OR_RETURN(const Bound bound, Bind("removeprefix", arguments, {"affix"}, 1));
  SKEIN_ASSIGN_OR_RETURN(const Text* affix, TextArgument(bound[0]));
  const Text& text = TextOf(self);
  SKEIN_RETURN_IF_ERROR(runtime.Work(text.size()));
  const bool has_it =
      kAtEnd ? text.bytes().ends_with(affix->bytes()) : text.bytes().starts_with(affix->bytes());
  const size_t cut = has_it ? affix->size() : 0;
  return Like(runtime, self,
              kAtEnd ? text.Part(0, text.size() - cut) : text.Part(cut, text.size()));
}

template <char kAlign>
Result PadMethod(Runtime& runtime, const Value& self, const Arguments& arguments) {
  SKEIN_ASSIGN_OR_RETURN(const Bound bound, Bind("ljust", arguments, {"width", "fillchar"}, 1));
  FormatSpec spec{.align = kAlign};
  SKEIN_ASSIGN_OR_RETURN(spec.width, IntegerArgument(bound[0], 0));
  if (bound[1] != nullptr) {
    SKEIN_ASSIGN_OR_RETURN(const Text* fill, TextArgument(bound[1]));
    if (CountCharacters(fill->bytes()) != 1) return Invalid("a filling needs one character");
    spec.fill = *fill;
  }
  SKEIN_ASSIGN_OR_RETURN(Text text, kAlign == '^' ? Center(runtime, TextOf(self), spec)
                                                  : FormatText(runtime, TextOf(self), spec));
  return Like(runtime, self, std::move(text));
}

Result ZeroFillMethod(Runtime& runtime, const Value& self, const Arguments& arguments) {
  SKEIN_ASSIGN_OR_RETURN(const Bound bound, Bind("zfill", arguments, {"width"}, 1));
  FormatSpec spec{.fill = Text("0"), .align = '>'};
  SKEIN_ASSIGN_OR_RETURN(spec.width, IntegerArgument(bound[0], 0));
  const Text& text = TextOf(self);
  const bool has_sign = !text.empty() && (text.bytes()[0] == '-' || text.bytes()[0] == '+');
  if (has_sign && spec.width > 0) --spec.width;
  SKEIN_ASSIGN_OR_RETURN(const Text digits,
                         FormatText(runtime, text.Part(has_sign ? 1 : 0, text.size()), spec));
  Text out = text.Part(0, has_sign ? 1 : 0);
  out.Append(digits);
  return Like(runtime, self, std::move(out));
}

using Table = absl::flat_hash_map<std::string_view, Method>;

const Table& Methods() {
  static const auto& table = *new Table({
      {"strip", StripMethod<Side::kBoth>},
      {"lstrip", StripMethod<Side::kLeft>},
      {"rstrip", StripMethod<Side::kRight>},
      {"split", SplitMethod<false>},
      {"rsplit", SplitMethod<true>},
      {"splitlines", SplitLinesMethod},
      {"partition", PartitionMethod<false>},
      {"rpartition", PartitionMethod<true>},
      {"startswith", AffixMethod<false>},
      {"endswith", AffixMethod<true>},
      {"removeprefix", RemoveAffixMethod<false>},
      {"removesuffix", RemoveAffixMethod<true>},
      {"find", FindMethodOf<false>},
      {"rfind", FindMethodOf<true>},
      {"index", IndexMethod<false>},
      {"rindex", IndexMethod<true>},
      {"count", CountMethod},
      {"replace", ReplaceMethod},
      {"upper", MapMethod<UpperCase>},
      {"lower", MapMethod<LowerCase>},
      {"title", MapMethod<TitleCase>},
      {"capitalize", MapMethod<Capitalize>},
      {"swapcase", MapMethod<SwapCase>},
      {"join", JoinMethod},
      {"format", FormatMethod},
      {"isalpha", ClassMethod<IsAlpha>},
      {"isdigit", ClassMethod<IsDigit>},
      {"isdecimal", ClassMethod<IsDecimal>},
      {"isnumeric", ClassMethod<IsNumeric>},
      {"isalnum", ClassMethod<IsAlphanumeric>},
      {"isspace", ClassMethod<IsSpace>},
      {"isprintable", ClassMethod<IsPrintable>},
      {"isascii", IsAsciiMethod},
      {"istitle", IsTitleMethod},
      {"isupper", IsCaseMethod<true>},
      {"islower", IsCaseMethod<false>},
      {"ljust", PadMethod<'<'>},
      {"rjust", PadMethod<'>'>},
      {"center", PadMethod<'^'>},
      {"zfill", ZeroFillMethod},
  });
  return table;
}

}  // namespace

Method FindStringMethod(std::string_view name) {
  const auto found = Methods().find(name);
  return found == Methods().end() ? nullptr : found->second;
}

}  // namespace skein::model
