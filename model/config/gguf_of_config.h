// What a GGUF file says of a model: the other way of what reads it.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "model/config/model_config.h"
#include "model/format/gguf.h"
#include "model/format/gguf_metadata.h"

namespace skein::model {

// A tensor of the configuration's own.
struct GgufVector {
  std::string name;
  std::vector<float> values;
};

struct GgufOfConfig {
  GgufMetadata::Values metadata;  // keys of the architecture, and its name
  std::vector<GgufVector> tensors;
};

// Keys and tensors as llama.cpp's converter writes them, and no vocabulary. Unimplemented: files
// have no name for the architecture.
absl::StatusOr<GgufOfConfig> MakeGgufOfConfig(const ModelConfig& config);

// The configuration that the model has, as LoadModelConfig reads it.
absl::StatusOr<ModelConfig> ConfigOfGguf(GgufModel model);

// Unimplemented names what `folder` says and `file`, made of it, cannot say. Numbers are floats in
// files, and tokens that end a turn are those of the vocabulary: these are not compared.
absl::Status CheckSameMeaning(const ModelConfig& folder, const ModelConfig& file);

}  // namespace skein::model
