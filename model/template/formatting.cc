#include "model/template/formatting.h"

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/status_macros.h"
#include "model/template/attributes.h"
#include "model/template/characters.h"
#include "model/template/errors.h"
#include "model/template/format_spec.h"
#include "model/template/numbers.h"
#include "model/template/printing.h"
#include "model/template/text_edits.h"

namespace skein::model {
namespace {

absl::StatusOr<Text> PrintEscaped(Runtime& runtime, const Value& value, bool markup) {
  SKEIN_ASSIGN_OR_RETURN(Text text, Printed(runtime, value));
  SKEIN_RETURN_IF_ERROR(runtime.Work(text.size()));
  return markup && !IsMarkup(value) ? EscapeHtml(text) : text;
}

// Appends, held to the memory that is left.
absl::Status AppendTo(Runtime& runtime, Text& out, const Text& part) {
  SKEIN_RETURN_IF_ERROR(runtime.Work(part.size()));
  SKEIN_RETURN_IF_ERROR(runtime.Reserve(out.footprint() + part.footprint()));
  out.Append(part);
  return absl::OkStatus();
}

class PercentFormatter {
 public:
  PercentFormatter(Runtime& runtime, const Text& format, const Value& values, bool markup)
      : runtime_(runtime), format_(format), values_(values), markup_(markup) {
    if (const List* tuple = ListOf(values, ListKind::kTuple)) tuple_ = tuple;
  }

  absl::StatusOr<Text> Run() {
    const std::string& bytes = format_.bytes();
    Text out;
    size_t done = 0;
    for (at_ = bytes.find('%'); at_ != std::string::npos; at_ = bytes.find('%', at_)) {
      out.AppendPart(format_, done, at_++);
      SKEIN_ASSIGN_OR_RETURN(const Text part, One());
      SKEIN_RETURN_IF_ERROR(AppendTo(runtime_, out, part));
      done = at_;
    }
    out.AppendPart(format_, done, bytes.size());
    const bool all_used = tuple_ != nullptr ? next_ == tuple_->items.size() : next_ > 0;
    if (!all_used && !by_name_ && !MayStayUnused()) {
      return Invalid("not all arguments were used by the format");
    }
    return out;
  }

 private:
  // Python minds neither a mapping nor a list that no conversion took.
  bool MayStayUnused() const {
    return std::holds_alternative<DictPtr>(values_) ||
           ListOf(values_, ListKind::kList) != nullptr ||
           ListOf(values_, ListKind::kRange) != nullptr;
  }

  absl::StatusOr<Value> Next() {
    const size_t index = next_++;
    if (tuple_ != nullptr && index < tuple_->items.size()) return tuple_->items[index];
    if (tuple_ == nullptr && index == 0) return values_;
    return Invalid("not enough arguments for the format");
  }

  absl::StatusOr<Value> Named() {
    const std::string& bytes = format_.bytes();
    const size_t close = bytes.find(')', at_);
    const auto* dict = std::get_if<DictPtr>(&values_);
    if (close == std::string::npos || dict == nullptr) return Invalid("the format needs a dict");
    const Value* const found =
        (*dict)->Find(std::string_view(bytes).substr(at_ + 1, close - at_ - 1));
    at_ = close + 1;
    by_name_ = true;
    if (found == nullptr) return Invalid("the format names a key that is not there");
    return *found;
  }

  absl::StatusOr<int64_t> Count(int64_t none) {
    const std::string& bytes = format_.bytes();
    if (at_ < bytes.size() && bytes[at_] == '*') {
      ++at_;
      SKEIN_ASSIGN_OR_RETURN(const Value value, Next());
      const auto* count = std::get_if<int64_t>(&value);
      if (count == nullptr || *count < 0) return Invalid("'*' of a format needs a natural number");
      return *count;
    }
    int64_t count = none;
    for (; at_ < bytes.size() && bytes[at_] >= '0' && bytes[at_] <= '9'; ++at_) {
      count = (count < 0 ? 0 : count) * 10 + (bytes[at_] - '0');
      if (count > (int64_t{1} << 31)) return Invalid("a width is too large");
    }
    return count;
  }

  absl::StatusOr<Text> One() {
    const std::string& bytes = format_.bytes();
    const auto peek = [&] { return at_ < bytes.size() ? bytes[at_] : '\0'; };
    std::optional<Value> value;
    if (peek() == '(') {
      SKEIN_ASSIGN_OR_RETURN(value, Named());
    }
    FormatSpec spec;
    spec.align = '>';
    for (; std::string_view("-+ 0#").find(peek()) != std::string_view::npos && peek() != '\0';
         ++at_) {
      if (peek() == '-') spec.align = '<';
      if (peek() == '+' || (peek() == ' ' && spec.sign != '+')) spec.sign = peek();
      if (peek() == '#') spec.alternate = true;
      if (peek() == '0' && spec.align != '<') spec.align = '=';
    }
    SKEIN_ASSIGN_OR_RETURN(spec.width, Count(0));
    if (peek() == '.') {
      ++at_;
      SKEIN_ASSIGN_OR_RETURN(spec.precision, Count(0));
    }
    while (peek() == 'l' || peek() == 'h' || peek() == 'L') ++at_;
    const char type = peek();
    ++at_;
    if (type == '%') return Text("%");
    if (!value) {
      SKEIN_ASSIGN_OR_RETURN(value, Next());
    }
    return Convert(*value, spec, type);
  }

  absl::StatusOr<Text> Convert(const Value& value, FormatSpec spec, char type) {
    if (type == 's' || type == 'r') {
      if (spec.align == '=') spec.align = '>';
      spec.sign = '-';
      spec.alternate = false;
      SKEIN_ASSIGN_OR_RETURN(const Text text, type == 's' ? PrintEscaped(runtime_, value, markup_)
                                                          : PrintedQuoted(runtime_, value));
      return FormatText(runtime_, text, spec);
    }
    if (spec.align == '=') spec.fill = Text("0");
    if (type == 'c') {
      if (IsString(value) && CountCharacters(TextOf(value).bytes()) == 1) {
        return FormatText(runtime_, TextOf(value), FormatSpec{.width = spec.width});
      }
      return Invalid("%c needs one character");
    }
    const auto number = NumberOf(value);
    if (!number) return Invalid("the format needs a number, got a ", TypeName(value));
    if (std::string_view("diuxXo").find(type) != std::string_view::npos && type != '\0') {
      auto integer = IntegerOf(value);
      if (!integer && std::string_view("xXo").find(type) != std::string_view::npos) {
        return Invalid("the format needs an integer, got a float");
      }
      if (!integer) {
        SKEIN_ASSIGN_OR_RETURN(integer, Truncate(*number));
      }
      return ConvertInteger(*integer, spec, type);
    }
    if (std::string_view("eEfFgG").find(type) == std::string_view::npos || type == '\0') {
      return Invalid("a format has no conversion '", std::string(1, type), "'");
    }
    spec.type = type;
    return FormatFloat(runtime_, *number, spec);
  }

  // The precision is the least number of digits.
  absl::StatusOr<Text> ConvertInteger(int64_t integer, FormatSpec spec, char type) {
    spec.type = type == 'i' || type == 'u' ? 'd' : type;
    if (spec.precision < 0) return FormatInteger(runtime_, integer, spec);
    FormatSpec digits{.fill = Text("0"),
                      .align = '=',
                      .sign = spec.sign,
                      .alternate = spec.alternate,
                      .type = spec.type};
    digits.width = spec.precision + (integer < 0 || spec.sign != '-' ? 1 : 0) +
                   (spec.alternate && spec.type != 'd' ? 2 : 0);
    SKEIN_ASSIGN_OR_RETURN(const Text body, FormatInteger(runtime_, integer, digits));
    return FormatText(runtime_, body,
                      FormatSpec{.align = spec.align == '<' ? '<' : '>', .width = spec.width});
  }

  Runtime& runtime_;
  const Text& format_;
  const Value& values_;
  const bool markup_;
  const List* tuple_ = nullptr;
  size_t at_ = 0;
  size_t next_ = 0;
  bool by_name_ = false;
};

class BraceFormatter {
 public:
  BraceFormatter(Runtime& runtime, const Arguments& arguments, bool markup)
      : runtime_(runtime), arguments_(arguments), markup_(markup) {}

  absl::StatusOr<Text> Run(const Text& format, int nesting) {
    if (nesting > 1) return Invalid("fields of a format are too deep inside each other");
    const std::string& bytes = format.bytes();
    Text out;
    for (size_t at = 0; at < bytes.size();) {
      const char c = bytes[at];
      if ((c == '{' || c == '}') && at + 1 < bytes.size() && bytes[at + 1] == c) {
        out.AppendPart(format, at, at + 1);
        at += 2;
      } else if (c == '{') {
        const size_t end = FieldEnd(bytes, at + 1);
        if (end == std::string::npos) return Invalid("'{' without '}' in a format");
        SKEIN_ASSIGN_OR_RETURN(const Text part, Field(format.Part(at + 1, end), nesting));
        SKEIN_RETURN_IF_ERROR(AppendTo(runtime_, out, part));
        at = end + 1;
      } else if (c == '}') {
        return Invalid("'}' without '{' in a format");
      } else {
        const size_t end = std::min(bytes.find_first_of("{}", at), bytes.size());
        out.AppendPart(format, at, end);
        at = end;
      }
    }
    return out;
  }

 private:
  static size_t FieldEnd(const std::string& bytes, size_t at) {
    int open = 1;
    for (; at < bytes.size(); ++at) {
      if (bytes[at] == '{') ++open;
      if (bytes[at] == '}' && --open == 0) return at;
    }
    return std::string::npos;
  }

  absl::StatusOr<Text> Field(const Text& field, int nesting) {
    const std::string& bytes = field.bytes();
    // A name's brackets may hold these, too.
    size_t name_end = 0;
    bool in_brackets = false;
    for (; name_end < bytes.size(); ++name_end) {
      const char c = bytes[name_end];
      if (c == '[') in_brackets = true;
      if (c == ']') in_brackets = false;
      if (!in_brackets && (c == ':' || c == '!')) break;
    }
    SKEIN_ASSIGN_OR_RETURN(const Value value, Lookup(bytes.substr(0, name_end)));
    char conversion = '\0';
    size_t at = name_end;
    if (at < bytes.size() && bytes[at] == '!') {
      conversion = at + 1 < bytes.size() ? bytes[at + 1] : '?';
      at += 2;
      if (conversion != 's' && conversion != 'r') return Invalid("a format has no such conversion");
      if (at < bytes.size() && bytes[at] != ':') return Invalid("expected ':' in a format");
    }
    Text spec;
    if (at < bytes.size()) {
      SKEIN_ASSIGN_OR_RETURN(spec, Run(field.Part(at + 1, bytes.size()), nesting + 1));
    }
    return Convert(value, conversion, spec);
  }

  absl::StatusOr<Text> Convert(const Value& value, char conversion, const Text& spec_text) {
    if (conversion == 'r') {
      SKEIN_ASSIGN_OR_RETURN(const Text quoted, PrintedQuoted(runtime_, value));
      SKEIN_ASSIGN_OR_RETURN(const FormatSpec spec, ParseFormatSpec(spec_text));
      return FormatText(runtime_, markup_ ? EscapeHtml(quoted) : quoted, spec);
    }
    if (spec_text.empty()) return PrintEscaped(runtime_, value, markup_);
    SKEIN_ASSIGN_OR_RETURN(const FormatSpec spec, ParseFormatSpec(spec_text));
    if (conversion == '\0') {
      if (const auto* number = std::get_if<double>(&value)) {
        return FormatFloat(runtime_, *number, spec);
      }
      if (const auto integer = IntegerOf(value)) return FormatInteger(runtime_, *integer, spec);
      if (!IsString(value)) return Invalid("a ", TypeName(value), " cannot be formatted so");
    }
    SKEIN_ASSIGN_OR_RETURN(const Text text, PrintEscaped(runtime_, value, markup_));
    return FormatText(runtime_, text, spec);
  }

  absl::StatusOr<Value> First(const std::string& name) {
    const bool is_number =
        !name.empty() && name.find_first_not_of("0123456789") == std::string::npos;
    if (name.empty() || is_number) {
      if (name.empty() == numbered_ && counted_) return Invalid("a format mixes {} and {0}");
      counted_ = true;
      numbered_ = is_number;
      SKEIN_ASSIGN_OR_RETURN(const auto index,
                             is_number ? ParseInteger(name, 10) : std::optional<int64_t>(next_++));
      if (!index || *index >= std::ssize(arguments_.positional)) {
        return Invalid("not enough arguments for the format");
      }
      return arguments_.positional[static_cast<size_t>(*index)];
    }
    for (const auto& [key, value] : arguments_.named) {
      if (TextOf(key).bytes() == name) return value;
    }
    return Invalid("the format names '", name, "', which is not given");
  }

  absl::StatusOr<Value> Lookup(const std::string& path) {
    size_t at = std::min(path.find_first_of(".["), path.size());
    SKEIN_ASSIGN_OR_RETURN(Value value, First(path.substr(0, at)));
    while (at < path.size()) {
      const bool is_key = path[at] == '[';
      const size_t end = is_key ? path.find(']', at) : path.find_first_of(".[", at + 1);
      if (is_key && end == std::string::npos) return Invalid("'[' without ']' in a format");
      const size_t stop = std::min(end, path.size());
      const std::string part = path.substr(at + 1, stop - at - 1);
      if (part.empty()) return Invalid("a format has an empty name");
      SKEIN_ASSIGN_OR_RETURN(value, Step(value, part, is_key));
      at = stop + (is_key ? 1 : 0);
      if (is_key && at < path.size() && path[at] != '.' && path[at] != '[') {
        return Invalid("expected '.' or '[' in a format");
      }
    }
    return value;
  }

  absl::StatusOr<Value> Step(const Value& value, const std::string& part, bool is_key) {
    if (!is_key) return GetAttribute(runtime_, value, part);
    if (part.find_first_not_of("0123456789") == std::string::npos) {
      SKEIN_ASSIGN_OR_RETURN(const auto index, ParseInteger(part, 10));
      if (index) return GetItem(runtime_, value, *index);
    }
    SKEIN_ASSIGN_OR_RETURN(const Value name, runtime_.MakeString(part));
    return GetItem(runtime_, value, name);
  }

  Runtime& runtime_;
  const Arguments& arguments_;
  const bool markup_;
  int64_t next_ = 0;
  bool counted_ = false;
  bool numbered_ = false;
};

}  // namespace

absl::StatusOr<Text> FormatPercent(Runtime& runtime, const Text& format, const Value& values,
                                   bool markup) {
  return PercentFormatter(runtime, format, values, markup).Run();
}

absl::StatusOr<Text> FormatBraces(Runtime& runtime, const Text& format, const Arguments& arguments,
                                  bool markup) {
  return BraceFormatter(runtime, arguments, markup).Run(format, 0);
}

}  // namespace skein::model
