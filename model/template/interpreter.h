// Runs a parsed template once.
#pragma once

#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "model/template/ast.h"
#include "model/template/runtime.h"
#include "model/template/text.h"
#include "model/template/value.h"

namespace skein::model {

// Variables of a body; those of the bodies around it are seen, too.
struct Scope {
  std::shared_ptr<Scope> parent;
  std::vector<std::pair<NameId, Value>> variables;

  void Set(NameId name, Value value);
  // null: neither here nor around. Adds how many variables it looked at.
  const Value* Find(NameId name, size_t& looked_at) const;
};
using ScopePtr = std::shared_ptr<Scope>;

// Text that is being rendered, held to the limits.
class Output {
 public:
  explicit Output(Runtime& runtime) : runtime_(runtime) {}
  absl::Status Append(const Text& text);
  Text Take() { return std::move(text_); }

 private:
  Runtime& runtime_;
  Text text_;
  Charge charge_;
};

// One thread uses it, once. The template and the runtime outlive it.
class Interpreter {
 public:
  Interpreter(const Ast& ast, Runtime& runtime);
  ~Interpreter();
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;

  // With `root` as the outermost variables. Errors have their place.
  absl::StatusOr<Text> Run(const ScopePtr& root);

 private:
  enum class Flow { kNext, kBreak, kContinue };
  using Executed = absl::StatusOr<Flow>;
  using Evaluated = absl::StatusOr<Value>;

  // Statements (interpreter.cc).
  Executed ExecuteBody(const Body& body, const ScopePtr& scope, Output& out);
  Executed Execute(const Statement& statement, const ScopePtr& scope, Output& out);
  Executed ExecuteNode(const Data& data, const ScopePtr& scope, Output& out);
  Executed ExecuteNode(const Print& print, const ScopePtr& scope, Output& out);
  Executed ExecuteNode(const For& loop, const ScopePtr& scope, Output& out);
  Executed ExecuteNode(const If& branches, const ScopePtr& scope, Output& out);
  Executed ExecuteNode(const Set& set, const ScopePtr& scope, Output& out);
  Executed ExecuteNode(const SetBlock& block, const ScopePtr& scope, Output& out);
  Executed ExecuteNode(const MacroDefinition& definition, const ScopePtr& scope, Output& out);
  Executed ExecuteNode(const CallBlock& block, const ScopePtr& scope, Output& out);
  Executed ExecuteNode(const FilterBlock& block, const ScopePtr& scope, Output& out);
  Executed ExecuteNode(const With& with, const ScopePtr& scope, Output& out);
  Executed ExecuteNode(const Generation& block, const ScopePtr& scope, Output& out);
  Executed ExecuteNode(const Break&, const ScopePtr&, Output&) { return Flow::kBreak; }
  Executed ExecuteNode(const Continue&, const ScopePtr&, Output&) { return Flow::kContinue; }
  Executed RunLoop(const For& loop, const ScopePtr& scope, const Value& items, int depth,
                   Output& out);
  // Whether a pass came to the body's end: as in Jinja, else is for loops of which none did.
  absl::StatusOr<bool> RunPasses(const For& loop, const ScopePtr& scope, const LoopPtr& state,
                                 Output& out);
  absl::StatusOr<std::vector<Value>> ChosenItems(const For& loop, const ScopePtr& scope,
                                                 const Value& items);
  absl::Status Assign(const Target& target, const Value& value, Scope& scope);
  absl::Status AssignAttribute(const Target& target, const Value& value, Scope& scope);
  // A block's text as a value, and how its body ended.
  absl::StatusOr<std::pair<Value, Flow>> RenderBlock(const Body& body, const ScopePtr& scope);

  // Macros (macros.cc).
  Evaluated MakeMacro(const Macro& macro, const ScopePtr& scope);
  Evaluated CallMacro(const Macro& macro, const ScopePtr& around, const Arguments& arguments);
  absl::Status BindParameters(const Macro& macro, const ScopePtr& scope, Arguments& named_left,
                              const Arguments& arguments);
  absl::Status BindRest(const Macro& macro, Scope& scope, Arguments& left);

  // Expressions (evaluation.cc).
  Evaluated Evaluate(const Expression& expression, const ScopePtr& scope);
  Evaluated EvaluateNode(const Literal& literal, const ScopePtr& scope);
  Evaluated EvaluateNode(const Variable& variable, const ScopePtr& scope);
  Evaluated EvaluateNode(const ListDisplay& list, const ScopePtr& scope);
  Evaluated EvaluateNode(const DictDisplay& dict, const ScopePtr& scope);
  Evaluated EvaluateNode(const Unary& unary, const ScopePtr& scope);
  Evaluated EvaluateNode(const Binary& binary, const ScopePtr& scope);
  Evaluated EvaluateNode(const Concatenation& concatenation, const ScopePtr& scope);
  Evaluated EvaluateNode(const Logical& logical, const ScopePtr& scope);
  Evaluated EvaluateNode(const Compare& compare, const ScopePtr& scope);
  Evaluated EvaluateNode(const Conditional& conditional, const ScopePtr& scope);
  Evaluated EvaluateNode(const Attribute& attribute, const ScopePtr& scope);
  Evaluated EvaluateNode(const Subscript& subscript, const ScopePtr& scope);
  Evaluated EvaluateNode(const Slice& slice, const ScopePtr& scope);
  Evaluated EvaluateNode(const Call& call, const ScopePtr& scope);
  Evaluated EvaluateNode(const FilterCall& call, const ScopePtr& scope);
  Evaluated EvaluateNode(const TestCall& call, const ScopePtr& scope);
  Evaluated EvaluateCall(const Call& call, const ScopePtr& scope, const Value* caller);
  absl::StatusOr<Arguments> EvaluateArguments(const CallArguments& arguments,
                                              const ScopePtr& scope);
  absl::Status AddNamed(const Value& more, Arguments& arguments);
  // A chain of filters on a block's text.
  Evaluated ApplyFilters(const Expression& filters, const ScopePtr& scope, const Value& text);

  const Ast& ast_;
  Runtime& runtime_;
  NameId loop_name_ = -1;  // each -1 where the template has no such name
  NameId caller_name_ = -1;
  NameId named_name_ = -1;       // kwargs
  NameId positional_name_ = -1;  // varargs
  // Scopes that macros refer to: they may refer to those as well.
  std::vector<std::pair<ScopePtr, Charge>> captured_;
  // What filters of a block are applied to.
  std::optional<Value> block_text_;
};

}  // namespace skein::model
