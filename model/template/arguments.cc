#include "model/template/arguments.h"

#include <algorithm>
#include <string>

#include "base/status_macros.h"
#include "model/template/errors.h"

namespace skein::model {

absl::StatusOr<Bound> Bind(std::string_view what, const Arguments& arguments,
                           std::initializer_list<std::string_view> parameters, size_t required) {
  if (arguments.positional.size() > parameters.size()) {
    return Invalid(what, " takes ", parameters.size(), " arguments at most");
  }
  Bound bound(parameters.size(), nullptr);
  for (size_t i = 0; i < arguments.positional.size(); ++i) bound[i] = &arguments.positional[i];
  for (const auto& [name, value] : arguments.named) {
    const std::string& bytes = TextOf(name).bytes();
    const auto* found = std::find(parameters.begin(), parameters.end(), bytes);
    if (found == parameters.end()) return Invalid(what, " takes no argument '", bytes, "'");
    const size_t place = static_cast<size_t>(found - parameters.begin());
    if (bound[place] != nullptr) return Invalid(what, " was given '", bytes, "' twice");
    bound[place] = &value;
  }
  for (size_t i = 0; i < required; ++i) {
    if (bound[i] == nullptr) return Invalid(what, " needs '", parameters.begin()[i], "'");
  }
  return bound;
}

absl::StatusOr<int64_t> IntegerArgument(const Value* value, int64_t fallback) {
  if (value == nullptr) return fallback;
  if (IsUndefined(*value)) return Invalid(*std::get<Undefined>(*value).why);
  const auto integer = IntegerOf(*value);
  if (!integer) return Invalid("expected an integer, got a ", TypeName(*value));
  return *integer;
}

absl::StatusOr<const Text*> TextArgument(const Value* value) {
  if (value != nullptr && IsUndefined(*value)) return Invalid(*std::get<Undefined>(*value).why);
  if (value == nullptr || !IsString(*value)) {
    return Invalid("expected a string, got a ", value == nullptr ? "nothing" : TypeName(*value));
  }
  return &TextOf(*value);
}

absl::StatusOr<std::optional<std::string_view>> OptionalTextArgument(const Value* value) {
  if (value == nullptr || IsNone(*value)) return std::optional<std::string_view>();
  SKEIN_ASSIGN_OR_RETURN(const Text* text, TextArgument(value));
  return std::optional<std::string_view>(text->bytes());
}

}  // namespace skein::model
