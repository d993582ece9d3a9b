// Python's ==, < and in. Marks of texts do not count.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "model/template/ast.h"
#include "model/template/runtime.h"
#include "model/template/value.h"

namespace skein::model {

absl::StatusOr<bool> IsEqual(Runtime& runtime, const Value& a, const Value& b);
// InvalidArgument: of types that have no order.
absl::StatusOr<bool> IsLess(Runtime& runtime, const Value& a, const Value& b);
absl::StatusOr<bool> IsIn(Runtime& runtime, const Value& item, const Value& container);
absl::StatusOr<bool> Holds(Runtime& runtime, Comparison comparison, const Value& a, const Value& b);

// The order that makes `keys` rise, or, `reverse`, fall; equal ones stay as they are.
absl::StatusOr<std::vector<size_t>> StableOrder(Runtime& runtime, const std::vector<Value>& keys,
                                                bool reverse);

}  // namespace skein::model
