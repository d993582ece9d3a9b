// Calls of macros and of what call blocks pass to them.
#include <algorithm>
#include <string>
#include <utility>

#include "base/status_macros.h"
#include "model/template/errors.h"
#include "model/template/interpreter.h"

namespace skein::model {

Interpreter::Evaluated Interpreter::MakeMacro(const Macro& macro, const ScopePtr& scope) {
  if (captured_.empty() || captured_.back().first != scope) {
    constexpr size_t kScopeBytes = 256;
    SKEIN_RETURN_IF_ERROR(runtime_.Reserve(kScopeBytes));
    captured_.emplace_back(scope, runtime_.Use(kScopeBytes));
  }
  return runtime_.MakeCallable(ast_.names[macro.name],
                               [this, &macro, scope](Runtime&, const Arguments& arguments) {
                                 return CallMacro(macro, scope, arguments);
                               });
}

// `left` gets the arguments that are no parameter's.
absl::Status Interpreter::BindParameters(const Macro& macro, const ScopePtr& scope, Arguments& left,
                                         const Arguments& arguments) {
  const size_t placed = std::min(arguments.positional.size(), macro.parameters.size());
  left.positional.assign(arguments.positional.begin() + static_cast<ptrdiff_t>(placed),
                         arguments.positional.end());
  left.named = arguments.named;
  for (size_t i = 0; i < placed; ++i) {
    scope->Set(macro.parameters[i].name, arguments.positional[i]);
  }
  for (size_t i = placed; i < macro.parameters.size(); ++i) {
    const Parameter& parameter = macro.parameters[i];
    const std::string& name = ast_.names[parameter.name];
    const auto named = std::find_if(left.named.begin(), left.named.end(), [&](const auto& entry) {
      return TextOf(entry.first).bytes() == name;
    });
    if (named != left.named.end()) {
      scope->Set(parameter.name, named->second);
      left.named.erase(named);
    } else if (parameter.fallback != nullptr) {
      SKEIN_ASSIGN_OR_RETURN(Value value, Evaluate(*parameter.fallback, scope));
      scope->Set(parameter.name, std::move(value));
    } else {
      scope->Set(parameter.name, MakeUndefined("parameter '" + name + "' was not given"));
    }
  }
  return absl::OkStatus();
}

// caller, kwargs and varargs, where the macro mentions them.
absl::Status Interpreter::BindRest(const Macro& macro, Scope& scope, Arguments& left) {
  const bool has_caller =
      std::any_of(macro.parameters.begin(), macro.parameters.end(),
                  [&](const Parameter& parameter) { return parameter.name == caller_name_; });
  if (macro.takes_caller && !has_caller) {
    const auto named = std::find_if(left.named.begin(), left.named.end(), [](const auto& entry) {
      return TextOf(entry.first).bytes() == "caller";
    });
    if (named == left.named.end()) {
      scope.Set(caller_name_, MakeUndefined("no caller is defined"));
    } else {
      scope.Set(caller_name_, named->second);
      left.named.erase(named);
    }
  }
  const std::string& name = ast_.names[macro.name];
  if (macro.takes_named) {
    SKEIN_ASSIGN_OR_RETURN(Value named, runtime_.MakeDict(std::move(left.named)));
    scope.Set(named_name_, std::move(named));
  } else if (!left.named.empty()) {
    return Invalid("macro '", name, "' takes no argument '", TextOf(left.named[0].first).bytes(),
                   "'");
  }
  if (macro.takes_positional) {
    SKEIN_ASSIGN_OR_RETURN(Value positional,
                           runtime_.MakeList(std::move(left.positional), ListKind::kTuple));
    scope.Set(positional_name_, std::move(positional));
  } else if (!left.positional.empty()) {
    return Invalid("macro '", name, "' takes ", macro.parameters.size(), " arguments at most");
  }
  return absl::OkStatus();
}

Interpreter::Evaluated Interpreter::CallMacro(const Macro& macro, const ScopePtr& around,
                                              const Arguments& arguments) {
  const auto scope = std::make_shared<Scope>(Scope{around, {}});
  Arguments left;
  SKEIN_RETURN_IF_ERROR(BindParameters(macro, scope, left, arguments));
  SKEIN_RETURN_IF_ERROR(BindRest(macro, *scope, left));
  Output text(runtime_);
  SKEIN_RETURN_IF_ERROR(ExecuteBody(macro.body, scope, text).status());
  return runtime_.MakeString(text.Take());
}

}  // namespace skein::model
