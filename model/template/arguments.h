// What functions, filters, tests and methods were called with, by their parameters' names.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "model/template/runtime.h"
#include "model/template/value.h"

namespace skein::model {

// The values of parameters; null where none was given. Borrowed from the Arguments.
using Bound = std::vector<const Value*>;

// InvalidArgument: too many, one twice, a name that no parameter has, or fewer than the first
// `required`. `what` names the function in errors.
absl::StatusOr<Bound> Bind(std::string_view what, const Arguments& arguments,
                           std::initializer_list<std::string_view> parameters, size_t required = 0);

// Each fails with InvalidArgument if the value has another type; null gives the fallback.
absl::StatusOr<int64_t> IntegerArgument(const Value* value, int64_t fallback);
// The text of a string.
absl::StatusOr<const Text*> TextArgument(const Value* value);
inline bool TruthArgument(const Value* value, bool fallback) {
  return value == nullptr ? fallback : IsTrue(*value);
}
// None, like a null, is none.
absl::StatusOr<std::optional<std::string_view>> OptionalTextArgument(const Value* value);

}  // namespace skein::model
