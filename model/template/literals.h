// Numbers and strings as a template's source spells them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace skein::model {

// What stands between a string's quotes, escapes replaced as Python does. InvalidArgument: an
// escape that ends early, names no character (half of a surrogate pair, too), or is \N.
absl::StatusOr<std::string> Unescape(std::string_view quoted);

struct NumberLiteral {
  size_t size = 0;  // bytes of it
  bool is_float = false;
  int64_t integer = 0;
  double number = 0;
};

// The number that `text`, whose first character is a digit, begins with. InvalidArgument: an
// integer beyond 64 bits.
absl::StatusOr<NumberLiteral> ReadNumberLiteral(std::string_view text, bool may_be_float);

}  // namespace skein::model
