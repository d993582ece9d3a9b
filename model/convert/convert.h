// Converts models between formats.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/dtype.h"
#include "model/format/gguf.h"

namespace skein::model {

struct ConvertOptions {
  // Of matrices: F32, F16 or BF16; unset: as the folder has them. Vectors become F32.
  std::optional<DType> matrices;
  // Of tensors a file.
  int64_t max_file_bytes = std::numeric_limits<int64_t>::max();
  // Called between pieces of tensors; may be null.
  std::function<void(int64_t written, int64_t all)> on_progress;
};

struct Converted {
  std::vector<std::string> files;
  int64_t tensors = 0;
  int64_t bytes = 0;  // of tensors
  bool has_vocabulary = false;
  bool has_chat_template = false;
};

// The Hugging Face folder `folder` as the GGUF file that ConvertToGguf makes of it; `matrices` as
// in ConvertOptions. Errors are its, too.
absl::StatusOr<GgufModel> OpenAsGgufModel(const std::string& folder, std::optional<DType> matrices);

// Writes the Hugging Face folder `folder` to `path` (*.gguf): configuration, tensors, vocabulary
// and chat template. What is written means what the folder means, as Skein reads both:
// Unimplemented names what GGUF files have no word for. Errors name the file, and leave none that
// was begun; AlreadyExists: a file of such a name is there.
absl::StatusOr<Converted> ConvertToGguf(const std::string& folder, const std::string& path,
                                        const ConvertOptions& options = {});

}  // namespace skein::model
