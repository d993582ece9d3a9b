// Values as Python prints them.
#pragma once

#include "absl/status/statusor.h"
#include "model/template/runtime.h"
#include "model/template/text.h"
#include "model/template/value.h"

namespace skein::model {

// str(): of a string, itself. InvalidArgument: a function, a generator or a loop, whose text would
// tell where in memory they are.
absl::StatusOr<Text> Printed(Runtime& runtime, const Value& value);
// repr(): strings have quotes and escapes.
absl::StatusOr<Text> PrintedQuoted(Runtime& runtime, const Value& value);

}  // namespace skein::model
