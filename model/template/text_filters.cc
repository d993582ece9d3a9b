// Filters that make texts.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/status_macros.h"
#include "model/template/arguments.h"
#include "model/template/attribute_path.h"
#include "model/template/characters.h"
#include "model/template/errors.h"
#include "model/template/filters.h"
#include "model/template/formatting.h"
#include "model/template/methods.h"
#include "model/template/printing.h"
#include "model/template/text_edits.h"
#include "model/template/to_json.h"
#include "model/tokenizer/utf8.h"

namespace skein::model {
namespace {

using Result = absl::StatusOr<Value>;

// The value if it is a string, markup or not; else what it prints as.
Result AsString(Runtime& runtime, const Value& value) {
  if (IsString(value)) return value;
  SKEIN_ASSIGN_OR_RETURN(Text text, Printed(runtime, value));
  return runtime.MakeString(std::move(text));
}

Result CallMethod(Runtime& runtime, std::string_view name, const Value& value,
                  const Arguments& arguments) {
  SKEIN_ASSIGN_OR_RETURN(const Value text, AsString(runtime, value));
  return FindStringMethod(name)(runtime, text, arguments);
}

Result UpperFilter(Runtime& runtime, const Value& input, const Arguments& arguments) {
  return CallMethod(runtime, "upper", input, arguments);
}
Result LowerFilter(Runtime& runtime, const Value& input, const Arguments& arguments) {
  return CallMethod(runtime, "lower", input, arguments);
}
Result CapitalizeFilter(Runtime& runtime, const Value& input, const Arguments& arguments) {
  return CallMethod(runtime, "capitalize", input, arguments);
}
Result TrimFilter(Runtime& runtime, const Value& input, const Arguments& arguments) {
  return CallMethod(runtime, "strip", input, arguments);
}

Result StringFilter(Runtime& runtime, const Value& input, const Arguments& arguments) {
  SKEIN_RETURN_IF_ERROR(Bind("string", arguments, {}).status());
  return AsString(runtime, input);
}

// Words begin after white space and - ( { [ <, other than those of str.title.
Result TitleFilter(Runtime& runtime, const Value& input, const Arguments& arguments) {
  SKEIN_RETURN_IF_ERROR(Bind("title", arguments, {}).status());
  SKEIN_ASSIGN_OR_RETURN(const Text text, Printed(runtime, input));
  SKEIN_RETURN_IF_ERROR(runtime.Work(8 * text.size()));
  bool begins = true;
  return runtime.MakeString(MapCharacters(text, [&](const Character& character) {
    const uint32_t c = character.code_point;
    const bool between =
        IsSpace(c) || (c < 0x80 && std::string_view("-({[<").find(static_cast<char>(c)) !=
                                       std::string_view::npos);
    std::string mapped = begins && !between ? Upper(c) : Lower(c);
    begins = between;
    return mapped;
  }));
}

Result ReplaceFilter(Runtime& runtime, const Value& input, const Arguments& arguments) {
  SKEIN_ASSIGN_OR_RETURN(const Bound bound, Bind("replace", arguments, {"old", "new", "count"}, 2));
  int64_t most = -1;
  if (bound[2] != nullptr && !IsNone(*bound[2])) {
    SKEIN_ASSIGN_OR_RETURN(most, IntegerArgument(bound[2], -1));
  }
  SKEIN_ASSIGN_OR_RETURN(const Text text, Printed(runtime, input));
  SKEIN_ASSIGN_OR_RETURN(const Text old_text, Printed(runtime, *bound[0]));
  SKEIN_ASSIGN_OR_RETURN(const Text new_text, Printed(runtime, *bound[1]));
  const size_t size = ReplacedSize(text, old_text.bytes(), new_text, most);
  SKEIN_RETURN_IF_ERROR(runtime.Reserve(size));
  SKEIN_RETURN_IF_ERROR(runtime.Work(size));
  return runtime.MakeString(Replace(text, old_text.bytes(), new_text, most));
}

Result JoinFilter(Runtime& runtime, const Value& input, const Arguments& arguments) {
  SKEIN_ASSIGN_OR_RETURN(const Bound bound, Bind("join", arguments, {"d", "attribute"}));
  Text separator;
  if (bound[0] != nullptr) {
    SKEIN_ASSIGN_OR_RETURN(separator, Printed(runtime, *bound[0]));
  }
  SKEIN_ASSIGN_OR_RETURN(const AttributePath path, AttributePath::Parse(bound[1]));
  SKEIN_ASSIGN_OR_RETURN(const std::vector<Value> items, Iterate(runtime, input));
  std::vector<Text> parts;
  size_t size = 0;
  for (const Value& item : items) {
    SKEIN_ASSIGN_OR_RETURN(const Value value, path.Get(runtime, item));
    SKEIN_ASSIGN_OR_RETURN(Text part, Printed(runtime, value));
    size += part.footprint() + separator.footprint();
    parts.push_back(std::move(part));
    SKEIN_RETURN_IF_ERROR(runtime.Reserve(size));
  }
  SKEIN_RETURN_IF_ERROR(runtime.Work(size));
  return runtime.MakeString(Join(separator, parts));
}

Result CenterFilter(Runtime& runtime, const Value& input, const Arguments& arguments) {
  SKEIN_ASSIGN_OR_RETURN(const Bound bound, Bind("center", arguments, {"width"}));
  Arguments width;
  width.positional.push_back(bound[0] != nullptr ? *bound[0] : Value(int64_t{80}));
  return CallMethod(runtime, "center", input, width);
}

absl::StatusOr<Text> Indentation(Runtime& runtime, const Value* width) {
  if (width != nullptr && IsString(*width)) return TextOf(*width);
  SKEIN_ASSIGN_OR_RETURN(const int64_t count, IntegerArgument(width, 4));
  const size_t size = count < 0 ? 0 : static_cast<size_t>(count);
  SKEIN_RETURN_IF_ERROR(runtime.Reserve(size));
  return Text(std::string(size, ' '));
}

Result IndentFilter(Runtime& runtime, const Value& input, const Arguments& arguments) {
  SKEIN_ASSIGN_OR_RETURN(const Bound bound, Bind("indent", arguments, {"width", "first", "blank"}));
  SKEIN_ASSIGN_OR_RETURN(const Text* text, TextArgument(&input));
  SKEIN_ASSIGN_OR_RETURN(const Text indent, Indentation(runtime, bound[0]));
  Text ended = *text;
  ended.Append("\n");
  const std::vector<Text> lines = SplitLines(ended, /*keep_ends=*/false);
  const size_t size = text->footprint() + lines.size() * (indent.footprint() + 1);
  SKEIN_RETURN_IF_ERROR(runtime.Reserve(size));
  SKEIN_RETURN_IF_ERROR(runtime.Work(size));
  const bool blank = TruthArgument(bound[2], false);
  Text out;
  if (TruthArgument(bound[1], false)) out.Append(indent);
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) out.Append("\n");
    if (i > 0 && (blank || !lines[i].empty())) out.Append(indent);
    out.Append(lines[i]);
  }
  return runtime.MakeString(std::move(out), IsMarkup(input));
}

Result TruncateFilter(Runtime& runtime, const Value& input, const Arguments& arguments) {
  SKEIN_ASSIGN_OR_RETURN(const Bound bound,
                         Bind("truncate", arguments, {"length", "killwords", "end", "leeway"}));
  SKEIN_ASSIGN_OR_RETURN(const Text* text, TextArgument(&input));
  SKEIN_ASSIGN_OR_RETURN(const int64_t length, IntegerArgument(bound[0], 255));
  SKEIN_ASSIGN_OR_RETURN(const int64_t leeway, IntegerArgument(bound[3], 5));
  Text end("...");
  if (bound[2] != nullptr) {
    SKEIN_ASSIGN_OR_RETURN(const Text* given, TextArgument(bound[2]));
    end = *given;
  }
  const int64_t end_size = CountCharacters(end.bytes());
  if (length < end_size || leeway < 0) return Invalid("truncate() to less than its end");
  SKEIN_RETURN_IF_ERROR(runtime.Work(text->size()));
  if (CountCharacters(text->bytes()) - leeway <= length) return input;
  Text out = text->Part(0, ByteOfCharacter(text->bytes(), length - end_size));
  if (!TruthArgument(bound[1], false)) out = SplitFromRight(out, " ", 1)[0];
  out.Append(end);
  return runtime.MakeString(std::move(out));
}

Result WordCountFilter(Runtime& runtime, const Value& input, const Arguments& arguments) {
  SKEIN_RETURN_IF_ERROR(Bind("wordcount", arguments, {}).status());
  SKEIN_ASSIGN_OR_RETURN(const Text text, Printed(runtime, input));
  SKEIN_RETURN_IF_ERROR(runtime.Work(text.size()));
  int64_t words = 0;
  bool inside = false;
  for (size_t at = 0; at < text.size();) {
    const uint32_t character = ReadCodePoint(text.bytes(), at);
    const bool is_word = character == '_' || IsAlphanumeric(character);
    words += is_word && !inside ? 1 : 0;
    inside = is_word;
  }
  return words;
}

Result FormatFilter(Runtime& runtime, const Value& input, const Arguments& arguments) {
  if (!arguments.positional.empty() && !arguments.named.empty()) {
    return Invalid("format() takes values by place or by name, not both");
  }
  SKEIN_ASSIGN_OR_RETURN(const Value format, AsString(runtime, input));
  SKEIN_ASSIGN_OR_RETURN(const Value values,
                         arguments.named.empty()
                             ? runtime.MakeList(arguments.positional, ListKind::kTuple)
                             : runtime.MakeDict(arguments.named));
  SKEIN_ASSIGN_OR_RETURN(Text text,
                         FormatPercent(runtime, TextOf(format), values, IsMarkup(format)));
  return runtime.MakeString(std::move(text), IsMarkup(format));
}

Result SafeFilter(Runtime& runtime, const Value& input, const Arguments& arguments) {
  SKEIN_RETURN_IF_ERROR(Bind("safe", arguments, {}).status());
  SKEIN_ASSIGN_OR_RETURN(Text text, Printed(runtime, input));
  return runtime.MakeString(std::move(text), /*markup=*/true);
}

Result EscapeFilter(Runtime& runtime, const Value& input, const Arguments& arguments) {
  SKEIN_RETURN_IF_ERROR(Bind("escape", arguments, {}).status());
  if (IsMarkup(input)) return input;
  SKEIN_ASSIGN_OR_RETURN(const Text text, Printed(runtime, input));
  SKEIN_RETURN_IF_ERROR(runtime.Reserve(6 * text.footprint()));
  SKEIN_RETURN_IF_ERROR(runtime.Work(text.size()));
  return runtime.MakeString(EscapeHtml(text), /*markup=*/true);
}

// Percent signs for all but letters, digits and _.-~/
Result UrlEncodeFilter(Runtime& runtime, const Value& input, const Arguments& arguments) {
  SKEIN_RETURN_IF_ERROR(Bind("urlencode", arguments, {}).status());
  if (!IsString(input)) return Invalid("urlencode of a ", TypeName(input), " is not supported");
  const Text& text = TextOf(input);
  SKEIN_RETURN_IF_ERROR(runtime.Reserve(4 * text.footprint()));
  SKEIN_RETURN_IF_ERROR(runtime.Work(4 * text.size()));
  constexpr char kHex[] = "0123456789ABCDEF";
  Text out;
  for (size_t at = 0; at < text.size(); ++at) {
    const auto byte = static_cast<unsigned char>(text.bytes()[at]);
    const bool plain = byte < 0x80 && (IsAlphanumeric(byte) ||
                                       std::string_view("_.-~/").find(static_cast<char>(byte)) !=
                                           std::string::npos);
    if (plain) {
      out.AppendPart(text, at, at + 1);
    } else {
      const char escape[] = {'%', kHex[byte >> 4], kHex[byte & 15]};
      out.Append(std::string_view(escape, 3), text.OriginOf(at, at + 1));
    }
  }
  return runtime.MakeString(std::move(out));
}

absl::StatusOr<JsonStyle> StyleOf(Runtime& runtime, const Bound& bound) {
  JsonStyle style{.ascii_only = TruthArgument(bound[0], false),
                  .sort_keys = TruthArgument(bound[3], false)};
  if (bound[1] != nullptr && !IsNone(*bound[1])) {
    SKEIN_ASSIGN_OR_RETURN(style.indent, Indentation(runtime, bound[1]));
  }
  style.item_separator = Text(style.indent ? "," : ", ");
  style.key_separator = Text(": ");
  if (bound[2] == nullptr || IsNone(*bound[2])) return style;
  SKEIN_ASSIGN_OR_RETURN(const std::vector<Value> pair, Iterate(runtime, *bound[2]));
  if (pair.size() != 2) return Invalid("tojson() needs two separators");
  SKEIN_ASSIGN_OR_RETURN(const Text* item, TextArgument(&pair[0]));
  SKEIN_ASSIGN_OR_RETURN(const Text* key, TextArgument(&pair[1]));
  style.item_separator = *item;
  style.key_separator = *key;
  return style;
}

Result ToJsonFilter(Runtime& runtime, const Value& input, const Arguments& arguments) {
  SKEIN_ASSIGN_OR_RETURN(
      const Bound bound,
      Bind("tojson", arguments, {"ensure_ascii", "indent", "separators", "sort_keys"}));
  SKEIN_ASSIGN_OR_RETURN(const JsonStyle style, StyleOf(runtime, bound));
  SKEIN_ASSIGN_OR_RETURN(Text text, ToJson(runtime, input, style));
  return runtime.MakeString(std::move(text));
}

}  // namespace

Filter FindTextFilter(std::string_view name) {
  static const auto& table = *new absl::flat_hash_map<std::string_view, Filter>({
      {"capitalize", CapitalizeFilter},
      {"center", CenterFilter},
      {"e", EscapeFilter},
      {"escape", EscapeFilter},
      {"format", FormatFilter},
      {"indent", IndentFilter},
      {"join", JoinFilter},
      {"lower", LowerFilter},
      {"replace", ReplaceFilter},
      {"safe", SafeFilter},
      {"string", StringFilter},
      {"title", TitleFilter},
      {"tojson", ToJsonFilter},
      {"trim", TrimFilter},
      {"truncate", TruncateFilter},
      {"upper", UpperFilter},
      {"urlencode", UrlEncodeFilter},
      {"wordcount", WordCountFilter},
  });
  const auto found = table.find(name);
  return found == table.end() ? nullptr : found->second;
}

}  // namespace skein::model
