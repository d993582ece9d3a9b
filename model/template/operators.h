// Python's operators on values.
#pragma once

#include "absl/status/statusor.h"
#include "model/template/ast.h"
#include "model/template/runtime.h"
#include "model/template/value.h"

namespace skein::model {

// InvalidArgument: types that the operator is not for. OutOfRange: an integer beyond 64 bits.
absl::StatusOr<Value> Operate(Runtime& runtime, BinaryOperator operation, const Value& left,
                              const Value& right);
absl::StatusOr<Value> OperateUnary(UnaryOperator operation, const Value& operand);

}  // namespace skein::model
