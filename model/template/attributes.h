// `object.name`, `object[key]` and slices, as Jinja's sandbox has them.
#pragma once

#include <string_view>

#include "absl/status/statusor.h"
#include "model/template/runtime.h"
#include "model/template/value.h"

namespace skein::model {

// A method, the value of a dict's key, an attribute of a namespace or of `loop`; else undefined,
// as a method is that would change what it belongs to. InvalidArgument: of undefined.
absl::StatusOr<Value> GetAttribute(Runtime& runtime, const Value& object, std::string_view name);

// The item; else, if the key is a string, the attribute. InvalidArgument: of undefined.
absl::StatusOr<Value> GetItem(Runtime& runtime, const Value& object, const Value& key);

// Each bound an integer or none. InvalidArgument: else, or of what has no slices.
absl::StatusOr<Value> GetSlice(Runtime& runtime, const Value& object, const Value& start,
                               const Value& stop, const Value& step);

}  // namespace skein::model
