// Parses a template's source.
#pragma once

#include <string_view>

#include "absl/status/statusor.h"
#include "model/template/ast.h"

namespace skein::model {

// InvalidArgument, "line L, column C: ...": what Jinja refuses at this time (a filter or a test
// that it does not know outside of branches, too), a tag that is not supported, and more than 150
// statements or expressions inside each other. Linear.
absl::StatusOr<Ast> ParseTemplate(std::string_view source);

}  // namespace skein::model
