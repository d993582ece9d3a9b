// The flags that are a model's own.
#pragma once

#include "CLI/CLI.hpp"
#include "coordinator/model_argument.h"

namespace skein::coordinator {

// `model` has the defaults. Takes the command's callback.
void DeclareModelFlags(CLI::App& app, ModelArgument& model);

}  // namespace skein::coordinator
