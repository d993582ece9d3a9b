// The functions that templates find by name: range, dict, namespace, raise_exception, strftime_now.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "model/template/runtime.h"
#include "model/template/value.h"

namespace skein::model {

// Undefined: there is no such function.
absl::StatusOr<Value> MakeBuiltin(Runtime& runtime, const std::string& name);

// Calls a function, a macro, or a recursive loop. InvalidArgument: what cannot be called.
absl::StatusOr<Value> CallValue(Runtime& runtime, const Value& callee, const Arguments& arguments);

}  // namespace skein::model
