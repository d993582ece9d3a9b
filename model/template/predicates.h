// Jinja's tests: the questions behind `is`.
#pragma once

#include <string_view>

#include "absl/status/statusor.h"
#include "model/template/runtime.h"
#include "model/template/value.h"

namespace skein::model {

bool IsTest(std::string_view name);
// InvalidArgument: no such test, too.
absl::StatusOr<bool> AskTest(Runtime& runtime, std::string_view name, const Value& input,
                             const Arguments& arguments);

}  // namespace skein::model
