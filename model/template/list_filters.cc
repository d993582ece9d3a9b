// Filters of lists and dicts.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/status_macros.h"
#include "model/template/arguments.h"
#include "model/template/attribute_path.h"
#include "model/template/attributes.h"
#include "model/template/comparison.h"
#include "model/template/errors.h"
#include "model/template/filters.h"
#include "model/template/methods.h"
#include "model/template/operators.h"
#include "model/template/text_edits.h"

namespace skein::model {
namespace {

using Result = absl::StatusOr<Value>;

// What strings are compared by where case does not count.
Result Folded(Runtime& runtime, Value value, bool case_sensitive) {
  if (case_sensitive || !IsString(value)) return value;
  SKEIN_RETURN_IF_ERROR(runtime.Work(8 * TextOf(value).size()));
  return runtime.MakeString(LowerCase(TextOf(value)));
}

absl::StatusOr<std::vector<Value>> KeysOf(Runtime& runtime, const std::vector<Value>& items,
                                          const AttributePath& path, bool case_sensitive,
                                          const Value* fallback = nullptr) {
  std::vector<Value> keys;
  for (const Value& item : items) {
    SKEIN_ASSIGN_OR_RETURN(Value key, path.Get(runtime, item, fallback));
    SKEIN_ASSIGN_OR_RETURN(key, Folded(runtime, std::move(key), case_sensitive));
    keys.push_back(std::move(key));
  }
  return keys;
}

std::vector<Value> InOrder(const std::vector<Value>& items, const std::vector<size_t>& order) {
  std::vector<Value> out;
  out.reserve(items.size());
  for (const size_t i : order) out.push_back(items[i]);
  return out;
}

Result LengthFilter(Runtime& runtime, const Value& input, const Arguments& arguments) {
  SKEIN_RETURN_IF_ERROR(Bind("length", arguments, {}).status());
  if (IsString(input)) SKEIN_RETURN_IF_ERROR(runtime.Work(TextOf(input).size()));
  const auto length = LengthOf(input);
  if (!length) return Invalid("a ", TypeName(input), " has no length");
  return *length;
}

Result ListFilter(Runtime& runtime, const Value& input, const Arguments& arguments) {
  SKEIN_RETURN_IF_ERROR(Bind("list", arguments, {}).status());
  SKEIN_ASSIGN_OR_RETURN(std::vector<Value> items, Iterate(runtime, input));
  return runtime.MakeList(std::move(items));
}

Result FirstFilter(Runtime& runtime, const Value& input, const Arguments& arguments) {
  SKEIN_RETURN_IF_ERROR(Bind("first", arguments, {}).status());
  const Value none = MakeUndefined("first: there are no items");
  if (const auto* held = std::get_if<IteratorPtr>(&input)) {
    Iterator& iterator = **held;
    return iterator.next < iterator.items.size() ? iterator.items[iterator.next++] : none;
  }
  if (IsString(input)) {
    if (TextOf(input).empty()) return none;
    return GetItem(runtime, input, int64_t{0});
  }
  SKEIN_ASSIGN_OR_RETURN(const std::vector<Value> items, Iterate(runtime, input));
  return items.empty() ? none : items.front();
}

Result LastFilter(Runtime& runtime, const Value& input, const Arguments& arguments) {
  SKEIN_RETURN_IF_ERROR(Bind("last", arguments, {}).status());
  if (std::holds_alternative<IteratorPtr>(input)) return Invalid("last: a generator has no end");
  const Value none = MakeUndefined("last: there are no items");
  if (IsString(input)) {
    if (TextOf(input).empty()) return none;
    return GetItem(runtime, input, int64_t{-1});
  }
  SKEIN_ASSIGN_OR_RETURN(const std::vector<Value> items, Iterate(runtime, input));
  return items.empty() ? none : items.back();
}

Result ReverseFilter(Runtime& runtime, const Value& input, const Arguments& arguments) {
  SKEIN_RETURN_IF_ERROR(Bind("reverse", arguments, {}).status());
  if (IsString(input)) return GetSlice(runtime, input, None(), None(), int64_t{-1});
  SKEIN_ASSIGN_OR_RETURN(std::vector<Value> items, Iterate(runtime, input));
  std::reverse(items.begin(), items.end());
  // Of a generator, Jinja makes a list.
  if (std::holds_alternative<IteratorPtr>(input)) return runtime.MakeList(std::move(items));
  return runtime.MakeIterator(std::move(items));
}

Result SortFilter(Runtime& runtime, const Value& input, const Arguments& arguments) {
  SKEIN_ASSIGN_OR_RETURN(const Bound bound,
                         Bind("sort", arguments, {"reverse", "case_sensitive", "attribute"}));
  SKEIN_ASSIGN_OR_RETURN(const auto paths, AttributePath::ParseSeveral(bound[2]));
  SKEIN_ASSIGN_OR_RETURN(const std::vector<Value> items, Iterate(runtime, input));
  std::vector<Value> keys;
  for (const Value& item : items) {
    std::vector<Value> parts;
    for (const AttributePath& path : paths) {
      SKEIN_ASSIGN_OR_RETURN(Value part, path.Get(runtime, item));
      SKEIN_ASSIGN_OR_RETURN(part,
                             Folded(runtime, std::move(part), TruthArgument(bound[1], false)));
      parts.push_back(std::move(part));
    }
    SKEIN_ASSIGN_OR_RETURN(Value key, runtime.MakeList(std::move(parts)));
    keys.push_back(std::move(key));
  }
  SKEIN_ASSIGN_OR_RETURN(const auto order,
                         StableOrder(runtime, keys, TruthArgument(bound[0], false)));
  return runtime.MakeList(InOrder(items, order));
}

Result DictSortFilter(Runtime& runtime, const Value& input, const Arguments& arguments) {
  SKEIN_ASSIGN_OR_RETURN(const Bound bound,
                         Bind("dictsort", arguments, {"case_sensitive", "by", "reverse"}));
  if (!std::holds_alternative<DictPtr>(input)) {
    return Invalid("dictsort of a ", TypeName(input));
  }
  int64_t by = 0;
  if (bound[1] != nullptr) {
    const std::string name = IsString(*bound[1]) ? TextOf(*bound[1]).bytes() : "";
    if (name != "key" && name != "value") return Invalid("dictsort is by 'key' or by 'value'");
    by = name == "key" ? 0 : 1;
  }
  SKEIN_ASSIGN_OR_RETURN(const Value pairs, FindMethod(input, "items")(runtime, input, {}));
  const std::vector<Value>& items = std::get<ListPtr>(pairs)->items;
  const Value place = by;
  SKEIN_ASSIGN_OR_RETURN(const AttributePath path, AttributePath::Parse(&place));
  SKEIN_ASSIGN_OR_RETURN(const auto keys,
                         KeysOf(runtime, items, path, TruthArgument(bound[0], false)));
  SKEIN_ASSIGN_OR_RETURN(const auto order,
                         StableOrder(runtime, keys, TruthArgument(bound[2], false)));
  return runtime.MakeList(InOrder(items, order));
}

Result ItemsFilter(Runtime& runtime, const Value& input, const Arguments& arguments) {
  SKEIN_RETURN_IF_ERROR(Bind("items", arguments, {}).status());
  if (IsUndefined(input)) return runtime.MakeIterator({});
  if (!std::holds_alternative<DictPtr>(input)) return Invalid("items of a ", TypeName(input));
  SKEIN_ASSIGN_OR_RETURN(const Value pairs, FindMethod(input, "items")(runtime, input, {}));
  return runtime.MakeIterator(std::get<ListPtr>(pairs)->items);
}

Result UniqueFilter(Runtime& runtime, const Value& input, const Arguments& arguments) {
  SKEIN_ASSIGN_OR_RETURN(const Bound bound,
                         Bind("unique", arguments, {"case_sensitive", "attribute"}));
  SKEIN_ASSIGN_OR_RETURN(const AttributePath path, AttributePath::Parse(bound[1]));
  SKEIN_ASSIGN_OR_RETURN(const std::vector<Value> items, Iterate(runtime, input));
  SKEIN_ASSIGN_OR_RETURN(const auto keys,
                         KeysOf(runtime, items, path, TruthArgument(bound[0], false)));
  Dict seen;
  std::vector<Value> out;
  for (size_t i = 0; i < items.size(); ++i) {
    if (!IsHashable(keys[i])) return Invalid("unique: a ", TypeName(keys[i]), " cannot be a key");
    if (!IsString(keys[i])) SKEIN_RETURN_IF_ERROR(runtime.WorkOn(seen.entries.size()));
    if (seen.Find(keys[i]) != nullptr) continue;
    seen.Set(keys[i], None());
    out.push_back(items[i]);
  }
  return runtime.MakeIterator(std::move(out));
}

Result Extreme(Runtime& runtime, const Value& input, const Arguments& arguments, bool greatest) {
  SKEIN_ASSIGN_OR_RETURN(const Bound bound,
                         Bind("min", arguments, {"case_sensitive", "attribute"}));
  SKEIN_ASSIGN_OR_RETURN(const AttributePath path, AttributePath::Parse(bound[1]));
  SKEIN_ASSIGN_OR_RETURN(const std::vector<Value> items, Iterate(runtime, input));
  if (items.empty()) return MakeUndefined("min or max: there are no items");
  SKEIN_ASSIGN_OR_RETURN(const auto keys,
                         KeysOf(runtime, items, path, TruthArgument(bound[0], false)));
  size_t best = 0;
  for (size_t i = 1; i < items.size(); ++i) {
    SKEIN_ASSIGN_OR_RETURN(const bool better, greatest ? IsLess(runtime, keys[best], keys[i])
                                                       : IsLess(runtime, keys[i], keys[best]));
    if (better) best = i;
  }
  return items[best];
}

Result MinFilter(Runtime& runtime, const Value& input, const Arguments& arguments) {
  return Extreme(runtime, input, arguments, /*greatest=*/false);
}
Result MaxFilter(Runtime& runtime, const Value& input, const Arguments& arguments) {
  return Extreme(runtime, input, arguments, /*greatest=*/true);
}

Result SumFilter(Runtime& runtime, const Value& input, const Arguments& arguments) {
  SKEIN_ASSIGN_OR_RETURN(const Bound bound, Bind("sum", arguments, {"attribute", "start"}));
  SKEIN_ASSIGN_OR_RETURN(const AttributePath path, AttributePath::Parse(bound[0]));
  SKEIN_ASSIGN_OR_RETURN(const std::vector<Value> items, Iterate(runtime, input));
  Value sum = bound[1] != nullptr ? *bound[1] : Value(int64_t{0});
  if (IsString(sum)) return Invalid("sum does not add strings");
  for (const Value& item : items) {
    SKEIN_ASSIGN_OR_RETURN(const Value value, path.Get(runtime, item));
    SKEIN_ASSIGN_OR_RETURN(sum, Operate(runtime, BinaryOperator::kAdd, sum, value));
  }
  return sum;
}

Result GroupByFilter(Runtime& runtime, const Value& input, const Arguments& arguments) {
  SKEIN_ASSIGN_OR_RETURN(const Bound bound,
                         Bind("groupby", arguments, {"attribute", "default", "case_sensitive"}, 1));
  SKEIN_ASSIGN_OR_RETURN(const AttributePath path, AttributePath::Parse(bound[0]));
  SKEIN_ASSIGN_OR_RETURN(const std::vector<Value> items, Iterate(runtime, input));
  SKEIN_ASSIGN_OR_RETURN(const auto keys,
                         KeysOf(runtime, items, path, TruthArgument(bound[2], false), bound[1]));
  SKEIN_ASSIGN_OR_RETURN(const auto order, StableOrder(runtime, keys, /*reverse=*/false));
  std::vector<Value> groups;
  for (size_t begin = 0; begin < order.size();) {
    std::vector<Value> group;
    size_t end = begin;
    for (; end < order.size(); ++end) {
      SKEIN_ASSIGN_OR_RETURN(const bool same,
                             IsEqual(runtime, keys[order[begin]], keys[order[end]]));
      if (!same) break;
      group.push_back(items[order[end]]);
    }
    SKEIN_ASSIGN_OR_RETURN(Value key, path.Get(runtime, group[0], bound[1]));
    SKEIN_ASSIGN_OR_RETURN(Value list, runtime.MakeList(std::move(group)));
    SKEIN_ASSIGN_OR_RETURN(Value tuple, runtime.MakeGroup(std::move(key), std::move(list)));
    groups.push_back(std::move(tuple));
    begin = end;
  }
  return runtime.MakeList(std::move(groups));
}

Result BatchFilter(Runtime& runtime, const Value& input, const Arguments& arguments) {
  SKEIN_ASSIGN_OR_RETURN(const Bound bound,
                         Bind("batch", arguments, {"linecount", "fill_with"}, 1));
  SKEIN_ASSIGN_OR_RETURN(const int64_t size, IntegerArgument(bound[0], 0));
  SKEIN_ASSIGN_OR_RETURN(const std::vector<Value> items, Iterate(runtime, input));
  std::vector<Value> batches;
  std::vector<Value> batch;
  const auto flush = [&]() -> absl::Status {
    SKEIN_ASSIGN_OR_RETURN(Value list, runtime.MakeList(std::exchange(batch, {})));
    batches.push_back(std::move(list));
    return absl::OkStatus();
  };
  for (const Value& item : items) {
    if (std::ssize(batch) == size) SKEIN_RETURN_IF_ERROR(flush());
    batch.push_back(item);
  }
  if (batch.empty()) return runtime.MakeIterator(std::move(batches));
  if (bound[1] != nullptr && !IsNone(*bound[1]) && std::ssize(batch) < size) {
    const size_t missing = static_cast<size_t>(size) - batch.size();
    if (missing > SIZE_MAX / sizeof(Value)) return Invalid("batch: too many items");
    SKEIN_RETURN_IF_ERROR(runtime.Reserve(missing * sizeof(Value)));
    batch.insert(batch.end(), missing, *bound[1]);
  }
  SKEIN_RETURN_IF_ERROR(flush());
  return runtime.MakeIterator(std::move(batches));
}

Result SliceFilter(Runtime& runtime, const Value& input, const Arguments& arguments) {
  SKEIN_ASSIGN_OR_RETURN(const Bound bound, Bind("slice", arguments, {"slices", "fill_with"}, 1));
  SKEIN_ASSIGN_OR_RETURN(const int64_t count, IntegerArgument(bound[0], 0));
  SKEIN_ASSIGN_OR_RETURN(const std::vector<Value> items, Iterate(runtime, input));
  if (count == 0) return Invalid("slice: by 0");
  if (count < 0) return runtime.MakeIterator({});
  SKEIN_RETURN_IF_ERROR(runtime.Step(count));
  const bool fills = bound[1] != nullptr && !IsNone(*bound[1]);
  const int64_t size = std::ssize(items) / count;
  const int64_t longer = std::ssize(items) % count;
  std::vector<Value> slices;
  auto next = items.begin();
  for (int64_t i = 0; i < count; ++i) {
    const auto end = next + size + (i < longer ? 1 : 0);
    std::vector<Value> slice(next, end);
    if (fills && i >= longer) slice.push_back(*bound[1]);
    SKEIN_ASSIGN_OR_RETURN(Value list, runtime.MakeList(std::move(slice)));
    slices.push_back(std::move(list));
    next = end;
  }
  return runtime.MakeIterator(std::move(slices));
}

}  // namespace

Filter FindListFilter(std::string_view name) {
  static const auto& table = *new absl::flat_hash_map<std::string_view, Filter>({
      {"batch", BatchFilter},
      {"count", LengthFilter},
      {"dictsort", DictSortFilter},
      {"first", FirstFilter},
      {"groupby", GroupByFilter},
      {"items", ItemsFilter},
      {"last", LastFilter},
      {"length", LengthFilter},
      {"list", ListFilter},
      {"max", MaxFilter},
      {"min", MinFilter},
      {"reverse", ReverseFilter},
      {"slice", SliceFilter},
      {"sort", SortFilter},
      {"sum", SumFilter},
      {"unique", UniqueFilter},
  });
  const auto found = table.find(name);
  return found == table.end() ? nullptr : found->second;
}

}  // namespace skein::model
