#include "model/template/to_json.h"

#include <cmath>
#include <cstdio>
#include <numeric>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status_macros.h"
#include "model/template/comparison.h"
#include "model/template/errors.h"
#include "model/template/numbers.h"
#include "model/tokenizer/utf8.h"

namespace skein::model {
namespace {

std::string Unit(uint32_t utf16) {
  char buffer[8];
  std::snprintf(buffer, sizeof(buffer), "\\u%04x", utf16);
  return buffer;
}

// Empty: the character stays as it is.
std::string EscapeOf(uint32_t character, bool ascii_only) {
  switch (character) {
    case '"':
      return "\\\"";
    case '\\':
      return "\\\\";
    case '\n':
      return "\\n";
    case '\r':
      return "\\r";
    case '\t':
      return "\\t";
    case '\f':
      return "\\f";
    case '\b':
      return "\\b";
    default:
      break;
  }
  if (character >= 0x20 && (character < 0x7F || !ascii_only)) return "";
  if (character < 0x10000) return Unit(character);
  return Unit(0xD800 + ((character - 0x10000) >> 10)) + Unit(0xDC00 + (character & 0x3FF));
}

std::string JsonNumber(double number) {
  if (std::isnan(number)) return "NaN";
  if (std::isinf(number)) return number < 0 ? "-Infinity" : "Infinity";
  return FloatRepr(number);
}

class JsonWriter {
 public:
  JsonWriter(Runtime& runtime, const JsonStyle& style) : runtime_(runtime), style_(style) {}

  absl::Status Write(const Value& value, size_t depth) {
    const Runtime::DepthGuard deeper(runtime_);
    if (!deeper.ok) return runtime_.DepthError();
    SKEIN_RETURN_IF_ERROR(runtime_.Step());
    if (IsString(value)) return WriteString(TextOf(value));
    if (const auto* list = std::get_if<ListPtr>(&value)) {
      const ListKind kind = (*list)->kind;
      if (kind == ListKind::kList || kind == ListKind::kTuple) return WriteList(**list, depth);
    }
    if (const auto* dict = std::get_if<DictPtr>(&value)) return WriteDict(**dict, depth);
    SKEIN_ASSIGN_OR_RETURN(const std::string scalar, Scalar(value));
    out_.Append(scalar);
    return absl::OkStatus();
  }

  Text Take() { return std::move(out_); }

 private:
  absl::StatusOr<std::string> Scalar(const Value& value) {
    if (IsNone(value)) return std::string("null");
    if (const auto* truth = std::get_if<bool>(&value))
      return std::string(*truth ? "true" : "false");
    if (const auto* integer = std::get_if<int64_t>(&value)) return std::to_string(*integer);
    if (const auto* number = std::get_if<double>(&value)) return JsonNumber(*number);
    if (IsUndefined(value)) return Invalid(*std::get<Undefined>(value).why, ": it has no JSON");
    return Invalid("a ", TypeName(value), " has no JSON");
  }

  absl::Status WriteString(const Text& text) {
    const std::string& bytes = text.bytes();
    SKEIN_RETURN_IF_ERROR(runtime_.Work(2 * bytes.size()));
    SKEIN_RETURN_IF_ERROR(runtime_.Reserve(out_.footprint() + 6 * text.footprint()));
    out_.Append("\"");
    size_t done = 0;
    for (size_t at = 0; at < bytes.size();) {
      const size_t begin = at;
      const std::string escape = EscapeOf(ReadCodePoint(bytes, at), style_.ascii_only);
      if (escape.empty()) continue;
      out_.AppendPart(text, done, begin);
      out_.Append(escape, text.OriginOf(begin, at));
      done = at;
    }
    out_.AppendPart(text, done, bytes.size());
    out_.Append("\"");
    return absl::OkStatus();
  }

  absl::Status NewLine(size_t depth) {
    if (!style_.indent) return absl::OkStatus();
    const size_t size = 1 + depth * style_.indent->footprint();
    SKEIN_RETURN_IF_ERROR(runtime_.Work(size));
    SKEIN_RETURN_IF_ERROR(runtime_.Reserve(out_.footprint() + size));
    out_.Append("\n");
    for (size_t i = 0; i < depth; ++i) out_.Append(*style_.indent);
    return absl::OkStatus();
  }

  absl::Status Separate(bool first, size_t depth) {
    if (!first) {
      SKEIN_RETURN_IF_ERROR(runtime_.Work(style_.item_separator.size()));
      SKEIN_RETURN_IF_ERROR(runtime_.Reserve(out_.footprint() + style_.item_separator.footprint()));
      out_.Append(style_.item_separator);
    }
    return NewLine(depth);
  }

  absl::Status WriteList(const List& list, size_t depth) {
    out_.Append("[");
    for (size_t i = 0; i < list.items.size(); ++i) {
      SKEIN_RETURN_IF_ERROR(Separate(i == 0, depth + 1));
      SKEIN_RETURN_IF_ERROR(Write(list.items[i], depth + 1));
    }
    if (!list.items.empty()) SKEIN_RETURN_IF_ERROR(NewLine(depth));
    out_.Append("]");
    return absl::OkStatus();
  }

  absl::Status WriteKey(const Value& key) {
    if (IsString(key)) return WriteString(TextOf(key));
    if (IsUndefined(key)) return Invalid("undefined is no key of JSON");
    SKEIN_ASSIGN_OR_RETURN(const std::string scalar, Scalar(key));
    out_.Append("\"" + scalar + "\"");
    return absl::OkStatus();
  }

  absl::Status WriteDict(const Dict& dict, size_t depth) {
    std::vector<size_t> order(dict.entries.size());
    std::iota(order.begin(), order.end(), size_t{0});
    if (style_.sort_keys) {
      std::vector<Value> keys;
      for (const auto& entry : dict.entries) keys.push_back(entry.first);
      SKEIN_ASSIGN_OR_RETURN(order, StableOrder(runtime_, keys, /*reverse=*/false));
    }
    out_.Append("{");
    for (size_t i = 0; i < order.size(); ++i) {
      const auto& [key, value] = dict.entries[order[i]];
      SKEIN_RETURN_IF_ERROR(Separate(i == 0, depth + 1));
      SKEIN_RETURN_IF_ERROR(WriteKey(key));
      SKEIN_RETURN_IF_ERROR(runtime_.Work(style_.key_separator.size()));
      SKEIN_RETURN_IF_ERROR(runtime_.Reserve(out_.footprint() + style_.key_separator.footprint()));
      out_.Append(style_.key_separator);
      SKEIN_RETURN_IF_ERROR(Write(value, depth + 1));
    }
    if (!order.empty()) SKEIN_RETURN_IF_ERROR(NewLine(depth));
    out_.Append("}");
    return absl::OkStatus();
  }

  Runtime& runtime_;
  const JsonStyle& style_;
  Text out_;
};

}  // namespace

absl::StatusOr<Text> ToJson(Runtime& runtime, const Value& value, const JsonStyle& style) {
  JsonWriter writer(runtime, style);
  SKEIN_RETURN_IF_ERROR(writer.Write(value, 0));
  return writer.Take();
}

}  // namespace skein::model
