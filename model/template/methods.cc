#include "model/template/methods.h"

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

#include "base/status_macros.h"
#include "model/template/arguments.h"
#include "model/template/comparison.h"
#include "model/template/errors.h"

namespace skein::model {
namespace {

using Result = absl::StatusOr<Value>;

const Dict& DictOf(const Value& self) { return *std::get<DictPtr>(self); }
const std::vector<Value>& ItemsOf(const Value& self) { return std::get<ListPtr>(self)->items; }

Result DictGet(Runtime& runtime, const Value& self, const Arguments& arguments) {
  SKEIN_ASSIGN_OR_RETURN(const Bound bound, Bind("get", arguments, {"key", "default"}, 1));
  if (!arguments.named.empty()) return Invalid("get() takes no named arguments");
  if (IsString(*bound[0])) SKEIN_RETURN_IF_ERROR(runtime.Work(TextOf(*bound[0]).size()));
  if (!IsHashable(*bound[0])) return Invalid("a ", TypeName(*bound[0]), " cannot be a key");
  if (const Value* found = DictOf(self).Find(*bound[0])) return *found;
  return bound[1] != nullptr ? *bound[1] : Value(None());
}

Result DictKeys(Runtime& runtime, const Value& self, const Arguments& arguments) {
  SKEIN_RETURN_IF_ERROR(Bind("keys", arguments, {}).status());
  std::vector<Value> keys;
  for (const auto& entry : DictOf(self).entries) keys.push_back(entry.first);
  return runtime.MakeList(std::move(keys), ListKind::kKeys);
}

Result DictValues(Runtime& runtime, const Value& self, const Arguments& arguments) {
  SKEIN_RETURN_IF_ERROR(Bind("values", arguments, {}).status());
  std::vector<Value> values;
  for (const auto& entry : DictOf(self).entries) values.push_back(entry.second);
  return runtime.MakeList(std::move(values), ListKind::kValues);
}

Result DictItems(Runtime& runtime, const Value& self, const Arguments& arguments) {
  SKEIN_RETURN_IF_ERROR(Bind("items", arguments, {}).status());
  std::vector<Value> items;
  for (const auto& [key, value] : DictOf(self).entries) {
    SKEIN_ASSIGN_OR_RETURN(Value pair, runtime.MakeList({key, value}, ListKind::kTuple));
    items.push_back(std::move(pair));
  }
  return runtime.MakeList(std::move(items), ListKind::kItems);
}

Result DictCopy(Runtime&, const Value& self, const Arguments& arguments) {
  SKEIN_RETURN_IF_ERROR(Bind("copy", arguments, {}).status());
  return self;
}

Result ListIndex(Runtime& runtime, const Value& self, const Arguments& arguments) {
  SKEIN_ASSIGN_OR_RETURN(const Bound bound,
                         Bind("index", arguments, {"value", "start", "stop"}, 1));
  const std::vector<Value>& items = ItemsOf(self);
  const int64_t size = std::ssize(items);
  const auto place = [&](int64_t index) {
    return std::clamp<int64_t>(index < 0 ? index + size : index, 0, size);
  };
  SKEIN_ASSIGN_OR_RETURN(const int64_t start, IntegerArgument(bound[1], 0));
  SKEIN_ASSIGN_OR_RETURN(const int64_t stop, IntegerArgument(bound[2], size));
  for (int64_t i = place(start); i < place(stop); ++i) {
    SKEIN_ASSIGN_OR_RETURN(const bool same, IsEqual(runtime, items[i], *bound[0]));
    if (same) return i;
  }
  return Invalid("index() found no such value");
}

Result ListCount(Runtime& runtime, const Value& self, const Arguments& arguments) {
  SKEIN_ASSIGN_OR_RETURN(const Bound bound, Bind("count", arguments, {"value"}, 1));
  int64_t count = 0;
  for (const Value& item : ItemsOf(self)) {
    SKEIN_ASSIGN_OR_RETURN(const bool same, IsEqual(runtime, item, *bound[0]));
    count += same ? 1 : 0;
  }
  return count;
}

Result ListCopy(Runtime&, const Value& self, const Arguments& arguments) {
  SKEIN_RETURN_IF_ERROR(Bind("copy", arguments, {}).status());
  return self;  // nothing changes a list
}

Method FindListMethod(ListKind kind, std::string_view name) {
  if (kind != ListKind::kList && kind != ListKind::kTuple && kind != ListKind::kRange) {
    return nullptr;
  }
  if (name == "index") return ListIndex;
  if (name == "count") return ListCount;
  return name == "copy" && kind == ListKind::kList ? ListCopy : nullptr;
}

Method FindDictMethod(std::string_view name) {
  if (name == "get") return DictGet;
  if (name == "items") return DictItems;
  if (name == "keys") return DictKeys;
  if (name == "values") return DictValues;
  return name == "copy" ? DictCopy : nullptr;
}

template <size_t kSize>
bool IsOneOf(std::string_view name, const std::string_view (&names)[kSize]) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

}  // namespace

Method FindMethod(const Value& object, std::string_view name) {
  if (std::holds_alternative<DictPtr>(object)) return FindDictMethod(name);
  if (IsString(object)) return FindStringMethod(name);
  if (const auto* list = std::get_if<ListPtr>(&object)) return FindListMethod((*list)->kind, name);
  return nullptr;
}

bool ChangesObject(const Value& object, std::string_view name) {
  constexpr std::string_view kOfDicts[] = {"clear", "pop", "popitem", "setdefault", "update"};
  constexpr std::string_view kOfLists[] = {"append", "clear",  "extend",  "insert",
                                           "pop",    "remove", "reverse", "sort"};
  if (std::holds_alternative<DictPtr>(object)) return IsOneOf(name, kOfDicts);
  return ListOf(object, ListKind::kList) != nullptr && IsOneOf(name, kOfLists);
}

}  // namespace skein::model
