#include "model/template/literals.h"

#include <charconv>
#include <cmath>

#include "model/template/characters.h"
#include "model/template/errors.h"

namespace skein::model {
namespace {

bool IsAsciiDigit(char c) { return c >= '0' && c <= '9'; }

int DigitOf(char c) {
  if (IsAsciiDigit(c)) return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return 99;
}

// Behind the digits of this base that begin at `at`, single underscores between them.
size_t DigitsEnd(std::string_view text, size_t at, int base) {
  while (at < text.size()) {
    if (DigitOf(text[at]) < base) {
      ++at;
    } else if (text[at] == '_' && at + 1 < text.size() && DigitOf(text[at + 1]) < base) {
      at += 2;
    } else {
      break;
    }
  }
  return at;
}

std::string WithoutUnderscores(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c != '_') out += c;
  }
  return out;
}

// Behind a float, or 0 where an integer stands.
size_t FloatEnd(std::string_view text) {
  const size_t whole = DigitsEnd(text, 0, 10);
  size_t end = whole;
  if (end + 1 < text.size() && text[end] == '.' && IsAsciiDigit(text[end + 1])) {
    end = DigitsEnd(text, end + 1, 10);
  }
  if (end < text.size() && (text[end] == 'e' || text[end] == 'E')) {
    size_t digits = end + 1;
    if (digits < text.size() && (text[digits] == '+' || text[digits] == '-')) ++digits;
    if (digits < text.size() && IsAsciiDigit(text[digits])) return DigitsEnd(text, digits, 10);
  }
  return end == whole ? 0 : end;
}

int BaseOf(std::string_view text) {
  if (text.size() < 3 || text[0] != '0') return 10;
  const char letter = static_cast<char>(text[1] | 0x20);
  const int base = letter == 'b' ? 2 : letter == 'o' ? 8 : letter == 'x' ? 16 : 10;
  const size_t digit = text[2] == '_' && text.size() > 3 ? 3 : 2;
  return base != 10 && DigitOf(text[digit]) < base ? base : 10;
}

struct Escape {
  std::string text;
  size_t size = 0;  // of the escape, its backslash counted
};

absl::StatusOr<Escape> Numbered(std::string_view escape, size_t from, size_t digits, int base) {
  uint32_t code_point = 0;
  for (size_t i = from; i < from + digits; ++i) {
    if (i >= escape.size() || DigitOf(escape[i]) >= base) {
      return Invalid("an escape of a string ends early");
    }
    code_point = code_point * base + static_cast<uint32_t>(DigitOf(escape[i]));
  }
  if (code_point > 0x10FFFF || (code_point >= 0xD800 && code_point < 0xE000)) {
    return Invalid("an escape of a string names no character");
  }
  Escape out{.size = from + digits};
  AppendUtf8(code_point, out.text);
  return out;
}

absl::StatusOr<Escape> ReadEscape(std::string_view escape) {
  const char kind = escape.size() > 1 ? escape[1] : '\0';
  switch (kind) {
    case '\n':
      return Escape{"", 2};
    case '\\':
    case '\'':
    case '"':
      return Escape{std::string(1, kind), 2};
    case 'a':
      return Escape{"\a", 2};
    case 'b':
      return Escape{"\b", 2};
    case 'f':
      return Escape{"\f", 2};
    case 'n':
      return Escape{"\n", 2};
    case 'r':
      return Escape{"\r", 2};
    case 't':
      return Escape{"\t", 2};
    case 'v':
      return Escape{"\v", 2};
    case 'x':
      return Numbered(escape, 2, 2, 16);
    case 'u':
      return Numbered(escape, 2, 4, 16);
    case 'U':
      return Numbered(escape, 2, 8, 16);
    case 'N':
      return Invalid("characters by their names (\\N) are not supported");
    default:
      break;
  }
  size_t octal = 1;
  while (octal < 4 && octal < escape.size() && DigitOf(escape[octal]) < 8) ++octal;
  if (octal > 1) return Numbered(escape, 1, octal - 1, 8);
  return Escape{"\\", 1};
}

}  // namespace

absl::StatusOr<std::string> Unescape(std::string_view quoted) {
  std::string out;
  for (size_t at = 0; at < quoted.size();) {
    if (quoted[at] != '\\') {
      out += quoted[at++];
      continue;
    }
    auto escape = ReadEscape(quoted.substr(at));
    if (!escape.ok()) return escape.status();
    out += escape->text;
    at += escape->size;
  }
  return out;
}

absl::StatusOr<NumberLiteral> ReadNumberLiteral(std::string_view text, bool may_be_float) {
  NumberLiteral out;
  if (may_be_float) out.size = FloatEnd(text);
  if (out.size > 0) {
    out.is_float = true;
    const std::string digits = WithoutUnderscores(text.substr(0, out.size));
    // Beyond the range of doubles: infinity, as in Python.
    if (std::from_chars(digits.data(), digits.data() + digits.size(), out.number).ec ==
        std::errc::result_out_of_range) {
      out.number = digits.find('-') == std::string::npos ? HUGE_VAL : 0;
    }
    return out;
  }
  const int base = BaseOf(text);
  const size_t begin = base == 10 ? 0 : 2;
  // A number that begins with 0 is that alone, or 00.
  out.size = DigitsEnd(text, begin, base == 10 && text[0] == '0' ? 1 : base);
  if (base != 10 && text[2] == '_') out.size = DigitsEnd(text, 3, base);
  const std::string digits = WithoutUnderscores(text.substr(begin, out.size - begin));
  if (std::from_chars(digits.data(), digits.data() + digits.size(), out.integer, base).ec !=
      std::errc()) {
    return Invalid("an integer is beyond 64 bits");
  }
  return out;
}

}  // namespace skein::model
