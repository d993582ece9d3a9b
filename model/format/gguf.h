// GGUF files: metadata and tensors, in one file or split into several.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "model/format/gguf_metadata.h"
#include "model/format/tensor_source.h"

namespace skein::model {

// Whether a path names a GGUF file, by its ending; no folder is one.
bool IsGgufPath(const std::string& path);

// The metadata of the model that `path` is of: that of its first file where it is split.
absl::StatusOr<GgufMetadata> ReadGgufMetadata(const std::string& path);

struct GgufModel {
  GgufMetadata metadata;
  std::unique_ptr<TensorSource> tensors;  // under the names that the file gives them
};

// Files named PREFIX-00001-of-00003.gguf are one model, any of which may be named. Errors name
// file, key or tensor, and reason.
absl::StatusOr<GgufModel> OpenGguf(const std::string& path);

}  // namespace skein::model
