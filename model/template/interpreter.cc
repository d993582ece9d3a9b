#include "model/template/interpreter.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "model/template/errors.h"
#include "model/template/printing.h"

namespace skein::model {

void Scope::Set(NameId name, Value value) {
  for (auto& variable : variables) {
    if (variable.first == name) {
      variable.second = std::move(value);
      return;
    }
  }
  variables.emplace_back(name, std::move(value));
}

const Value* Scope::Find(NameId name, size_t& looked_at) const {
  for (const Scope* scope = this; scope != nullptr; scope = scope->parent.get()) {
    looked_at += scope->variables.size();
    for (const auto& variable : scope->variables) {
      if (variable.first == name) return &variable.second;
    }
  }
  return nullptr;
}

absl::Status Output::Append(const Text& text) {
  const int64_t limit = runtime_.limits().output_bytes;
  if (static_cast<int64_t>(text_.size() + text.size()) > limit) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the template renders more than ", limit, " bytes"));
  }
  SKEIN_RETURN_IF_ERROR(runtime_.Work(text.size()));
  SKEIN_RETURN_IF_ERROR(runtime_.Reserve(text.footprint()));
  text_.Append(text);
  charge_ = Charge();
  charge_ = runtime_.Use(text_.footprint());
  return absl::OkStatus();
}

Interpreter::Interpreter(const Ast& ast, Runtime& runtime) : ast_(ast), runtime_(runtime) {
  for (size_t i = 0; i < ast.names.size(); ++i) {
    const std::string& name = ast.names[i];
    const auto id = static_cast<NameId>(i);
    if (name == "loop") loop_name_ = id;
    if (name == "caller") caller_name_ = id;
    if (name == "kwargs") named_name_ = id;
    if (name == "varargs") positional_name_ = id;
  }
}

Interpreter::~Interpreter() {
  for (const auto& captured : captured_) {
    const auto variables = std::exchange(captured.first->variables, {});
  }
}

absl::StatusOr<Text> Interpreter::Run(const ScopePtr& root) {
  Output out(runtime_);
  SKEIN_RETURN_IF_ERROR(ExecuteBody(ast_.body, root, out).status());
  return out.Take();
}

Interpreter::Executed Interpreter::ExecuteBody(const Body& body, const ScopePtr& scope,
                                               Output& out) {
  for (const Statement& statement : body) {
    Executed flow = Execute(statement, scope, out);
    if (!flow.ok() || *flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

Interpreter::Executed Interpreter::Execute(const Statement& statement, const ScopePtr& scope,
                                           Output& out) {
  const Runtime::DepthGuard deeper(runtime_);
  if (!deeper.ok) return Locate(runtime_.DepthError(), statement.at);
  if (absl::Status status = runtime_.Step(); !status.ok()) return Locate(status, statement.at);
  Executed flow =
      std::visit([&](const auto& node) { return ExecuteNode(node, scope, out); }, statement.node);
  if (!flow.ok()) return Locate(flow.status(), statement.at);
  return flow;
}

Interpreter::Executed Interpreter::ExecuteNode(const Data& data, const ScopePtr&, Output& out) {
  SKEIN_RETURN_IF_ERROR(out.Append(data.text));
  return Flow::kNext;
}

Interpreter::Executed Interpreter::ExecuteNode(const Print& print, const ScopePtr& scope,
                                               Output& out) {
  for (const ExpressionPtr& expression : print.values) {
    SKEIN_ASSIGN_OR_RETURN(const Value value, Evaluate(*expression, scope));
    if (IsString(value)) {
      SKEIN_RETURN_IF_ERROR(out.Append(TextOf(value)));
    } else {
      SKEIN_ASSIGN_OR_RETURN(const Text text, Printed(runtime_, value));
      SKEIN_RETURN_IF_ERROR(out.Append(text));
    }
  }
  return Flow::kNext;
}

Interpreter::Executed Interpreter::ExecuteNode(const If& branches, const ScopePtr& scope,
                                               Output& out) {
  for (const auto& [condition, body] : branches.branches) {
    SKEIN_ASSIGN_OR_RETURN(const Value value, Evaluate(*condition, scope));
    if (IsTrue(value)) return ExecuteBody(body, scope, out);
  }
  return ExecuteBody(branches.otherwise, scope, out);
}

Interpreter::Executed Interpreter::ExecuteNode(const For& loop, const ScopePtr& scope,
                                               Output& out) {
  SKEIN_ASSIGN_OR_RETURN(const Value items, Evaluate(*loop.items, scope));
  return RunLoop(loop, scope, items, /*depth=*/1, out);
}

absl::StatusOr<std::vector<Value>> Interpreter::ChosenItems(const For& loop, const ScopePtr& scope,
                                                            const Value& items) {
  auto all = Iterate(runtime_, items);
  if (!all.ok()) return Locate(all.status(), loop.items->at);
  if (loop.condition == nullptr) return all;
  std::vector<Value> chosen;
  for (Value& item : *all) {
    const auto inner = std::make_shared<Scope>(Scope{scope, {}});
    SKEIN_RETURN_IF_ERROR(Assign(loop.target, item, *inner));
    SKEIN_ASSIGN_OR_RETURN(const Value holds, Evaluate(*loop.condition, inner));
    if (IsTrue(holds)) chosen.push_back(std::move(item));
  }
  return chosen;
}

Interpreter::Executed Interpreter::RunLoop(const For& loop, const ScopePtr& scope,
                                           const Value& items, int depth, Output& out) {
  SKEIN_ASSIGN_OR_RETURN(std::vector<Value> chosen, ChosenItems(loop, scope, items));
  SKEIN_ASSIGN_OR_RETURN(const LoopPtr state, runtime_.MakeLoop(std::move(chosen)));
  state->depth = depth;
  if (loop.recursive) {
    state->recurse = [this, &loop, scope, depth](const Value& inner) -> Evaluated {
      Output text(runtime_);
      SKEIN_RETURN_IF_ERROR(RunLoop(loop, scope, inner, depth + 1, text).status());
      return runtime_.MakeString(text.Take());
    };
  }
  const absl::StatusOr<bool> any_whole = RunPasses(loop, scope, state, out);
  // A namespace may still hold the loop, and it that namespace.
  state->recurse = nullptr;
  state->last_changed.reset();
  if (!any_whole.ok()) return any_whole.status();
  if (*any_whole || loop.otherwise.empty()) return Flow::kNext;
  return ExecuteBody(loop.otherwise, std::make_shared<Scope>(Scope{scope, {}}), out);
}

absl::StatusOr<bool> Interpreter::RunPasses(const For& loop, const ScopePtr& scope,
                                            const LoopPtr& state, Output& out) {
  bool any_whole = false;
  for (state->index = 0; state->index < state->items.size(); ++state->index) {
    const auto inner = std::make_shared<Scope>(Scope{scope, {}});
    SKEIN_RETURN_IF_ERROR(runtime_.Step());
    SKEIN_RETURN_IF_ERROR(Assign(loop.target, state->items[state->index], *inner));
    if (loop_name_ >= 0) inner->Set(loop_name_, state);
    SKEIN_ASSIGN_OR_RETURN(const Flow flow, ExecuteBody(loop.body, inner, out));
    if (flow == Flow::kBreak) break;
    any_whole |= flow == Flow::kNext;
  }
  return any_whole;
}

absl::Status Interpreter::AssignAttribute(const Target& target, const Value& value, Scope& scope) {
  size_t looked_at = 0;
  const Value* const found = scope.Find(target.name, looked_at);
  SKEIN_RETURN_IF_ERROR(runtime_.Work(looked_at));
  const auto* space = found == nullptr ? nullptr : std::get_if<NamespacePtr>(found);
  if (space == nullptr) {
    return Locate(Invalid("'", ast_.names[target.name], "' is no namespace"), target.at);
  }
  if (target.attribute.front() == '_') {
    return Locate(Invalid("a namespace has no '", target.attribute, "'"), target.at);
  }
  SKEIN_ASSIGN_OR_RETURN(const Value name, runtime_.MakeString(target.attribute));
  (*space)->attributes.Set(name, value);
  return absl::OkStatus();
}

absl::Status Interpreter::Assign(const Target& target, const Value& value, Scope& scope) {
  if (!target.attribute.empty()) return AssignAttribute(target, value, scope);
  if (!target.is_tuple) {
    SKEIN_RETURN_IF_ERROR(runtime_.Work(scope.variables.size()));
    scope.Set(target.name, value);
    return absl::OkStatus();
  }
  const auto items = Iterate(runtime_, value);
  if (!items.ok()) return Locate(items.status(), target.at);
  if (items->size() != target.items.size()) {
    return Locate(Invalid(items->size(), " values for ", target.items.size(), " names"), target.at);
  }
  for (size_t i = 0; i < items->size(); ++i) {
    SKEIN_RETURN_IF_ERROR(Assign(target.items[i], (*items)[i], scope));
  }
  return absl::OkStatus();
}

Interpreter::Executed Interpreter::ExecuteNode(const Set& set, const ScopePtr& scope, Output&) {
  SKEIN_ASSIGN_OR_RETURN(const Value value, Evaluate(*set.value, scope));
  SKEIN_RETURN_IF_ERROR(Assign(set.target, value, *scope));
  return Flow::kNext;
}

absl::StatusOr<std::pair<Value, Interpreter::Flow>> Interpreter::RenderBlock(
    const Body& body, const ScopePtr& scope) {
  Output text(runtime_);
  SKEIN_ASSIGN_OR_RETURN(const Flow flow, ExecuteBody(body, scope, text));
  SKEIN_ASSIGN_OR_RETURN(Value value, runtime_.MakeString(text.Take()));
  return std::pair(std::move(value), flow);
}

Interpreter::Executed Interpreter::ExecuteNode(const SetBlock& block, const ScopePtr& scope,
                                               Output&) {
  const auto inner = std::make_shared<Scope>(Scope{scope, {}});
  SKEIN_ASSIGN_OR_RETURN(auto rendered, RenderBlock(block.body, inner));
  if (rendered.second != Flow::kNext) return rendered.second;
  if (block.filter != nullptr) {
    SKEIN_ASSIGN_OR_RETURN(rendered.first, ApplyFilters(*block.filter, inner, rendered.first));
  }
  SKEIN_RETURN_IF_ERROR(Assign(block.target, rendered.first, *scope));
  return Flow::kNext;
}

Interpreter::Executed Interpreter::ExecuteNode(const MacroDefinition& definition,
                                               const ScopePtr& scope, Output&) {
  SKEIN_ASSIGN_OR_RETURN(Value macro, MakeMacro(*definition.macro, scope));
  scope->Set(definition.macro->name, std::move(macro));
  return Flow::kNext;
}

Interpreter::Executed Interpreter::ExecuteNode(const CallBlock& block, const ScopePtr& scope,
                                               Output& out) {
  SKEIN_ASSIGN_OR_RETURN(const Value caller, MakeMacro(*block.caller, scope));
  SKEIN_ASSIGN_OR_RETURN(const Value value,
                         EvaluateCall(std::get<Call>(block.call->node), scope, &caller));
  SKEIN_ASSIGN_OR_RETURN(const Text text, Printed(runtime_, value));
  SKEIN_RETURN_IF_ERROR(out.Append(text));
  return Flow::kNext;
}

Interpreter::Executed Interpreter::ExecuteNode(const FilterBlock& block, const ScopePtr& scope,
                                               Output& out) {
  const auto inner = std::make_shared<Scope>(Scope{scope, {}});
  SKEIN_ASSIGN_OR_RETURN(const auto rendered, RenderBlock(block.body, inner));
  if (rendered.second != Flow::kNext) return rendered.second;
  SKEIN_ASSIGN_OR_RETURN(const Value value, ApplyFilters(*block.filter, inner, rendered.first));
  SKEIN_ASSIGN_OR_RETURN(const Text text, Printed(runtime_, value));
  SKEIN_RETURN_IF_ERROR(out.Append(text));
  return Flow::kNext;
}

Interpreter::Executed Interpreter::ExecuteNode(const With& with, const ScopePtr& scope,
                                               Output& out) {
  const auto inner = std::make_shared<Scope>(Scope{scope, {}});
  for (const auto& [target, expression] : with.assignments) {
    SKEIN_ASSIGN_OR_RETURN(const Value value, Evaluate(*expression, scope));
    SKEIN_RETURN_IF_ERROR(Assign(target, value, *inner));
  }
  return ExecuteBody(with.body, inner, out);
}

Interpreter::Executed Interpreter::ExecuteNode(const Generation& block, const ScopePtr& scope,
                                               Output& out) {
  return ExecuteBody(block.body, std::make_shared<Scope>(Scope{scope, {}}), out);
}

}  // namespace skein::model
