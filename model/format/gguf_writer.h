// Writes GGUF files, version 3.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "model/format/gguf_metadata.h"
#include "model/format/tensor_source.h"

namespace skein::model {

// Values for metadata.
GgufValue GgufUint32(int64_t value);
GgufValue GgufFloat32(double value);
GgufValue GgufBool(bool value);
GgufValue GgufText(std::string_view value);
GgufValue GgufTexts(std::vector<std::string> values);
GgufValue GgufInt32s(const std::vector<int32_t>& values);
GgufValue GgufFloat32s(const std::vector<float>& values);

struct GgufWriteOptions {
  // Of tensors a file; more files get names like PREFIX-00001-of-00003.gguf, the first has the
  // metadata. A file holds at least one tensor.
  int64_t max_file_bytes = std::numeric_limits<int64_t>::max();
  // Called between pieces with the bytes of tensors that are written; may be null.
  std::function<void(int64_t written)> on_progress;
};

// Writes all tensors of `source`, in its order, with `metadata`, to `path` (*.gguf). The names of
// the files. Streams: takes some 16 MiB of memory, or an element of the largest tensor's first
// dimension, and what `source` takes to read as much. Files get their names when all are whole;
// until then, and after a kill, they are NAME.part, of which an error leaves none. AlreadyExists: a
// file of such a name is there. InvalidArgument: `path` does not end with .gguf; a type that files
// have not.
absl::StatusOr<std::vector<std::string>> WriteGguf(const GgufMetadata::Values& metadata,
                                                   const TensorSource& source,
                                                   const std::string& path,
                                                   const GgufWriteOptions& options = {});

}  // namespace skein::model
