// Opens a model's weights, whatever their format.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "model/format/tensor_source.h"

namespace skein::model {

// Weights in a folder, or a file of weights: safetensors, or GGUF (*.gguf). Tensors have Hugging
// Face's names, whatever the format; the matrices of a folder whose config.json says that it is
// quantised are blocks (quantized_weights.h).
absl::StatusOr<std::unique_ptr<TensorSource>> OpenTensorSource(const std::string& folder_or_file);

}  // namespace skein::model
