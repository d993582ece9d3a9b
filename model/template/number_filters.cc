// Filters of numbers.
#include <cmath>
#include <string>
#include <utility>

#include "base/status_macros.h"
#include "model/template/arguments.h"
#include "model/template/errors.h"
#include "model/template/filters.h"
#include "model/template/numbers.h"

namespace skein::model {
namespace {

using Result = absl::StatusOr<Value>;

// int(float(text)), which "42.5" needs; none where that fails.
absl::StatusOr<std::optional<int64_t>> IntegerOfFloatText(const std::string& text) {
  const auto number = ParseFloat(text);
  if (!number || !std::isfinite(*number)) return std::optional<int64_t>();
  SKEIN_ASSIGN_OR_RETURN(const int64_t whole, Truncate(*number));
  return std::optional<int64_t>(whole);
}

Result IntFilter(Runtime&, const Value& input, const Arguments& arguments) {
  SKEIN_ASSIGN_OR_RETURN(const Bound bound, Bind("int", arguments, {"default", "base"}));
  SKEIN_ASSIGN_OR_RETURN(const int64_t base, IntegerArgument(bound[1], 10));
  const Value fallback = bound[0] != nullptr ? *bound[0] : Value(int64_t{0});
  if (IsUndefined(input)) return Invalid(*std::get<Undefined>(input).why);
  if (const auto integer = IntegerOf(input)) return *integer;
  if (const auto* number = std::get_if<double>(&input)) {
    if (std::isnan(*number)) return fallback;
    SKEIN_ASSIGN_OR_RETURN(const int64_t whole, Truncate(*number));
    return whole;
  }
  if (!IsString(input)) return fallback;
  const std::string& bytes = TextOf(input).bytes();
  std::optional<int64_t> parsed;
  if (base == 0 || (base >= 2 && base <= 36)) {
    SKEIN_ASSIGN_OR_RETURN(parsed, ParseInteger(bytes, static_cast<int>(base)));
  }
  if (!parsed) {
    SKEIN_ASSIGN_OR_RETURN(parsed, IntegerOfFloatText(bytes));
  }
  return parsed ? Value(*parsed) : fallback;
}

Result FloatFilter(Runtime&, const Value& input, const Arguments& arguments) {
  SKEIN_ASSIGN_OR_RETURN(const Bound bound, Bind("float", arguments, {"default"}));
  if (IsUndefined(input)) return Invalid(*std::get<Undefined>(input).why);
  if (const auto number = NumberOf(input)) return *number;
  if (IsString(input)) {
    if (const auto number = ParseFloat(TextOf(input).bytes())) return *number;
  }
  return bound[0] != nullptr ? *bound[0] : Value(0.0);
}

Result AbsFilter(Runtime&, const Value& input, const Arguments& arguments) {
  SKEIN_RETURN_IF_ERROR(Bind("abs", arguments, {}).status());
  if (const auto* number = std::get_if<double>(&input)) return std::fabs(*number);
  const auto integer = IntegerOf(input);
  if (!integer) return Invalid("abs of a ", TypeName(input));
  return *integer < 0 ? Negate(*integer) : Result(*integer);
}

Result RoundFilter(Runtime&, const Value& input, const Arguments& arguments) {
  SKEIN_ASSIGN_OR_RETURN(const Bound bound, Bind("round", arguments, {"precision", "method"}));
  SKEIN_ASSIGN_OR_RETURN(const int64_t digits, IntegerArgument(bound[0], 0));
  std::string method = "common";
  if (bound[1] != nullptr && IsString(*bound[1])) method = TextOf(*bound[1]).bytes();
  const auto number = NumberOf(input);
  if (!number) return Invalid("round of a ", TypeName(input));
  if (method == "common") {
    if (const auto integer = IntegerOf(input)) {
      SKEIN_ASSIGN_OR_RETURN(const int64_t rounded, RoundInteger(*integer, digits));
      return rounded;
    }
    return RoundFloat(*number, digits);
  }
  if (method != "ceil" && method != "floor") return Invalid("round is common, ceil or floor");
  const double scale = std::pow(10.0, static_cast<double>(digits));
  const double scaled = *number * scale;
  if (!std::isfinite(scaled) || scale == 0) return Invalid("round of too large a number");
  return (method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / scale;
}

}  // namespace

Filter FindNumberFilter(std::string_view name) {
  if (name == "int") return IntFilter;
  if (name == "float") return FloatFilter;
  if (name == "abs") return AbsFilter;
  return name == "round" ? RoundFilter : nullptr;
}

}  // namespace skein::model
