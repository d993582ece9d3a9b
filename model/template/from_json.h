// JSON as values of templates.
#pragma once

#include "absl/status/statusor.h"
#include "model/template/runtime.h"
#include "model/template/text.h"
#include "model/template/value.h"
#include "nlohmann/json.hpp"

namespace skein::model {

// All strings, keys too, have this origin. InvalidArgument: a string that is not UTF-8, an integer
// beyond 64 bits. ResourceExhausted: more than 90 arrays and objects inside each other, or more
// than the runtime may take.
absl::StatusOr<Value> FromJson(Runtime& runtime, const nlohmann::ordered_json& json, Origin origin);

}  // namespace skein::model
