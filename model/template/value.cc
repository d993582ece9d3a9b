#include "model/template/value.h"

#include <algorithm>

#include "model/template/characters.h"

namespace skein::model {
namespace {

constexpr size_t kNowhere = static_cast<size_t>(-1);

// Of keys, which are hashable.
bool SameKey(const Value& a, const Value& b) {
  if (const auto x = NumberOf(a), y = NumberOf(b); x && y) {
    const auto i = IntegerOf(a), j = IntegerOf(b);
    return i && j ? *i == *j : *x == *y;
  }
  if (a.index() != b.index()) return false;
  if (IsString(a)) return TextOf(a).bytes() == TextOf(b).bytes();
  if (const auto* x = std::get_if<ListPtr>(&a)) {
    const auto& y = std::get<ListPtr>(b);
    return (*x)->items.size() == y->items.size() &&
           std::equal((*x)->items.begin(), (*x)->items.end(), y->items.begin(), SameKey);
  }
  return IsNone(a) || IsUndefined(a);
}

}  // namespace

size_t Dict::PlaceOf(const Value& key) const {
  if (IsString(key)) {
    const auto found = places.find(TextOf(key).bytes());
    return found == places.end() ? kNowhere : found->second;
  }
  if (places.size() == entries.size()) return kNowhere;
  for (size_t i = 0; i < entries.size(); ++i) {
    if (SameKey(entries[i].first, key)) return i;
  }
  return kNowhere;
}

const Value* Dict::Find(const Value& key) const {
  const size_t place = PlaceOf(key);
  return place == kNowhere ? nullptr : &entries[place].second;
}

const Value* Dict::Find(std::string_view key) const {
  const auto found = places.find(key);
  return found == places.end() ? nullptr : &entries[found->second].second;
}

bool Dict::Set(const Value& key, Value value) {
  if (!IsHashable(key)) return false;
  const size_t place = PlaceOf(key);
  if (place != kNowhere) {
    entries[place].second = std::move(value);
    return true;
  }
  entries.emplace_back(key, std::move(value));
  if (IsString(key)) places.emplace(TextOf(entries.back().first).bytes(), entries.size() - 1);
  return true;
}

const List* ListOf(const Value& value, ListKind kind) {
  const auto* list = std::get_if<ListPtr>(&value);
  return list != nullptr && (*list)->kind == kind ? list->get() : nullptr;
}

std::optional<int64_t> IntegerOf(const Value& value) {
  if (const auto* number = std::get_if<int64_t>(&value)) return *number;
  if (const auto* truth = std::get_if<bool>(&value)) return *truth ? 1 : 0;
  return std::nullopt;
}

std::optional<double> NumberOf(const Value& value) {
  if (const auto* number = std::get_if<double>(&value)) return *number;
  if (const auto integer = IntegerOf(value)) return static_cast<double>(*integer);
  return std::nullopt;
}

bool IsTrue(const Value& value) {
  if (const auto number = NumberOf(value)) return *number != 0;
  if (IsUndefined(value) || IsNone(value)) return false;
  if (IsString(value)) return !TextOf(value).empty();
  const auto length = LengthOf(value);
  return !length || *length > 0;
}

std::optional<int64_t> LengthOf(const Value& value) {
  if (IsString(value)) return CountCharacters(TextOf(value).bytes());
  if (const auto* list = std::get_if<ListPtr>(&value)) return std::ssize((*list)->items);
  if (const auto* dict = std::get_if<DictPtr>(&value)) return std::ssize((*dict)->entries);
  if (const auto* loop = std::get_if<LoopPtr>(&value)) return std::ssize((*loop)->items);
  if (IsUndefined(value)) return 0;
  return std::nullopt;
}

std::string_view TypeName(const Value& value) {
  if (const auto* list = std::get_if<ListPtr>(&value)) {
    switch ((*list)->kind) {
      case ListKind::kList:
        return "list";
      case ListKind::kTuple:
        return "tuple";
      case ListKind::kRange:
        return "range";
      case ListKind::kKeys:
        return "dict_keys";
      case ListKind::kValues:
        return "dict_values";
      case ListKind::kItems:
        return "dict_items";
    }
  }
  constexpr std::string_view kNames[] = {"Undefined", "NoneType",  "bool",     "int",
                                         "float",     "str",       "list",     "dict",
                                         "Namespace", "generator", "function", "LoopContext"};
  return kNames[value.index()];
}

int HeightOf(const Value& value) {
  if (const auto* list = std::get_if<ListPtr>(&value)) return (*list)->height;
  if (const auto* dict = std::get_if<DictPtr>(&value)) return (*dict)->height;
  if (const auto* iterator = std::get_if<IteratorPtr>(&value)) return (*iterator)->height;
  if (const auto* loop = std::get_if<LoopPtr>(&value)) return (*loop)->height;
  if (const auto* callable = std::get_if<CallablePtr>(&value)) return (*callable)->height;
  return 0;
}

bool IsHashable(const Value& value) {
  constexpr size_t kMaxKey = 16;
  if (const auto* list = std::get_if<ListPtr>(&value)) {
    return (*list)->kind == ListKind::kTuple && (*list)->height == 1 &&
           (*list)->items.size() <= kMaxKey;
  }
  return !std::holds_alternative<DictPtr>(value);
}

}  // namespace skein::model
