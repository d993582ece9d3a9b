// Python's two ways to put values into a text: "%s" % value, and "{}".format(value).
#pragma once

#include "absl/status/statusor.h"
#include "model/template/runtime.h"
#include "model/template/text.h"
#include "model/template/value.h"

namespace skein::model {

// `format % values`: a tuple's items one after the other, a dict's by name, anything else alone.
// `markup`: strings that are no markup are escaped. InvalidArgument: what Python refuses.
absl::StatusOr<Text> FormatPercent(Runtime& runtime, const Text& format, const Value& values,
                                   bool markup);

// `format.format(...)`: fields {}, {0}, {name}, {name.attribute}, {name[key]}, conversions !s and
// !r, and specifications of strings and numbers.
absl::StatusOr<Text> FormatBraces(Runtime& runtime, const Text& format, const Arguments& arguments,
                                  bool markup);

}  // namespace skein::model
