#include "model/template/operators.h"

#include <algorithm>
#include <iterator>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status_macros.h"
#include "model/template/errors.h"
#include "model/template/formatting.h"
#include "model/template/numbers.h"
#include "model/template/text_edits.h"

namespace skein::model {
namespace {

using Result = absl::StatusOr<Value>;

constexpr std::string_view kSigns[] = {"+", "-", "*", "/", "//", "%", "**"};

Result AddStrings(Runtime& runtime, const Value& left, const Value& right) {
  const bool markup = IsMarkup(left) || IsMarkup(right);
  const auto side = [&](const Value& value) {
    return markup && !IsMarkup(value) ? EscapeHtml(TextOf(value)) : TextOf(value);
  };
  SKEIN_RETURN_IF_ERROR(runtime.Reserve(TextOf(left).footprint() + TextOf(right).footprint()));
  Text out = side(left);
  out.Append(side(right));
  return runtime.MakeString(std::move(out), markup);
}

Result AddLists(Runtime& runtime, const List& left, const List& right) {
  SKEIN_RETURN_IF_ERROR(runtime.Reserve((left.items.size() + right.items.size()) * sizeof(Value)));
  std::vector<Value> items = left.items;
  items.insert(items.end(), right.items.begin(), right.items.end());
  return runtime.MakeList(std::move(items), left.kind);
}

bool IsRepeatable(const Value& value) {
  return IsString(value) || ListOf(value, ListKind::kList) != nullptr ||
         ListOf(value, ListKind::kTuple) != nullptr;
}

Result Repeated(Runtime& runtime, const Value& value, int64_t times) {
  times = std::max<int64_t>(times, 0);
  const size_t one = IsString(value) ? TextOf(value).footprint()
                                     : std::get<ListPtr>(value)->items.size() * sizeof(Value);
  size_t all = 0;
  if (__builtin_mul_overflow(one, static_cast<size_t>(times), &all)) all = SIZE_MAX;
  SKEIN_RETURN_IF_ERROR(runtime.Reserve(all));
  SKEIN_RETURN_IF_ERROR(runtime.Work(all));
  if (one == 0) times = 0;
  if (IsString(value)) return runtime.MakeString(Repeat(TextOf(value), times), IsMarkup(value));
  const List& list = *std::get<ListPtr>(value);
  std::vector<Value> items;
  items.reserve(list.items.size() * static_cast<size_t>(times));
  for (int64_t i = 0; i < times; ++i) {
    items.insert(items.end(), list.items.begin(), list.items.end());
  }
  return runtime.MakeList(std::move(items), list.kind);
}

}  // namespace

Result Operate(Runtime& runtime, BinaryOperator operation, const Value& left, const Value& right) {
  for (const Value* side : {&left, &right}) {
    if (IsUndefined(*side) && !(operation == BinaryOperator::kModulo && IsString(left))) {
      return Invalid(*std::get<Undefined>(*side).why);
    }
  }
  if (NumberOf(left) && NumberOf(right)) return Calculate(operation, left, right);
  if (operation == BinaryOperator::kAdd) {
    if (IsString(left) && IsString(right)) return AddStrings(runtime, left, right);
    const auto* a = std::get_if<ListPtr>(&left);
    const auto* b = std::get_if<ListPtr>(&right);
    if (a != nullptr && b != nullptr && (*a)->kind == (*b)->kind && IsRepeatable(left)) {
      return AddLists(runtime, **a, **b);
    }
  }
  if (operation == BinaryOperator::kMultiply) {
    const auto times = IntegerOf(right);
    if (times && IsRepeatable(left)) return Repeated(runtime, left, *times);
    const auto before = IntegerOf(left);
    if (before && IsRepeatable(right)) return Repeated(runtime, right, *before);
  }
  if (operation == BinaryOperator::kModulo && IsString(left)) {
    SKEIN_ASSIGN_OR_RETURN(Text text, FormatPercent(runtime, TextOf(left), right, IsMarkup(left)));
    return runtime.MakeString(std::move(text), IsMarkup(left));
  }
  return Invalid("'", kSigns[static_cast<size_t>(operation)], "' is not for a ", TypeName(left),
                 " and a ", TypeName(right));
}

Result OperateUnary(UnaryOperator operation, const Value& operand) {
  if (operation == UnaryOperator::kNot) return !IsTrue(operand);
  if (IsUndefined(operand)) return Invalid(*std::get<Undefined>(operand).why);
  if (!NumberOf(operand)) return Invalid("a ", TypeName(operand), " has no sign");
  if (operation == UnaryOperator::kMinus) return Negate(operand);
  if (const auto* number = std::get_if<double>(&operand)) return *number;
  return *IntegerOf(operand);
}

}  // namespace skein::model
