// Writes tensors as safetensors files, for tests and for converting models.
#pragma once

#include <cstdint>
#include <limits>
#include <string>

#include "absl/status/status.h"
#include "model/config/model_config.h"
#include "model/format/tensor_source.h"

namespace skein::model {

// Writes model.safetensors into the existing `folder`, or, when the tensors take more than
// `max_shard_bytes`, model-00001-of-0000N.safetensors and so on with their index; a shard holds at
// least one tensor. Streams: takes some 16 MiB of memory, whatever the model's size. Files that
// exist are replaced; after an error they may be left incomplete.
absl::Status WriteSafetensors(const TensorSource& source, const std::string& folder,
                              int64_t max_shard_bytes = std::numeric_limits<int64_t>::max());

// WriteSafetensors, and config.json beside it; makes the folder.
absl::Status WriteModelFolder(const ModelConfig& config, const TensorSource& source,
                              const std::string& folder,
                              int64_t max_shard_bytes = std::numeric_limits<int64_t>::max());

}  // namespace skein::model
