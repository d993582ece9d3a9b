// Filters that apply a filter, or ask a test, for each item; and those that choose a value.
#include <string>
#include <utility>
#include <vector>

#include "base/status_macros.h"
#include "model/template/arguments.h"
#include "model/template/attribute_path.h"
#include "model/template/attributes.h"
#include "model/template/errors.h"
#include "model/template/filters.h"
#include "model/template/predicates.h"

namespace skein::model {
namespace {

using Result = absl::StatusOr<Value>;

Result DefaultFilter(Runtime& runtime, const Value& input, const Arguments& arguments) {
  SKEIN_ASSIGN_OR_RETURN(const Bound bound,
                         Bind("default", arguments, {"default_value", "boolean"}));
  if (!IsUndefined(input) && (!TruthArgument(bound[1], false) || IsTrue(input))) return input;
  if (bound[0] != nullptr) return *bound[0];
  return runtime.MakeString("");
}

Result AttrFilter(Runtime& runtime, const Value& input, const Arguments& arguments) {
  SKEIN_ASSIGN_OR_RETURN(const Bound bound, Bind("attr", arguments, {"name"}, 1));
  SKEIN_ASSIGN_OR_RETURN(const Text* name, TextArgument(bound[0]));
  // Unlike a dot, it finds no key of a dict.
  if (std::holds_alternative<DictPtr>(input)) {
    SKEIN_ASSIGN_OR_RETURN(const Value empty, runtime.MakeDict({}));
    SKEIN_ASSIGN_OR_RETURN(const Value attribute, GetAttribute(runtime, empty, name->bytes()));
    if (IsUndefined(attribute)) return attribute;
  }
  return GetAttribute(runtime, input, name->bytes());
}

// The arguments behind the first `count`.
Arguments Behind(const Arguments& arguments, size_t count) {
  return {
      {arguments.positional.begin() + static_cast<ptrdiff_t>(count), arguments.positional.end()},
      arguments.named};
}

Result MapAttribute(Runtime& runtime, const std::vector<Value>& items, const Arguments& arguments) {
  SKEIN_ASSIGN_OR_RETURN(const Bound bound, Bind("map", arguments, {"attribute", "default"}, 1));
  SKEIN_ASSIGN_OR_RETURN(const AttributePath path, AttributePath::Parse(bound[0]));
  std::vector<Value> out;
  for (const Value& item : items) {
    SKEIN_ASSIGN_OR_RETURN(Value value, path.Get(runtime, item, bound[1]));
    out.push_back(std::move(value));
  }
  return runtime.MakeIterator(std::move(out));
}

Result MapFilter(Runtime& runtime, const Value& input, const Arguments& arguments) {
  if (!IsTrue(input)) return runtime.MakeIterator({});
  SKEIN_ASSIGN_OR_RETURN(const std::vector<Value> items, Iterate(runtime, input));
  const bool by_attribute = arguments.positional.empty() && !arguments.named.empty();
  if (by_attribute) return MapAttribute(runtime, items, arguments);
  if (arguments.positional.empty()) return Invalid("map needs a filter");
  SKEIN_ASSIGN_OR_RETURN(const Text* name, TextArgument(&arguments.positional[0]));
  const Arguments rest = Behind(arguments, 1);
  const Runtime::DepthGuard deeper(runtime);  // map("map", ...) may go on so
  if (!deeper.ok) return runtime.DepthError();
  std::vector<Value> out;
  for (const Value& item : items) {
    SKEIN_RETURN_IF_ERROR(runtime.Step());
    SKEIN_ASSIGN_OR_RETURN(Value value, ApplyFilter(runtime, name->bytes(), item, rest));
    out.push_back(std::move(value));
  }
  return runtime.MakeIterator(std::move(out));
}

// Items for which the test says `wanted`; with `by_attribute`, of that which the first argument
// names. Without a test: those that are true.
template <bool kWanted, bool kByAttribute>
Result SelectFilter(Runtime& runtime, const Value& input, const Arguments& arguments) {
  if (!IsTrue(input)) return runtime.MakeIterator({});
  AttributePath path;
  const std::vector<Value>& given = arguments.positional;
  if (kByAttribute) {
    if (given.empty()) return Invalid("selectattr needs an attribute");
    SKEIN_ASSIGN_OR_RETURN(path, AttributePath::Parse(&given[0]));
  }
  const size_t before = kByAttribute ? 1 : 0;
  const bool has_test = given.size() > before;
  const Text* name = nullptr;
  if (has_test) {
    SKEIN_ASSIGN_OR_RETURN(name, TextArgument(&given[before]));
  }
  const Arguments rest = has_test ? Behind(arguments, before + 1) : Arguments();
  SKEIN_ASSIGN_OR_RETURN(const std::vector<Value> items, Iterate(runtime, input));
  std::vector<Value> out;
  for (const Value& item : items) {
    SKEIN_RETURN_IF_ERROR(runtime.Step());
    SKEIN_ASSIGN_OR_RETURN(const Value value, path.Get(runtime, item));
    bool holds = false;
    if (has_test) {
      SKEIN_ASSIGN_OR_RETURN(holds, AskTest(runtime, name->bytes(), value, rest));
    } else {
      holds = IsTrue(value);
    }
    if (holds == kWanted) out.push_back(item);
  }
  return runtime.MakeIterator(std::move(out));
}

}  // namespace

Filter FindSelectingFilter(std::string_view name) {
  if (name == "d" || name == "default") return DefaultFilter;
  if (name == "attr") return AttrFilter;
  if (name == "map") return MapFilter;
  if (name == "select") return SelectFilter<true, false>;
  if (name == "reject") return SelectFilter<false, false>;
  if (name == "selectattr") return SelectFilter<true, true>;
  if (name == "rejectattr") return SelectFilter<false, true>;
  return nullptr;
}

}  // namespace skein::model
