// Values as Python's json.dumps writes them.
#pragma once

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "model/template/runtime.h"
#include "model/template/text.h"
#include "model/template/value.h"

namespace skein::model {

struct JsonStyle {
  bool ascii_only = false;
  std::optional<Text> indent;  // one level's; none: all on one line
  Text item_separator;
  Text key_separator;
  bool sort_keys = false;
};

// What users wrote stays marked; quotes, brackets and numbers are not theirs. InvalidArgument: a
// value, or a key, that JSON has nothing for.
absl::StatusOr<Text> ToJson(Runtime& runtime, const Value& value, const JsonStyle& style);

}  // namespace skein::model
