// Methods of strings, lists, tuples and dicts.
#pragma once

#include <string_view>

#include "absl/status/statusor.h"
#include "model/template/runtime.h"
#include "model/template/value.h"

namespace skein::model {

using Method = absl::StatusOr<Value> (*)(Runtime& runtime, const Value& self,
                                         const Arguments& arguments);

// null: the object has no such method, or it is not supported.
Method FindMethod(const Value& object, std::string_view name);
Method FindStringMethod(std::string_view name);

// Whether Python's object has a method of this name that changes it.
bool ChangesObject(const Value& object, std::string_view name);

}  // namespace skein::model
