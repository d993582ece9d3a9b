// Expressions.
#include <string>
#include <utility>
#include <vector>

#include "base/status_macros.h"
#include "model/template/attributes.h"
#include "model/template/builtins.h"
#include "model/template/comparison.h"
#include "model/template/errors.h"
#include "model/template/filters.h"
#include "model/template/interpreter.h"
#include "model/template/methods.h"
#include "model/template/operators.h"
#include "model/template/predicates.h"
#include "model/template/printing.h"

namespace skein::model {

Interpreter::Evaluated Interpreter::Evaluate(const Expression& expression, const ScopePtr& scope) {
  const Runtime::DepthGuard deeper(runtime_);
  if (!deeper.ok) return Locate(runtime_.DepthError(), expression.at);
  if (absl::Status status = runtime_.Step(); !status.ok()) return Locate(status, expression.at);
  Evaluated value =
      std::visit([&](const auto& node) { return EvaluateNode(node, scope); }, expression.node);
  if (!value.ok()) return Locate(value.status(), expression.at);
  return value;
}

Interpreter::Evaluated Interpreter::EvaluateNode(const Literal& literal, const ScopePtr&) {
  return literal.value;
}

Interpreter::Evaluated Interpreter::EvaluateNode(const Variable& variable, const ScopePtr& scope) {
  size_t looked_at = 0;
  const Value* const found = scope->Find(variable.name, looked_at);
  SKEIN_RETURN_IF_ERROR(runtime_.Work(looked_at));
  if (found != nullptr) return *found;
  return MakeBuiltin(runtime_, ast_.names[variable.name]);
}

Interpreter::Evaluated Interpreter::EvaluateNode(const ListDisplay& list, const ScopePtr& scope) {
  std::vector<Value> items;
  for (const ExpressionPtr& expression : list.items) {
    SKEIN_ASSIGN_OR_RETURN(Value item, Evaluate(*expression, scope));
    items.push_back(std::move(item));
  }
  return runtime_.MakeList(std::move(items), list.kind);
}

Interpreter::Evaluated Interpreter::EvaluateNode(const DictDisplay& dict, const ScopePtr& scope) {
  std::vector<std::pair<Value, Value>> entries;
  for (const auto& entry : dict.entries) {
    SKEIN_ASSIGN_OR_RETURN(Value key, Evaluate(*entry.first, scope));
    SKEIN_ASSIGN_OR_RETURN(Value value, Evaluate(*entry.second, scope));
    entries.emplace_back(std::move(key), std::move(value));
  }
  return runtime_.MakeDict(std::move(entries));
}

Interpreter::Evaluated Interpreter::EvaluateNode(const Unary& unary, const ScopePtr& scope) {
  SKEIN_ASSIGN_OR_RETURN(const Value operand, Evaluate(*unary.operand, scope));
  return OperateUnary(unary.operation, operand);
}

Interpreter::Evaluated Interpreter::EvaluateNode(const Binary& binary, const ScopePtr& scope) {
  SKEIN_ASSIGN_OR_RETURN(const Value left, Evaluate(*binary.left, scope));
  SKEIN_ASSIGN_OR_RETURN(const Value right, Evaluate(*binary.right, scope));
  return Operate(runtime_, binary.operation, left, right);
}

Interpreter::Evaluated Interpreter::EvaluateNode(const Concatenation& concatenation,
                                                 const ScopePtr& scope) {
  // All first: what their evaluation holds counts, a text that grows here does not.
  std::vector<Value> values;
  for (const ExpressionPtr& expression : concatenation.parts) {
    SKEIN_ASSIGN_OR_RETURN(Value value, Evaluate(*expression, scope));
    values.push_back(std::move(value));
  }
  Text all;
  for (const Value& value : values) {
    SKEIN_ASSIGN_OR_RETURN(const Text part, Printed(runtime_, value));
    SKEIN_RETURN_IF_ERROR(runtime_.Reserve(all.footprint() + part.footprint()));
    all.Append(part);
  }
  return runtime_.MakeString(std::move(all));
}

Interpreter::Evaluated Interpreter::EvaluateNode(const Logical& logical, const ScopePtr& scope) {
  SKEIN_ASSIGN_OR_RETURN(Value left, Evaluate(*logical.left, scope));
  if (IsTrue(left) != logical.is_and) return left;
  return Evaluate(*logical.right, scope);
}

Interpreter::Evaluated Interpreter::EvaluateNode(const Compare& compare, const ScopePtr& scope) {
  SKEIN_ASSIGN_OR_RETURN(Value left, Evaluate(*compare.first, scope));
  for (const auto& [comparison, expression] : compare.rest) {
    SKEIN_ASSIGN_OR_RETURN(Value right, Evaluate(*expression, scope));
    SKEIN_ASSIGN_OR_RETURN(const bool holds, Holds(runtime_, comparison, left, right));
    if (!holds) return false;
    left = std::move(right);
  }
  return true;
}

Interpreter::Evaluated Interpreter::EvaluateNode(const Conditional& conditional,
                                                 const ScopePtr& scope) {
  SKEIN_ASSIGN_OR_RETURN(const Value condition, Evaluate(*conditional.condition, scope));
  if (IsTrue(condition)) return Evaluate(*conditional.then, scope);
  if (conditional.otherwise != nullptr) return Evaluate(*conditional.otherwise, scope);
  return MakeUndefined("the condition is false, and there is no else");
}

Interpreter::Evaluated Interpreter::EvaluateNode(const Attribute& attribute,
                                                 const ScopePtr& scope) {
  SKEIN_ASSIGN_OR_RETURN(const Value object, Evaluate(*attribute.object, scope));
  return GetAttribute(runtime_, object, attribute.name);
}

Interpreter::Evaluated Interpreter::EvaluateNode(const Subscript& subscript,
                                                 const ScopePtr& scope) {
  SKEIN_ASSIGN_OR_RETURN(const Value object, Evaluate(*subscript.object, scope));
  SKEIN_ASSIGN_OR_RETURN(const Value key, Evaluate(*subscript.key, scope));
  return GetItem(runtime_, object, key);
}

Interpreter::Evaluated Interpreter::EvaluateNode(const Slice& slice, const ScopePtr& scope) {
  SKEIN_ASSIGN_OR_RETURN(const Value object, Evaluate(*slice.object, scope));
  Value bounds[3] = {None(), None(), None()};
  const ExpressionPtr* const expressions[3] = {&slice.start, &slice.stop, &slice.step};
  for (int i = 0; i < 3; ++i) {
    if (*expressions[i] == nullptr) continue;
    SKEIN_ASSIGN_OR_RETURN(bounds[i], Evaluate(**expressions[i], scope));
  }
  return GetSlice(runtime_, object, bounds[0], bounds[1], bounds[2]);
}

absl::Status Interpreter::AddNamed(const Value& more, Arguments& arguments) {
  const auto* dict = std::get_if<DictPtr>(&more);
  if (dict == nullptr) return Invalid("'**' needs a dict, got a ", TypeName(more));
  for (const auto& [key, value] : (*dict)->entries) {
    if (!IsString(key)) return Invalid("'**' needs names that are strings");
    for (const auto& named : arguments.named) {
      if (TextOf(named.first).bytes() == TextOf(key).bytes()) {
        return Invalid("'", TextOf(key).bytes(), "' is given twice");
      }
    }
    SKEIN_RETURN_IF_ERROR(runtime_.WorkOn(arguments.named.size()));
    arguments.named.emplace_back(key, value);
  }
  return absl::OkStatus();
}

absl::StatusOr<Arguments> Interpreter::EvaluateArguments(const CallArguments& arguments,
                                                         const ScopePtr& scope) {
  Arguments out;
  for (const ExpressionPtr& expression : arguments.positional) {
    SKEIN_ASSIGN_OR_RETURN(Value value, Evaluate(*expression, scope));
    out.positional.push_back(std::move(value));
  }
  if (arguments.more_positional != nullptr) {
    SKEIN_ASSIGN_OR_RETURN(const Value more, Evaluate(*arguments.more_positional, scope));
    SKEIN_ASSIGN_OR_RETURN(const std::vector<Value> items, Iterate(runtime_, more));
    const size_t bytes = 2 * items.size() * sizeof(Value);  // a macro has a copy
    SKEIN_RETURN_IF_ERROR(runtime_.Reserve(bytes));
    out.charge = runtime_.Use(bytes);
    out.positional.insert(out.positional.end(), items.begin(), items.end());
  }
  for (const auto& [name, expression] : arguments.named) {
    SKEIN_ASSIGN_OR_RETURN(Value value, Evaluate(*expression, scope));
    SKEIN_ASSIGN_OR_RETURN(Value key, runtime_.MakeString(name));
    out.named.emplace_back(std::move(key), std::move(value));
  }
  if (arguments.more_named != nullptr) {
    SKEIN_ASSIGN_OR_RETURN(const Value more, Evaluate(*arguments.more_named, scope));
    SKEIN_RETURN_IF_ERROR(AddNamed(more, out));
  }
  return out;
}

Interpreter::Evaluated Interpreter::EvaluateNode(const Call& call, const ScopePtr& scope) {
  return EvaluateCall(call, scope, /*caller=*/nullptr);
}

Interpreter::Evaluated Interpreter::EvaluateCall(const Call& call, const ScopePtr& scope,
                                                 const Value* caller) {
  Value callee;
  Value self;
  Method method = nullptr;
  if (const auto* attribute = std::get_if<Attribute>(&call.callee->node)) {
    SKEIN_ASSIGN_OR_RETURN(self, Evaluate(*attribute->object, scope));
    method = FindMethod(self, attribute->name);
    if (method == nullptr) {
      SKEIN_ASSIGN_OR_RETURN(callee, GetAttribute(runtime_, self, attribute->name));
    }
  } else {
    SKEIN_ASSIGN_OR_RETURN(callee, Evaluate(*call.callee, scope));
  }
  SKEIN_ASSIGN_OR_RETURN(Arguments arguments, EvaluateArguments(call.arguments, scope));
  if (caller != nullptr) {
    SKEIN_ASSIGN_OR_RETURN(Value name, runtime_.MakeString("caller"));
    arguments.named.emplace_back(std::move(name), *caller);
  }
  if (method != nullptr) return method(runtime_, self, arguments);
  return CallValue(runtime_, callee, arguments);
}

Interpreter::Evaluated Interpreter::EvaluateNode(const FilterCall& call, const ScopePtr& scope) {
  Value input;
  if (call.input == nullptr) {
    input = *block_text_;
  } else {
    SKEIN_ASSIGN_OR_RETURN(input, Evaluate(*call.input, scope));
  }
  SKEIN_ASSIGN_OR_RETURN(const Arguments arguments, EvaluateArguments(call.arguments, scope));
  return ApplyFilter(runtime_, call.name, input, arguments);
}

Interpreter::Evaluated Interpreter::EvaluateNode(const TestCall& call, const ScopePtr& scope) {
  SKEIN_ASSIGN_OR_RETURN(const Value input, Evaluate(*call.input, scope));
  SKEIN_ASSIGN_OR_RETURN(const Arguments arguments, EvaluateArguments(call.arguments, scope));
  SKEIN_ASSIGN_OR_RETURN(const bool holds, AskTest(runtime_, call.name, input, arguments));
  return holds;
}

Interpreter::Evaluated Interpreter::ApplyFilters(const Expression& filters, const ScopePtr& scope,
                                                 const Value& text) {
  // Arguments of the filters may render other blocks, by macros.
  const std::optional<Value> outer = std::exchange(block_text_, text);
  Evaluated value = Evaluate(filters, scope);
  block_text_ = outer;
  return value;
}

}  // namespace skein::model
