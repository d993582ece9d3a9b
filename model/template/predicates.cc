#include "model/template/predicates.h"

#include <string>

#include "absl/container/flat_hash_map.h"
#include "base/status_macros.h"
#include "model/template/arguments.h"
#include "model/template/characters.h"
#include "model/template/comparison.h"
#include "model/template/errors.h"
#include "model/template/filters.h"
#include "model/template/operators.h"
#include "model/template/printing.h"

namespace skein::model {
namespace {

using Answer = absl::StatusOr<bool>;
using Test = Answer (*)(Runtime&, const Value&, const Arguments&);

// A question about the value alone.
template <bool (*kAsk)(const Value&)>
Answer Plain(Runtime&, const Value& input, const Arguments& arguments) {
  SKEIN_RETURN_IF_ERROR(Bind("this test", arguments, {}).status());
  return kAsk(input);
}

bool IsDefined(const Value& value) { return !IsUndefined(value); }
bool IsBool(const Value& value) { return std::holds_alternative<bool>(value); }
bool IsTheTrue(const Value& value) { return IsBool(value) && std::get<bool>(value); }
bool IsTheFalse(const Value& value) { return IsBool(value) && !std::get<bool>(value); }
bool IsInt(const Value& value) { return std::holds_alternative<int64_t>(value); }
bool IsFloat(const Value& value) { return std::holds_alternative<double>(value); }
bool IsNumber(const Value& value) { return NumberOf(value).has_value(); }
bool IsMapping(const Value& value) { return std::holds_alternative<DictPtr>(value); }
bool IsCallable(const Value& value) {
  return std::holds_alternative<CallablePtr>(value) || std::holds_alternative<LoopPtr>(value) ||
         IsUndefined(value);
}
bool IsSequence(const Value& value) {
  if (const auto* list = std::get_if<ListPtr>(&value)) {
    const ListKind kind = (*list)->kind;
    return kind == ListKind::kList || kind == ListKind::kTuple || kind == ListKind::kRange;
  }
  return IsString(value) || IsMapping(value) || IsUndefined(value);
}
bool IsIterable(const Value& value) {
  return IsString(value) || IsMapping(value) || IsUndefined(value) ||
         std::holds_alternative<ListPtr>(value) || std::holds_alternative<IteratorPtr>(value) ||
         std::holds_alternative<LoopPtr>(value);
}

// The rest of a division by the number is this.
Answer HasRest(Runtime& runtime, const Value& value, const Value& by, int64_t rest) {
  SKEIN_ASSIGN_OR_RETURN(const Value found, Operate(runtime, BinaryOperator::kModulo, value, by));
  return IsEqual(runtime, found, rest);
}

template <int64_t kRest>
Answer Parity(Runtime& runtime, const Value& input, const Arguments& arguments) {
  SKEIN_RETURN_IF_ERROR(Bind("this test", arguments, {}).status());
  return HasRest(runtime, input, int64_t{2}, kRest);
}

Answer DivisibleBy(Runtime& runtime, const Value& input, const Arguments& arguments) {
  SKEIN_ASSIGN_OR_RETURN(const Bound bound, Bind("divisibleby", arguments, {"num"}, 1));
  return HasRest(runtime, input, *bound[0], 0);
}

template <Comparison kComparison>
Answer Compared(Runtime& runtime, const Value& input, const Arguments& arguments) {
  SKEIN_ASSIGN_OR_RETURN(const Bound bound, Bind("a comparison", arguments, {"other"}, 1));
  return Holds(runtime, kComparison, input, *bound[0]);
}

template <bool kUpper>
Answer InCase(Runtime& runtime, const Value& input, const Arguments& arguments) {
  SKEIN_RETURN_IF_ERROR(Bind("this test", arguments, {}).status());
  SKEIN_ASSIGN_OR_RETURN(const Text text, Printed(runtime, input));
  SKEIN_RETURN_IF_ERROR(runtime.Work(text.size()));
  return IsInCase(text.bytes(), kUpper);
}

// The same object. Equal strings and numbers count as one.
Answer SameAs(Runtime& runtime, const Value& input, const Arguments& arguments) {
  SKEIN_ASSIGN_OR_RETURN(const Bound bound, Bind("sameas", arguments, {"other"}, 1));
  const Value& other = *bound[0];
  if (input.index() != other.index()) return false;
  if (const auto* list = std::get_if<ListPtr>(&input)) return *list == std::get<ListPtr>(other);
  if (const auto* dict = std::get_if<DictPtr>(&input)) return *dict == std::get<DictPtr>(other);
  return IsEqual(runtime, input, other);
}

template <bool (*kIsName)(std::string_view)>
Answer Named(Runtime&, const Value& input, const Arguments& arguments) {
  SKEIN_RETURN_IF_ERROR(Bind("this test", arguments, {}).status());
  return IsString(input) && kIsName(TextOf(input).bytes());
}

const absl::flat_hash_map<std::string_view, Test>& Tests() {
  static const auto& table = *new absl::flat_hash_map<std::string_view, Test>({
      {"boolean", Plain<IsBool>},
      {"callable", Plain<IsCallable>},
      {"defined", Plain<IsDefined>},
      {"divisibleby", DivisibleBy},
      {"escaped", Plain<IsMarkup>},
      {"even", Parity<0>},
      {"false", Plain<IsTheFalse>},
      {"filter", Named<IsFilter>},
      {"float", Plain<IsFloat>},
      {"in", Compared<Comparison::kIn>},
      {"integer", Plain<IsInt>},
      {"iterable", Plain<IsIterable>},
      {"lower", InCase<false>},
      {"mapping", Plain<IsMapping>},
      {"none", Plain<IsNone>},
      {"number", Plain<IsNumber>},
      {"odd", Parity<1>},
      {"sameas", SameAs},
      {"sequence", Plain<IsSequence>},
      {"string", Plain<IsString>},
      {"test", Named<IsTest>},
      {"true", Plain<IsTheTrue>},
      {"undefined", Plain<IsUndefined>},
      {"upper", InCase<true>},
      {"==", Compared<Comparison::kEqual>},
      {"eq", Compared<Comparison::kEqual>},
      {"equalto", Compared<Comparison::kEqual>},
      {"!=", Compared<Comparison::kUnequal>},
      {"ne", Compared<Comparison::kUnequal>},
      {">", Compared<Comparison::kGreater>},
      {"gt", Compared<Comparison::kGreater>},
      {"greaterthan", Compared<Comparison::kGreater>},
      {">=", Compared<Comparison::kGreaterEqual>},
      {"ge", Compared<Comparison::kGreaterEqual>},
      {"<", Compared<Comparison::kLess>},
      {"lt", Compared<Comparison::kLess>},
      {"lessthan", Compared<Comparison::kLess>},
      {"<=", Compared<Comparison::kLessEqual>},
      {"le", Compared<Comparison::kLessEqual>},
  });
  return table;
}

}  // namespace

bool IsTest(std::string_view name) { return Tests().contains(name); }

Answer AskTest(Runtime& runtime, std::string_view name, const Value& input,
               const Arguments& arguments) {
  const auto found = Tests().find(name);
  if (found == Tests().end()) return Invalid("no test is named '", name, "'");
  return found->second(runtime, input, arguments);
}

}  // namespace skein::model
