#include "model/template/printing.h"

#include <cstdio>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status_macros.h"
#include "model/template/characters.h"
#include "model/template/errors.h"
#include "model/template/numbers.h"
#include "model/tokenizer/utf8.h"

namespace skein::model {
namespace {

// How repr() writes a character; empty: as it is.
std::string EscapeOf(uint32_t character, char quote) {
  if (character == static_cast<uint32_t>(quote) || character == '\\') {
    return {'\\', static_cast<char>(character)};
  }
  if (character == '\n') return "\\n";
  if (character == '\r') return "\\r";
  if (character == '\t') return "\\t";
  if (IsPrintable(character)) return "";
  char buffer[16];
  const char* const format = character < 0x100     ? "\\x%02x"
                             : character < 0x10000 ? "\\u%04x"
                                                   : "\\U%08x";
  std::snprintf(buffer, sizeof(buffer), format, character);
  return buffer;
}

class Printer {
 public:
  explicit Printer(Runtime& runtime) : runtime_(runtime) {}

  absl::Status Quoted(const Value& value) {
    const Runtime::DepthGuard deeper(runtime_);
    if (!deeper.ok) return runtime_.DepthError();
    SKEIN_RETURN_IF_ERROR(runtime_.Step());
    SKEIN_RETURN_IF_ERROR(runtime_.Reserve(out_.footprint()));
    if (IsString(value)) return QuotedString(value);
    if (const auto* list = std::get_if<ListPtr>(&value)) return QuotedList(**list);
    if (const auto* dict = std::get_if<DictPtr>(&value)) return QuotedDict(**dict);
    if (const auto* space = std::get_if<NamespacePtr>(&value)) {
      out_.Append("<Namespace ");
      SKEIN_RETURN_IF_ERROR(QuotedDict((*space)->attributes));
      out_.Append(">");
      return absl::OkStatus();
    }
    return Scalar(value);
  }

  Text Take() { return std::move(out_); }

 private:
  absl::Status Scalar(const Value& value) {
    if (IsUndefined(value)) {
      out_.Append("Undefined");
    } else if (IsNone(value)) {
      out_.Append("None");
    } else if (const auto* truth = std::get_if<bool>(&value)) {
      out_.Append(*truth ? "True" : "False");
    } else if (const auto* integer = std::get_if<int64_t>(&value)) {
      out_.Append(std::to_string(*integer));
    } else if (const auto* number = std::get_if<double>(&value)) {
      out_.Append(FloatRepr(*number));
    } else {
      return Invalid("printing a ", TypeName(value), " is not supported");
    }
    return absl::OkStatus();
  }

  absl::Status QuotedString(const Value& value) {
    const Text& text = TextOf(value);
    const std::string& bytes = text.bytes();
    SKEIN_RETURN_IF_ERROR(runtime_.Work(bytes.size()));
    SKEIN_RETURN_IF_ERROR(runtime_.Reserve(out_.footprint() + text.footprint()));
    const bool has_single = bytes.find('\'') != std::string::npos;
    const char quote = has_single && bytes.find('"') == std::string::npos ? '"' : '\'';
    if (IsMarkup(value)) out_.Append("Markup(");
    out_.Append(std::string_view(&quote, 1));
    for (size_t at = 0; at < bytes.size();) {
      const size_t begin = at;
      const std::string escape = EscapeOf(ReadCodePoint(bytes, at), quote);
      if (escape.empty()) {
        out_.AppendPart(text, begin, at);
      } else {
        out_.Append(escape, text.OriginOf(begin, at));
      }
    }
    out_.Append(std::string_view(&quote, 1));
    if (IsMarkup(value)) out_.Append(")");
    return absl::OkStatus();
  }

  absl::Status Items(const std::vector<Value>& items) {
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) out_.Append(", ");
      SKEIN_RETURN_IF_ERROR(Quoted(items[i]));
    }
    return absl::OkStatus();
  }

  absl::Status QuotedList(const List& list) {
    if (list.kind == ListKind::kRange) {
      out_.Append("range(" + std::to_string(list.start) + ", " + std::to_string(list.stop));
      if (list.step != 1) out_.Append(", " + std::to_string(list.step));
      out_.Append(")");
      return absl::OkStatus();
    }
    const bool is_tuple = list.kind == ListKind::kTuple;
    const bool is_view = !is_tuple && list.kind != ListKind::kList;
    if (is_view) {
      out_.Append(list.kind == ListKind::kKeys     ? "dict_keys("
                  : list.kind == ListKind::kValues ? "dict_values("
                                                   : "dict_items(");
    }
    out_.Append(is_tuple ? "(" : "[");
    SKEIN_RETURN_IF_ERROR(Items(list.items));
    if (is_tuple && list.items.size() == 1) out_.Append(",");
    out_.Append(is_tuple ? ")" : "]");
    if (is_view) out_.Append(")");
    return absl::OkStatus();
  }

  absl::Status QuotedDict(const Dict& dict) {
    out_.Append("{");
    for (size_t i = 0; i < dict.entries.size(); ++i) {
      if (i > 0) out_.Append(", ");
      SKEIN_RETURN_IF_ERROR(Quoted(dict.entries[i].first));
      out_.Append(": ");
      SKEIN_RETURN_IF_ERROR(Quoted(dict.entries[i].second));
    }
    out_.Append("}");
    return absl::OkStatus();
  }

  Runtime& runtime_;
  Text out_;
};

}  // namespace

absl::StatusOr<Text> PrintedQuoted(Runtime& runtime, const Value& value) {
  Printer printer(runtime);
  SKEIN_RETURN_IF_ERROR(printer.Quoted(value));
  return printer.Take();
}

absl::StatusOr<Text> Printed(Runtime& runtime, const Value& value) {
  if (IsString(value)) return TextOf(value);
  if (IsUndefined(value)) return Text();
  return PrintedQuoted(runtime, value);
}

}  // namespace skein::model
