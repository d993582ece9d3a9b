#include "model/template/attributes.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/status_macros.h"
#include "model/template/characters.h"
#include "model/template/comparison.h"
#include "model/template/errors.h"
#include "model/template/methods.h"
#include "model/template/text_edits.h"

namespace skein::model {
namespace {

using Result = absl::StatusOr<Value>;

Value NoAttribute(const Value& object, std::string_view name) {
  std::string why = "a ";
  why.append(TypeName(object)).append(" has no attribute '").append(name).append("'");
  return MakeUndefined(std::move(why));
}

Value NoItem(const Value& object) {
  return MakeUndefined("a " + std::string(TypeName(object)) + " has no such item");
}

Result Cycle(const LoopPtr& loop, const Arguments& arguments) {
  if (arguments.positional.empty() || !arguments.named.empty()) {
    return Invalid("loop.cycle() needs values");
  }
  return arguments.positional[loop->index % arguments.positional.size()];
}

Result Changed(Runtime& runtime, const LoopPtr& loop, const Arguments& arguments) {
  const std::vector<Value>& now = arguments.positional;
  bool same = loop->last_changed && loop->last_changed->size() == now.size();
  for (size_t i = 0; same && i < now.size(); ++i) {
    SKEIN_ASSIGN_OR_RETURN(same, IsEqual(runtime, (*loop->last_changed)[i], now[i]));
  }
  if (!same) loop->last_changed = now;
  return !same;
}

Result LoopAttribute(Runtime& runtime, const LoopPtr& loop, std::string_view name) {
  const auto index = static_cast<int64_t>(loop->index);
  const int64_t length = std::ssize(loop->items);
  if (name == "index") return index + 1;
  if (name == "index0") return index;
  if (name == "revindex") return length - index;
  if (name == "revindex0") return length - index - 1;
  if (name == "first") return index == 0;
  if (name == "last") return index + 1 >= length;
  if (name == "length") return length;
  if (name == "depth") return int64_t{loop->depth};
  if (name == "depth0") return int64_t{loop->depth - 1};
  if (name == "previtem") {
    return index == 0 ? MakeUndefined("there is no previous item") : loop->items[index - 1];
  }
  if (name == "nextitem") {
    return index + 1 >= length ? MakeUndefined("there is no next item") : loop->items[index + 1];
  }
  if (name == "cycle") {
    return runtime.MakeCallable(
        "loop.cycle",
        [loop](Runtime&, const Arguments& arguments) { return Cycle(loop, arguments); }, loop);
  }
  if (name == "changed") {
    return runtime.MakeCallable(
        "loop.changed",
        [loop](Runtime& own, const Arguments& arguments) { return Changed(own, loop, arguments); },
        loop);
  }
  return NoAttribute(loop, name);
}

// A method, or an attribute that is no item.
absl::StatusOr<std::optional<Value>> OwnAttribute(Runtime& runtime, const Value& object,
                                                  std::string_view name) {
  if (const Method method = FindMethod(object, name)) {
    const auto call = [object, method](Runtime& own, const Arguments& arguments) {
      return method(own, object, arguments);
    };
    SKEIN_ASSIGN_OR_RETURN(Value bound, runtime.MakeCallable(std::string(name), call, object));
    return std::optional<Value>(std::move(bound));
  }
  if (ChangesObject(object, name)) {
    return std::optional<Value>(MakeUndefined("'" + std::string(name) + "' would change a " +
                                              std::string(TypeName(object)) +
                                              ", which templates may not"));
  }
  if (const List* tuple = ListOf(object, ListKind::kTuple); tuple != nullptr && tuple->is_group) {
    if (name == "grouper") return std::optional<Value>(tuple->items[0]);
    if (name == "list") return std::optional<Value>(tuple->items[1]);
  }
  if (const auto* space = std::get_if<NamespacePtr>(&object)) {
    if (const Value* found = (*space)->attributes.Find(name)) return std::optional<Value>(*found);
  }
  if (const auto* loop = std::get_if<LoopPtr>(&object)) {
    SKEIN_ASSIGN_OR_RETURN(Value value, LoopAttribute(runtime, *loop, name));
    return std::optional<Value>(std::move(value));
  }
  return std::optional<Value>();
}

bool HasItems(const List& list) {
  return list.kind == ListKind::kList || list.kind == ListKind::kTuple ||
         list.kind == ListKind::kRange;
}

// Of a list or a string; none where there is no such item.
absl::StatusOr<std::optional<Value>> ItemAt(Runtime& runtime, const Value& object, int64_t index) {
  if (const auto* list = std::get_if<ListPtr>(&object); list != nullptr && HasItems(**list)) {
    const int64_t size = std::ssize((*list)->items);
    if (index < 0) index += size;
    if (index < 0 || index >= size) return std::optional<Value>();
    return std::optional<Value>((*list)->items[static_cast<size_t>(index)]);
  }
  if (!IsString(object)) return std::optional<Value>();
  const Text& text = TextOf(object);
  SKEIN_RETURN_IF_ERROR(runtime.Work(text.size()));
  if (index < 0) index += CountCharacters(text.bytes());
  if (index < 0) return std::optional<Value>();
  const size_t begin = ByteOfCharacter(text.bytes(), index);
  if (begin == text.size()) return std::optional<Value>();
  const size_t size = ByteOfCharacter(std::string_view(text.bytes()).substr(begin), 1);
  SKEIN_ASSIGN_OR_RETURN(Value item,
                         runtime.MakeString(text.Part(begin, begin + size), IsMarkup(object)));
  return std::optional<Value>(std::move(item));
}

struct Bounds {
  int64_t start;
  int64_t stop;
  int64_t step;
};

// slice.indices() of a length.
Bounds Indices(int64_t length, std::optional<int64_t> start, std::optional<int64_t> stop,
               int64_t step) {
  const int64_t low = step < 0 ? -1 : 0;
  const int64_t high = step < 0 ? length - 1 : length;
  const auto place = [&](std::optional<int64_t> index, int64_t none) {
    if (!index) return none;
    return std::clamp(*index < 0 ? *index + length : *index, low, high);
  };
  // A longer step leads out of the text as well.
  return {place(start, step < 0 ? high : low), place(stop, step < 0 ? low : high),
          std::clamp(step, -length - 1, length + 1)};
}

absl::StatusOr<std::optional<int64_t>> BoundOf(const Value& value) {
  if (IsNone(value)) return std::optional<int64_t>();
  const auto integer = IntegerOf(value);
  if (!integer) return Invalid("a slice by a ", TypeName(value));
  return integer;
}

}  // namespace

Result GetAttribute(Runtime& runtime, const Value& object, std::string_view name) {
  if (IsUndefined(object)) return Invalid(*std::get<Undefined>(object).why);
  SKEIN_ASSIGN_OR_RETURN(std::optional<Value> own, OwnAttribute(runtime, object, name));
  if (own) return *std::move(own);
  if (const auto* dict = std::get_if<DictPtr>(&object)) {
    if (const Value* found = (*dict)->Find(name)) return *found;
  }
  return NoAttribute(object, name);
}

Result GetItem(Runtime& runtime, const Value& object, const Value& key) {
  if (IsUndefined(object)) return Invalid(*std::get<Undefined>(object).why);
  if (IsString(key)) SKEIN_RETURN_IF_ERROR(runtime.Work(TextOf(key).size()));
  if (const auto* dict = std::get_if<DictPtr>(&object)) {
    if (IsHashable(key)) {
      if (const Value* found = (*dict)->Find(key)) return *found;
    }
  } else if (const auto index = IntegerOf(key)) {
    SKEIN_ASSIGN_OR_RETURN(std::optional<Value> item, ItemAt(runtime, object, *index));
    if (item) return *std::move(item);
  }
  if (!IsString(key)) return NoItem(object);
  SKEIN_ASSIGN_OR_RETURN(std::optional<Value> own,
                         OwnAttribute(runtime, object, TextOf(key).bytes()));
  if (own) return *std::move(own);
  return NoAttribute(object, TextOf(key).bytes());
}

Result GetSlice(Runtime& runtime, const Value& object, const Value& start, const Value& stop,
                const Value& step) {
  if (IsUndefined(object)) return Invalid(*std::get<Undefined>(object).why);
  const auto* list = std::get_if<ListPtr>(&object);
  const bool has_items = list != nullptr && HasItems(**list);
  if (!has_items && !IsString(object)) return Invalid("a ", TypeName(object), " has no slices");
  SKEIN_ASSIGN_OR_RETURN(const auto first, BoundOf(start));
  SKEIN_ASSIGN_OR_RETURN(const auto last, BoundOf(stop));
  SKEIN_ASSIGN_OR_RETURN(const auto pace, BoundOf(step));
  if (pace && *pace == 0) return Invalid("a slice by steps of 0");
  SKEIN_ASSIGN_OR_RETURN(const int64_t length, [&]() -> absl::StatusOr<int64_t> {
    if (IsString(object)) SKEIN_RETURN_IF_ERROR(runtime.Work(TextOf(object).size()));
    return *LengthOf(object);
  }());
  const Bounds bounds = Indices(length, first, last, pace.value_or(1));
  if (IsString(object)) {
    if (bounds.step != 1) SKEIN_RETURN_IF_ERROR(runtime.Reserve(TextOf(object).size() * 16));
    return runtime.MakeString(
        SliceCharacters(TextOf(object), bounds.start, bounds.stop, bounds.step), IsMarkup(object));
  }
  std::vector<Value> items;
  for (int64_t i = bounds.start; bounds.step > 0 ? i < bounds.stop : i > bounds.stop;
       i += bounds.step) {
    items.push_back((*list)->items[static_cast<size_t>(i)]);
  }
  const ListKind kind = (*list)->kind == ListKind::kTuple ? ListKind::kTuple : ListKind::kList;
  return runtime.MakeList(std::move(items), kind);
}

}  // namespace skein::model
