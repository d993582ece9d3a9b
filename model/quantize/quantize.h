// Quantises models: their matrices become blocks of small integers.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "base/dtype.h"

namespace skein::model {

struct QuantizeOptions {
  std::string recipe = "Q4_K_M";  // model/quantize/recipes.h
  std::string importance_file;    // model/quantize/importance.h; "": all inputs weigh the same
  int threads = 1;
  // Of tensors a file.
  int64_t max_file_bytes = std::numeric_limits<int64_t>::max();
  // Called between pieces of tensors; may be null.
  std::function<void(int64_t written, int64_t all)> on_progress;
};

struct Quantized {
  std::vector<std::string> files;
  int64_t bytes_before = 0;  // of tensors, as the next
  int64_t bytes = 0;
  std::map<DType, int64_t> elements;  // of matrices, by type
  int64_t weights = 0;                // elements of all tensors
  // Matrices that became blocks without an importance, though there is a file of some; and experts
  // of others that no row of its text chose, matrix by matrix.
  std::vector<std::string> without_importance;
  int64_t experts_without_importance = 0;
  // Tensors whose rows are no whole blocks of their recipe's type: "NAME: Q8_0 for Q6_K".
  std::vector<std::string> fallen_back;
};

// Writes the model `model`, a GGUF file or a Hugging Face folder in F32, F16 or BF16, to the GGUF
// file `path`. Errors name the file or the tensor, and leave no file that was begun: Unimplemented
// for a tensor that is quantised already, and for what GGUF files have no word for; AlreadyExists;
// InvalidArgument for a NaN, for an importance matrix of another model.
absl::StatusOr<Quantized> QuantizeToGguf(const std::string& model, const std::string& path,
                                         const QuantizeOptions& options);

}  // namespace skein::model
