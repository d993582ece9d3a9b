#include "model/template/comparison.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <string>

#include "base/status_macros.h"
#include "model/template/errors.h"
#include "model/template/text_edits.h"

namespace skein::model {
namespace {

std::optional<long double> ExactNumber(const Value& value) {
  // Holds every integer of 64 bits and every double.
  static_assert(std::numeric_limits<long double>::digits >= 64);
  if (const auto integer = IntegerOf(value)) return static_cast<long double>(*integer);
  if (const auto* number = std::get_if<double>(&value)) return *number;
  return std::nullopt;
}

bool IsListOrTuple(const Value& value) {
  return ListOf(value, ListKind::kList) != nullptr || ListOf(value, ListKind::kTuple) != nullptr;
}

absl::StatusOr<bool> EqualLists(Runtime& runtime, const List& a, const List& b) {
  if (a.kind != b.kind || a.items.size() != b.items.size()) return false;
  if (a.kind == ListKind::kValues) return &a == &b;
  for (size_t i = 0; i < a.items.size(); ++i) {
    SKEIN_ASSIGN_OR_RETURN(const bool same, IsEqual(runtime, a.items[i], b.items[i]));
    if (!same) return false;
  }
  return true;
}

absl::StatusOr<bool> EqualDicts(Runtime& runtime, const Dict& a, const Dict& b) {
  if (a.entries.size() != b.entries.size()) return false;
  for (const auto& [key, value] : a.entries) {
    const Value* const other = b.Find(key);
    if (other == nullptr) return false;
    SKEIN_ASSIGN_OR_RETURN(const bool same, IsEqual(runtime, value, *other));
    if (!same) return false;
  }
  return true;
}

absl::StatusOr<bool> LessLists(Runtime& runtime, const List& a, const List& b) {
  for (size_t i = 0; i < std::min(a.items.size(), b.items.size()); ++i) {
    SKEIN_ASSIGN_OR_RETURN(const bool same, IsEqual(runtime, a.items[i], b.items[i]));
    if (!same) return IsLess(runtime, a.items[i], b.items[i]);
  }
  return a.items.size() < b.items.size();
}

absl::Status NoOrder(const Value& a, const Value& b) {
  if (IsUndefined(a) || IsUndefined(b)) {
    return Invalid(*std::get<Undefined>(IsUndefined(a) ? a : b).why);
  }
  return Invalid("a ", TypeName(a), " and a ", TypeName(b), " have no order");
}

}  // namespace

absl::StatusOr<bool> IsEqual(Runtime& runtime, const Value& a, const Value& b) {
  const Runtime::DepthGuard deeper(runtime);
  if (!deeper.ok) return runtime.DepthError();
  SKEIN_RETURN_IF_ERROR(runtime.Step());
  if (const auto x = ExactNumber(a), y = ExactNumber(b); x && y) return *x == *y;
  if (a.index() != b.index()) return false;
  if (IsString(a)) {
    SKEIN_RETURN_IF_ERROR(runtime.Work(TextOf(a).size()));
    return TextOf(a).bytes() == TextOf(b).bytes();
  }
  if (const auto* list = std::get_if<ListPtr>(&a)) {
    return EqualLists(runtime, **list, *std::get<ListPtr>(b));
  }
  if (const auto* dict = std::get_if<DictPtr>(&a)) {
    return EqualDicts(runtime, **dict, *std::get<DictPtr>(b));
  }
  if (const auto* x = std::get_if<NamespacePtr>(&a)) return *x == std::get<NamespacePtr>(b);
  if (const auto* x = std::get_if<IteratorPtr>(&a)) return *x == std::get<IteratorPtr>(b);
  if (const auto* x = std::get_if<CallablePtr>(&a)) return *x == std::get<CallablePtr>(b);
  if (const auto* x = std::get_if<LoopPtr>(&a)) return *x == std::get<LoopPtr>(b);
  return true;  // both none, or both undefined
}

absl::StatusOr<bool> IsLess(Runtime& runtime, const Value& a, const Value& b) {
  const Runtime::DepthGuard deeper(runtime);
  if (!deeper.ok) return runtime.DepthError();
  SKEIN_RETURN_IF_ERROR(runtime.Step());
  if (const auto x = ExactNumber(a), y = ExactNumber(b); x && y) return *x < *y;
  if (IsString(a) && IsString(b)) {
    SKEIN_RETURN_IF_ERROR(runtime.Work(TextOf(a).size()));
    return TextOf(a).bytes() < TextOf(b).bytes();  // UTF-8 has the order of code points
  }
  if (IsListOrTuple(a) && IsListOrTuple(b)) {
    const List& x = *std::get<ListPtr>(a);
    const List& y = *std::get<ListPtr>(b);
    if (x.kind == y.kind) return LessLists(runtime, x, y);
  }
  return NoOrder(a, b);
}

absl::StatusOr<bool> IsIn(Runtime& runtime, const Value& item, const Value& container) {
  if (IsString(container)) {
    if (!IsString(item)) {
      return Invalid("a ", TypeName(item), " cannot be in a string");
    }
    SKEIN_RETURN_IF_ERROR(runtime.Work(TextOf(container).size()));
    return FindBytes(TextOf(container).bytes(), TextOf(item).bytes()) != std::string::npos;
  }
  if (const auto* dict = std::get_if<DictPtr>(&container)) {
    if (!IsHashable(item)) return Invalid("a ", TypeName(item), " cannot be a key");
    if (IsString(item)) SKEIN_RETURN_IF_ERROR(runtime.Work(TextOf(item).size()));
    return (*dict)->Find(item) != nullptr;
  }
  SKEIN_ASSIGN_OR_RETURN(const std::vector<Value> items, Iterate(runtime, container));
  for (const Value& other : items) {
    SKEIN_ASSIGN_OR_RETURN(const bool same, IsEqual(runtime, item, other));
    if (same) return true;
  }
  return false;
}

absl::StatusOr<bool> Holds(Runtime& runtime, Comparison comparison, const Value& a,
                           const Value& b) {
  const auto negated = [](absl::StatusOr<bool> holds) {
    if (holds.ok()) *holds = !*holds;
    return holds;
  };
  switch (comparison) {
    case Comparison::kEqual:
      return IsEqual(runtime, a, b);
    case Comparison::kUnequal:
      return negated(IsEqual(runtime, a, b));
    case Comparison::kLess:
      return IsLess(runtime, a, b);
    case Comparison::kGreater:
      return IsLess(runtime, b, a);
    case Comparison::kIn:
      return IsIn(runtime, a, b);
    case Comparison::kNotIn:
      return negated(IsIn(runtime, a, b));
    case Comparison::kLessEqual:
    case Comparison::kGreaterEqual:
      break;
  }
  const bool is_less = comparison == Comparison::kLessEqual;
  // Asked first: it says which types have no order.
  SKEIN_ASSIGN_OR_RETURN(const bool holds, is_less ? IsLess(runtime, a, b) : IsLess(runtime, b, a));
  if (holds) return true;
  return IsEqual(runtime, a, b);
}

absl::StatusOr<std::vector<size_t>> StableOrder(Runtime& runtime, const std::vector<Value>& keys,
                                                bool reverse) {
  std::vector<size_t> order(keys.size());
  std::iota(order.begin(), order.end(), size_t{0});
  absl::Status status;
  // After an error all are equal, which is an order.
  std::stable_sort(order.begin(), order.end(), [&](size_t i, size_t j) {
    if (!status.ok()) return false;
    const auto less =
        reverse ? IsLess(runtime, keys[j], keys[i]) : IsLess(runtime, keys[i], keys[j]);
    if (!less.ok()) status = less.status();
    return less.ok() && *less;
  });
  if (!status.ok()) return status;
  return order;
}

}  // namespace skein::model
