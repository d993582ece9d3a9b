// Reads the model that is served.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "coordinator/service/served_model.h"

namespace skein::coordinator {

// Reads the folder `path`. InvalidArgument for "synthetic:..." models: they have no tokenizer.
absl::StatusOr<ServedModel> LoadServedModel(const std::string& path, int64_t context_length);

}  // namespace skein::coordinator
