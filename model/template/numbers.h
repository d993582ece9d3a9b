// Arithmetic of Python's numbers. Integers have 64 bits: what needs more is an error, OutOfRange.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "model/template/ast.h"
#include "model/template/value.h"

namespace skein::model {

// repr() of a float: the fewest digits that read back as it.
std::string FloatRepr(double number);

// + - * / // % ** of two numbers (bools are 0 and 1).
absl::StatusOr<Value> Calculate(BinaryOperator operation, const Value& left, const Value& right);
absl::StatusOr<Value> Negate(const Value& number);

// int() of a float: towards zero. OutOfRange: beyond 64 bits; InvalidArgument: no finite number.
absl::StatusOr<int64_t> Truncate(double number);
// int(text, base) and float(text): white space around, underscores between digits. None where
// Python raises ValueError.
absl::StatusOr<std::optional<int64_t>> ParseInteger(std::string_view text, int base);
std::optional<double> ParseFloat(std::string_view text);

// round(number, digits): halves to even.
double RoundFloat(double number, int64_t digits);
absl::StatusOr<int64_t> RoundInteger(int64_t number, int64_t digits);

}  // namespace skein::model
