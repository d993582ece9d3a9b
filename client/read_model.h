// What a command is told of a model: a folder, or synthetic:NAME.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "parallel/planner/planner.h"

namespace skein::client {

// Reads the configuration alone. Errors name the folder, or the spec.
absl::StatusOr<plan::ModelFacts> ReadModel(const std::string& model);

}  // namespace skein::client
