#include "model/template/format_spec.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <vector>

#include "base/status_macros.h"
#include "model/template/characters.h"
#include "model/template/errors.h"
#include "model/template/numbers.h"
#include "model/template/text_edits.h"
#include "model/tokenizer/utf8.h"

namespace skein::model {
namespace {

constexpr int64_t kMaxPrecision = 400;  // more than any double has digits behind its point

bool IsAlign(char c) { return c == '<' || c == '>' || c == '^' || c == '='; }

bool ReadCount(const std::string& bytes, size_t& at, int64_t& out) {
  const char* const end = bytes.data() + bytes.size();
  const auto result = std::from_chars(bytes.data() + at, end, out);
  if (result.ec == std::errc::result_out_of_range) return false;
  at = static_cast<size_t>(result.ptr - bytes.data());
  return true;
}

// "1234567" in groups of `size` digits.
std::string Grouped(const std::string& digits, char separator, size_t size) {
  std::string out;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % size == 0) out += separator;
    out += digits[i];
  }
  return out;
}

std::string WithSign(bool negative, char sign) {
  if (negative) return "-";
  return sign == '-' ? "" : std::string(1, sign);
}

int64_t LeftShare(int64_t missing, char align) {
  return align == '<' ? 0 : align == '^' ? missing / 2 : missing;
}

// `head` is a sign and a prefix, before which or behind which the filling goes. `odd_left`: of an
// odd filling, the left side has more.
absl::StatusOr<Text> Fill(Runtime& runtime, const std::string& head, const Text& body,
                          const FormatSpec& spec, char align, bool odd_left = false) {
  const int64_t width = static_cast<int64_t>(head.size()) + CountCharacters(body.bytes());
  const int64_t missing = std::max<int64_t>(spec.width - width, 0);
  const auto total = static_cast<size_t>(missing);
  if (total > 0) {
    SKEIN_RETURN_IF_ERROR(runtime.Reserve(total));
    SKEIN_RETURN_IF_ERROR(runtime.Reserve(total * spec.fill.footprint()));
    SKEIN_RETURN_IF_ERROR(runtime.Work(total * spec.fill.footprint()));
  }
  const int64_t left = LeftShare(missing, align) + (odd_left ? missing % 2 : 0);
  Text out;
  if (align == '=') out.Append(head);
  for (int64_t i = 0; i < left; ++i) out.Append(spec.fill);
  if (align != '=') out.Append(head);
  out.Append(body);
  for (int64_t i = left; i < missing; ++i) out.Append(spec.fill);
  return out;
}

std::string Digits(uint64_t magnitude, int base, bool upper) {
  char buffer[72];
  const auto end = std::to_chars(buffer, buffer + sizeof(buffer), magnitude, base);
  std::string out(buffer, end.ptr);
  if (upper) {
    for (char& c : out) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  }
  return out;
}

std::string FormattedByC(double magnitude, char type, int precision, bool alternate) {
  const char format[] = {'%',
                         alternate ? '#' : '.',
                         alternate ? '.' : '*',
                         alternate ? '*' : type,
                         alternate ? type : '\0',
                         '\0'};
  std::vector<char> buffer(static_cast<size_t>(precision) + 340);
  std::snprintf(buffer.data(), buffer.size(), format, precision, magnitude);
  return buffer.data();
}

}  // namespace

absl::StatusOr<FormatSpec> ParseFormatSpec(const Text& text) {
  FormatSpec spec;
  const std::string& bytes = text.bytes();
  size_t at = 0;
  if (!bytes.empty()) {
    size_t next = 0;
    ReadCodePoint(bytes, next);
    if (next < bytes.size() && IsAlign(bytes[next])) {
      spec.fill = text.Part(0, next);
      spec.align = bytes[next];
      at = next + 1;
    } else if (IsAlign(bytes[0])) {
      spec.align = bytes[0];
      at = 1;
    }
  }
  const auto peek = [&] { return at < bytes.size() ? bytes[at] : '\0'; };
  if (peek() == '+' || peek() == '-' || peek() == ' ') spec.sign = bytes[at++];
  if (peek() == '#') spec.alternate = ++at > 0;
  if (peek() == '0') {
    if (spec.align == '\0') {
      spec.align = '=';
      spec.fill = Text("0");
    }
    ++at;
  }
  if (!ReadCount(bytes, at, spec.width)) return Invalid("a width is too large");
  if (peek() == ',' || peek() == '_') spec.grouping = bytes[at++];
  if (peek() == '.') {
    const size_t digits = ++at;
    if (!ReadCount(bytes, at, spec.precision) || at == digits) {
      return Invalid("a precision is missing, or too large");
    }
  }
  if (at < bytes.size()) spec.type = bytes[at++];
  if (at < bytes.size()) return Invalid("'", bytes, "' is no format specification");
  return spec;
}

absl::StatusOr<Text> FormatText(Runtime& runtime, const Text& text, const FormatSpec& spec) {
  if ((spec.type != '\0' && spec.type != 's') || spec.align == '=' || spec.sign != '-' ||
      spec.alternate || spec.grouping != '\0') {
    return Invalid("a string cannot be formatted so");
  }
  const Text cut =
      spec.precision < 0 ? text : text.Part(0, ByteOfCharacter(text.bytes(), spec.precision));
  return Fill(runtime, "", cut, spec, spec.align == '\0' ? '<' : spec.align);
}

absl::StatusOr<Text> Center(Runtime& runtime, const Text& text, const FormatSpec& spec) {
  return Fill(runtime, "", text, spec, '^', /*odd_left=*/spec.width % 2 != 0);
}

absl::StatusOr<Text> FormatInteger(Runtime& runtime, int64_t number, const FormatSpec& spec) {
  const char type = spec.type == '\0' ? 'd' : spec.type;
  if (std::string_view("eEfFgG%").find(type) != std::string_view::npos) {
    return FormatFloat(runtime, static_cast<double>(number), spec);
  }
  const bool negative = number < 0;
  const uint64_t magnitude =
      negative ? -static_cast<uint64_t>(number) : static_cast<uint64_t>(number);
  const int base = type == 'x' || type == 'X' ? 16 : type == 'o' ? 8 : type == 'b' ? 2 : 10;
  if (std::string_view("dnxXob").find(type) == std::string_view::npos || spec.precision >= 0) {
    return Invalid("an integer cannot be formatted so");
  }
  std::string head = WithSign(negative, spec.sign);
  if (spec.alternate && base != 10) head += std::string("0") + type;
  std::string digits = Digits(magnitude, base, type == 'X');
  if (spec.grouping != '\0') digits = Grouped(digits, spec.grouping, base == 10 ? 3 : 4);
  return Fill(runtime, head, Text(digits), spec, spec.align == '\0' ? '>' : spec.align);
}

absl::StatusOr<Text> FormatFloat(Runtime& runtime, double number, const FormatSpec& spec) {
  char type = spec.type;
  if (type != '\0' && std::string_view("eEfFgGn%").find(type) == std::string_view::npos) {
    return Invalid("a float cannot be formatted so");
  }
  if (spec.precision > kMaxPrecision) return Invalid("a precision is too large");
  const double magnitude = std::fabs(number);
  std::string body;
  if (!std::isfinite(number)) {
    body = std::isnan(number) ? "nan" : "inf";
    if (type == 'E' || type == 'F' || type == 'G') body = std::isnan(number) ? "NAN" : "INF";
  } else if (type == '\0' && spec.precision < 0) {
    body = FloatRepr(magnitude);
  } else {
    const int precision = spec.precision < 0 ? 6 : static_cast<int>(spec.precision);
    const bool percent = type == '%';
    if (type == 'n' || type == '\0') type = 'g';
    body = FormattedByC(percent ? magnitude * 100 : magnitude, percent ? 'f' : type, precision,
                        spec.alternate);
  }
  if (spec.grouping != '\0') {
    const size_t whole = std::min(body.find_first_not_of("0123456789"), body.size());
    body = Grouped(body.substr(0, whole), spec.grouping, 3) + body.substr(whole);
  }
  if (type == '%') body += "%";
  const std::string head = WithSign(std::signbit(number) && !std::isnan(number), spec.sign);
  return Fill(runtime, head, Text(body), spec, spec.align == '\0' ? '>' : spec.align);
}

}  // namespace skein::model
