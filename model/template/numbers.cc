#include "model/template/numbers.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "absl/strings/ascii.h"
#include "base/status_macros.h"
#include "model/template/errors.h"

namespace skein::model {
namespace {

absl::Status Overflow() { return absl::OutOfRangeError("an integer is beyond 64 bits"); }

absl::Status ByZero() { return Invalid("division by zero"); }

absl::StatusOr<int64_t> FloorDivide(int64_t a, int64_t b) {
  if (b == 0) return ByZero();
  if (b == -1) {
    int64_t out = 0;
    return __builtin_sub_overflow(int64_t{0}, a, &out) ? absl::StatusOr<int64_t>(Overflow()) : out;
  }
  const int64_t quotient = a / b;
  return a % b != 0 && (a % b < 0) != (b < 0) ? quotient - 1 : quotient;
}

absl::StatusOr<int64_t> Modulo(int64_t a, int64_t b) {
  if (b == 0) return ByZero();
  if (b == -1) return 0;
  const int64_t rest = a % b;
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

absl::StatusOr<Value> Power(int64_t base, int64_t exponent) {
  if (exponent < 0) {
    if (base == 0) return ByZero();
    return std::pow(static_cast<double>(base), static_cast<double>(exponent));
  }
  if (base == 0 || base == 1) return exponent == 0 ? int64_t{1} : base;
  if (base == -1) return exponent % 2 == 0 ? int64_t{1} : int64_t{-1};
  int64_t out = 1;
  for (; exponent > 0; --exponent) {
    if (__builtin_mul_overflow(out, base, &out)) return Overflow();  // after 63 rounds at most
  }
  return out;
}

absl::StatusOr<Value> OfIntegers(BinaryOperator operation, int64_t a, int64_t b) {
  int64_t out = 0;
  switch (operation) {
    case BinaryOperator::kAdd:
      if (__builtin_add_overflow(a, b, &out)) return Overflow();
      return out;
    case BinaryOperator::kSubtract:
      if (__builtin_sub_overflow(a, b, &out)) return Overflow();
      return out;
    case BinaryOperator::kMultiply:
      if (__builtin_mul_overflow(a, b, &out)) return Overflow();
      return out;
    case BinaryOperator::kDivide:
      if (b == 0) return ByZero();
      return static_cast<double>(static_cast<long double>(a) / static_cast<long double>(b));
    case BinaryOperator::kFloorDivide:
      return FloorDivide(a, b);
    case BinaryOperator::kModulo:
      return Modulo(a, b);
    case BinaryOperator::kPower:
      return Power(a, b);
  }
  return out;
}

double FloatModulo(double a, double b) {
  double rest = std::fmod(a, b);
  if (rest == 0) return std::copysign(0.0, b);
  if ((rest < 0) != (b < 0)) rest += b;
  return rest;
}

double FloatFloorDivide(double a, double b) {
  const double quotient = (a - FloatModulo(a, b)) / b;
  if (quotient == 0) return std::copysign(0.0, a / b);
  const double floor = std::floor(quotient);
  return quotient - floor > 0.5 ? floor + 1 : floor;
}

absl::StatusOr<Value> OfFloats(BinaryOperator operation, double a, double b) {
  switch (operation) {
    case BinaryOperator::kAdd:
      return a + b;
    case BinaryOperator::kSubtract:
      return a - b;
    case BinaryOperator::kMultiply:
      return a * b;
    case BinaryOperator::kDivide:
      if (b == 0) return ByZero();
      return a / b;
    case BinaryOperator::kFloorDivide:
      if (b == 0) return ByZero();
      return FloatFloorDivide(a, b);
    case BinaryOperator::kModulo:
      if (b == 0) return ByZero();
      return FloatModulo(a, b);
    case BinaryOperator::kPower:
      break;
  }
  if (a == 0 && b < 0) return ByZero();
  if (a < 0 && std::isfinite(a) && std::isfinite(b) && b != std::floor(b)) {
    return Invalid("complex numbers are not supported");
  }
  const double out = std::pow(a, b);
  if (std::isinf(out) && std::isfinite(a) && std::isfinite(b)) {
    return absl::OutOfRangeError("a power is beyond the range of floats");
  }
  return out;
}

// Without underscores between digits; none where they stand elsewhere.
std::optional<std::string> WithoutUnderscores(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      out += text[i];
    } else if (i == 0 || i + 1 == text.size() || !absl::ascii_isalnum(text[i - 1]) ||
               !absl::ascii_isalnum(text[i + 1])) {
      return std::nullopt;
    }
  }
  return out;
}

std::string_view Stripped(std::string_view text) {
  while (!text.empty() && absl::ascii_isspace(text.front())) text.remove_prefix(1);
  while (!text.empty() && absl::ascii_isspace(text.back())) text.remove_suffix(1);
  return text;
}

int PrefixBase(const std::string& digits) {
  if (digits.size() < 2 || digits[0] != '0') return 10;
  const char letter = absl::ascii_tolower(digits[1]);
  return letter == 'x' ? 16 : letter == 'o' ? 8 : letter == 'b' ? 2 : 10;
}

}  // namespace

std::string FloatRepr(double number) {
  if (std::isnan(number)) return "nan";
  if (std::isinf(number)) return number < 0 ? "-inf" : "inf";
  std::array<char, 64> buffer;
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), number,
                                 std::chars_format::scientific);
  const std::string_view shortest(buffer.data(), static_cast<size_t>(end.ptr - buffer.data()));
  const size_t e = shortest.find('e');
  const int exponent = std::atoi(std::string(shortest.substr(e + 1)).c_str());
  if (exponent < -4 || exponent >= 16) return std::string(shortest);
  const auto fixed =
      std::to_chars(buffer.data(), buffer.data() + buffer.size(), number, std::chars_format::fixed);
  std::string out(buffer.data(), fixed.ptr);
  if (out.find('.') == std::string::npos) out += ".0";
  return out;
}

absl::StatusOr<Value> Calculate(BinaryOperator operation, const Value& left, const Value& right) {
  const auto a = IntegerOf(left), b = IntegerOf(right);
  if (a && b) return OfIntegers(operation, *a, *b);
  return OfFloats(operation, *NumberOf(left), *NumberOf(right));
}

absl::StatusOr<Value> Negate(const Value& number) {
  if (const auto* real = std::get_if<double>(&number)) return -*real;
  return OfIntegers(BinaryOperator::kSubtract, 0, *IntegerOf(number));
}

absl::StatusOr<int64_t> Truncate(double number) {
  if (!std::isfinite(number)) return Invalid("cannot make an integer of ", FloatRepr(number));
  // -2^63 and 2^63 are floats.
  if (number < -9223372036854775808.0 || number >= 9223372036854775808.0) return Overflow();
  return static_cast<int64_t>(number);
}

absl::StatusOr<std::optional<int64_t>> ParseInteger(std::string_view text, int base) {
  std::string_view rest = Stripped(text);
  const bool negative = !rest.empty() && rest[0] == '-';
  if (!rest.empty() && (rest[0] == '-' || rest[0] == '+')) rest.remove_prefix(1);
  const auto digits = WithoutUnderscores(rest);
  if (!digits) return std::optional<int64_t>();
  std::string signed_digits = *digits;
  const int prefix = PrefixBase(*digits);
  if (base == 0) base = prefix;
  if (prefix == base && prefix != 10) signed_digits = digits->substr(2);
  if (signed_digits.empty() || !absl::ascii_isalnum(signed_digits[0])) {
    return std::optional<int64_t>();
  }
  if (negative) signed_digits.insert(0, 1, '-');
  int64_t out = 0;
  const char* const end = signed_digits.data() + signed_digits.size();
  const auto result = std::from_chars(signed_digits.data(), end, out, base);
  if (result.ec == std::errc::result_out_of_range && result.ptr == end) return Overflow();
  if (result.ec != std::errc() || result.ptr != end) return std::optional<int64_t>();
  return std::optional<int64_t>(out);
}

std::optional<double> ParseFloat(std::string_view text) {
  const auto digits = WithoutUnderscores(Stripped(text));
  if (!digits || digits->empty()) return std::nullopt;
  for (const char c : *digits) {
    if (absl::ascii_tolower(c) == 'x') return std::nullopt;  // strtod takes hexadecimal ones
  }
  if (digits->find('(') != std::string::npos) return std::nullopt;
  char* end = nullptr;
  const double out = std::strtod(digits->c_str(), &end);
  if (end != digits->c_str() + digits->size()) return std::nullopt;
  return out;
}

double RoundFloat(double number, int64_t digits) {
  if (!std::isfinite(number) || digits > 330) return number;
  if (digits < -308) return std::copysign(0.0, number);
  if (digits < 0) {
    const double scale = std::pow(10.0, static_cast<double>(-digits));
    return std::nearbyint(number / scale) * scale;
  }
  // printf rounds the exact value, halves to even.
  const int places = static_cast<int>(digits);
  std::vector<char> buffer(static_cast<size_t>(places) + 330);
  std::snprintf(buffer.data(), buffer.size(), "%.*f", places, number);
  return std::strtod(buffer.data(), nullptr);
}

absl::StatusOr<int64_t> RoundInteger(int64_t number, int64_t digits) {
  if (digits >= 0) return number;
  if (digits < -18) return 0;
  int64_t scale = 1;
  for (int64_t i = 0; i < -digits; ++i) scale *= 10;
  SKEIN_ASSIGN_OR_RETURN(const int64_t rest, Modulo(number, scale));
  SKEIN_ASSIGN_OR_RETURN(int64_t down, FloorDivide(number, scale));
  const bool up = rest > scale - rest || (rest == scale - rest && down % 2 != 0);
  int64_t out = 0;
  if (__builtin_mul_overflow(down + (up ? 1 : 0), scale, &out)) return Overflow();
  return out;
}

}  // namespace skein::model
