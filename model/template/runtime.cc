#include "model/template/runtime.h"

#include <algorithm>
#include <iterator>
#include <limits>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "model/template/errors.h"
#include "model/tokenizer/utf8.h"

namespace skein::model {
namespace {

// Of lists and dicts inside each other. Going through them recurses; JSON of tools nests 20 deep.
constexpr int kMaxHeight = 100;
// Jinja's sandbox has the same.
constexpr int64_t kMaxRange = 100'000;
// What an object takes beside its content.
constexpr size_t kObjectBytes = 96;

absl::StatusOr<int> Above(int height) {
  if (height >= kMaxHeight) {
    return absl::ResourceExhaustedError(
        absl::StrCat("lists and dicts are more than ", kMaxHeight, " deep"));
  }
  return height + 1;
}

int64_t RangeLength(int64_t start, int64_t stop, int64_t step) {
  const auto wide = [](int64_t value) { return static_cast<__int128>(value); };
  const __int128 span = step > 0 ? wide(stop) - start : wide(start) - stop;
  if (span <= 0) return 0;
  const __int128 pace = step > 0 ? wide(step) : -wide(step);
  const __int128 length = (span + pace - 1) / pace;
  return length > kMaxRange ? kMaxRange + 1 : static_cast<int64_t>(length);
}

}  // namespace

// Namespaces may refer to each other, and to themselves.
Runtime::~Runtime() {
  for (const NamespacePtr& space : namespaces_) {
    const Dict attributes = std::move(space->attributes);
    space->attributes = Dict();
  }
}

absl::Status Runtime::Step(int64_t steps) {
  if (steps <= limits_.steps - steps_) {
    steps_ += steps;
    return absl::OkStatus();
  }
  return absl::ResourceExhaustedError(
      absl::StrCat("the template takes more than ", limits_.steps, " steps"));
}

absl::Status Runtime::Reserve(size_t bytes) const {
  if (bytes <= static_cast<size_t>(std::max<int64_t>(limits_.memory_bytes - used_, 0))) {
    return absl::OkStatus();
  }
  return absl::ResourceExhaustedError(
      absl::StrCat("the template's values take more than ", limits_.memory_bytes, " bytes"));
}

absl::Status Runtime::DepthError() const {
  return absl::ResourceExhaustedError(
      absl::StrCat("the template nests or recurses more than ", limits_.depth, " deep"));
}

absl::StatusOr<Value> Runtime::MakeString(Text text, bool markup) {
  const size_t bytes = kObjectBytes + text.footprint();
  SKEIN_RETURN_IF_ERROR(Work(bytes));
  SKEIN_RETURN_IF_ERROR(Reserve(bytes));
  return std::make_shared<const String>(String{std::move(text), markup, Use(bytes)});
}

absl::StatusOr<int> Runtime::HeightAbove(const std::vector<Value>& items) const {
  int height = 0;
  for (const Value& item : items) height = std::max(height, HeightOf(item));
  return Above(height);
}

absl::StatusOr<Value> Runtime::MakeList(std::vector<Value> items, ListKind kind) {
  const size_t bytes = kObjectBytes + items.size() * sizeof(Value);
  SKEIN_RETURN_IF_ERROR(WorkOn(items.size()));
  SKEIN_RETURN_IF_ERROR(Reserve(bytes));
  SKEIN_ASSIGN_OR_RETURN(const int height, HeightAbove(items));
  return std::make_shared<const List>(
      List{.items = std::move(items), .kind = kind, .height = height, .charge = Use(bytes)});
}

absl::StatusOr<Value> Runtime::MakeGroup(Value key, Value list) {
  std::vector<Value> items = {std::move(key), std::move(list)};
  const size_t bytes = kObjectBytes + items.size() * sizeof(Value);
  SKEIN_RETURN_IF_ERROR(Reserve(bytes));
  SKEIN_ASSIGN_OR_RETURN(const int height, HeightAbove(items));
  return std::make_shared<const List>(List{.items = std::move(items),
                                           .kind = ListKind::kTuple,
                                           .height = height,
                                           .charge = Use(bytes),
                                           .is_group = true});
}

absl::StatusOr<Value> Runtime::MakeStrings(std::vector<Text> texts, bool markup) {
  std::vector<Value> items;
  items.reserve(texts.size());
  for (Text& text : texts) {
    SKEIN_ASSIGN_OR_RETURN(Value item, MakeString(std::move(text), markup));
    items.push_back(std::move(item));
  }
  return MakeList(std::move(items));
}

absl::StatusOr<Value> Runtime::MakeRange(int64_t start, int64_t stop, int64_t step) {
  if (step == 0) return Invalid("range() by steps of 0");
  const int64_t length = RangeLength(start, stop, step);
  if (length > kMaxRange) {
    return absl::ResourceExhaustedError(absl::StrCat("a range of more than ", kMaxRange));
  }
  const size_t bytes = kObjectBytes + static_cast<size_t>(length) * sizeof(Value);
  SKEIN_RETURN_IF_ERROR(WorkOn(static_cast<size_t>(length)));
  SKEIN_RETURN_IF_ERROR(Reserve(bytes));
  List range{.kind = ListKind::kRange, .charge = Use(bytes)};
  range.start = start;
  range.stop = stop;
  range.step = step;
  range.items.reserve(static_cast<size_t>(length));
  for (int64_t i = 0; i < length; ++i) range.items.emplace_back(start + i * step);
  return std::make_shared<const List>(std::move(range));
}

absl::StatusOr<Value> Runtime::MakeDict(std::vector<std::pair<Value, Value>> entries) {
  const size_t bytes =
      kObjectBytes + entries.size() * (sizeof(entries[0]) + 3 * sizeof(std::string_view));
  SKEIN_RETURN_IF_ERROR(WorkOn(entries.size()));
  SKEIN_RETURN_IF_ERROR(Reserve(bytes));
  Dict dict;
  int height = 0;
  for (auto& [key, value] : entries) {
    height = std::max({height, HeightOf(key), HeightOf(value)});
    SKEIN_RETURN_IF_ERROR(IsString(key) ? Work(TextOf(key).size()) : WorkOn(dict.entries.size()));
    if (!dict.Set(key, std::move(value))) {
      return Invalid("a key of a dict cannot be a ", TypeName(key));
    }
  }
  SKEIN_ASSIGN_OR_RETURN(dict.height, Above(height));
  dict.charge = Use(bytes);
  return std::make_shared<const Dict>(std::move(dict));
}

absl::StatusOr<Value> Runtime::MakeIterator(std::vector<Value> items) {
  const size_t bytes = kObjectBytes + items.size() * sizeof(Value);
  SKEIN_RETURN_IF_ERROR(WorkOn(items.size()));
  SKEIN_RETURN_IF_ERROR(Reserve(bytes));
  SKEIN_ASSIGN_OR_RETURN(const int height, HeightAbove(items));
  return std::make_shared<Iterator>(
      Iterator{.items = std::move(items), .height = height, .charge = Use(bytes)});
}

absl::StatusOr<Value> Runtime::MakeNamespace() {
  SKEIN_RETURN_IF_ERROR(Reserve(kObjectBytes));
  auto space = std::make_shared<Namespace>();
  space->attributes.charge = Use(kObjectBytes);
  namespaces_.push_back(space);
  return space;
}

absl::StatusOr<Value> Runtime::MakeCallable(
    std::string name, std::function<absl::StatusOr<Value>(Runtime&, const Arguments&)> call,
    const Value& self) {
  SKEIN_RETURN_IF_ERROR(Reserve(kObjectBytes));
  SKEIN_ASSIGN_OR_RETURN(const int height, Above(HeightOf(self)));
  return std::make_shared<const Callable>(
      Callable{std::move(name), std::move(call), height, Use(kObjectBytes)});
}

absl::StatusOr<LoopPtr> Runtime::MakeLoop(std::vector<Value> items) {
  const size_t bytes = kObjectBytes + items.size() * sizeof(Value);
  SKEIN_RETURN_IF_ERROR(Reserve(bytes));
  SKEIN_ASSIGN_OR_RETURN(const int height, HeightAbove(items));
  auto loop = std::make_shared<Loop>();
  loop->items = std::move(items);
  loop->height = height;
  loop->charge = Use(bytes);
  return loop;
}

Value MakeUndefined(std::string why) {
  return Undefined{std::make_shared<const std::string>(std::move(why))};
}

namespace {

absl::StatusOr<std::vector<Value>> Characters(Runtime& runtime, const Text& text) {
  SKEIN_RETURN_IF_ERROR(runtime.Step(static_cast<int64_t>(text.size())));
  std::vector<Value> items;
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    ReadCodePoint(text.bytes(), at);
    SKEIN_ASSIGN_OR_RETURN(Value item, runtime.MakeString(text.Part(begin, at)));
    items.push_back(std::move(item));
  }
  return items;
}

}  // namespace

absl::StatusOr<std::vector<Value>> Iterate(Runtime& runtime, const Value& value) {
  if (IsUndefined(value)) return std::vector<Value>();
  if (IsString(value)) return Characters(runtime, TextOf(value));
  if (const auto* list = std::get_if<ListPtr>(&value)) {
    SKEIN_RETURN_IF_ERROR(runtime.WorkOn((*list)->items.size()));
    return (*list)->items;
  }
  if (const auto* dict = std::get_if<DictPtr>(&value)) {
    SKEIN_RETURN_IF_ERROR(runtime.WorkOn((*dict)->entries.size()));
    std::vector<Value> keys;
    for (const auto& entry : (*dict)->entries) keys.push_back(entry.first);
    return keys;
  }
  if (const auto* held = std::get_if<IteratorPtr>(&value)) {
    Iterator& iterator = **held;
    const auto begin = iterator.items.begin() + static_cast<ptrdiff_t>(iterator.next);
    iterator.next = iterator.items.size();
    return std::vector<Value>(begin, iterator.items.end());
  }
  return Invalid("a ", TypeName(value), " has no items to go through");
}

}  // namespace skein::model
