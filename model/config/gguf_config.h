// The configuration of a GGUF file. Internal to model/config.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "model/config/model_config.h"
#include "model/format/gguf.h"

namespace skein::model {

// What config.json of the same model would say, so that one reader checks all configurations.
// Unimplemented names an architecture that Skein does not run; other errors name key or tensor.
absl::StatusOr<std::string> ConfigJsonOfGguf(const GgufModel& model);

// The divisors of the rotary embedding's frequencies, [frequencies]; empty where the file has
// none.
absl::StatusOr<std::vector<float>> RopeDivisorsOfGguf(const GgufModel& model, int64_t frequencies);

}  // namespace skein::model
