// Jinja's filters: the functions behind `|`.
#pragma once

#include <string_view>

#include "absl/status/statusor.h"
#include "model/template/runtime.h"
#include "model/template/value.h"

namespace skein::model {

using Filter = absl::StatusOr<Value> (*)(Runtime& runtime, const Value& input,
                                         const Arguments& arguments);

// Of each file of filters; null: it has none of that name.
Filter FindTextFilter(std::string_view name);
Filter FindListFilter(std::string_view name);
Filter FindSelectingFilter(std::string_view name);
Filter FindNumberFilter(std::string_view name);

bool IsFilter(std::string_view name);
// InvalidArgument: no such filter, too.
absl::StatusOr<Value> ApplyFilter(Runtime& runtime, std::string_view name, const Value& input,
                                  const Arguments& arguments);

}  // namespace skein::model
