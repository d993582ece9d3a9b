// Importance matrices: how large the inputs of each product are, so that quantisation errs where it
// matters least. Files are GGUF, as llama.cpp's imatrix writes and reads them.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace skein::model {

// Of one tensor: of each expert, where it has several, else of one.
struct Importance {
  int64_t cols = 0;
  std::vector<float> sums;      // [experts, cols], of squared inputs
  std::vector<int64_t> counts;  // [experts], rows that were added

  int64_t experts() const { return static_cast<int64_t>(counts.size()); }
};

struct ImportanceMatrix {
  std::map<std::string, Importance, std::less<>> tensors;  // by the names of GGUF files
  std::vector<std::string> texts;                          // what it was made of
  int64_t chunks = 0;                                      // of texts
  int64_t chunk_tokens = 0;
};

// What WriteImportance will ask of `path`: that it ends with .gguf, is not there yet, and can be
// written.
absl::Status CheckNewImportance(const std::string& path);

// AlreadyExists: there is such a file.
absl::Status WriteImportance(const ImportanceMatrix& matrix, const std::string& path);

// Errors name the file, and the tensor. InvalidArgument: it is no importance matrix; a sum that is
// negative or no number; counts that do not fit.
absl::StatusOr<ImportanceMatrix> ReadImportance(const std::string& path);

// How an expert's squared inputs are to their mean, [cols], for QuantizeBlocks: none below a
// thousandth, since a text that never used a column does not say that none will. Empty where no row
// chose the expert.
std::vector<float> RelativeSquares(const Importance& importance, int64_t expert);

}  // namespace skein::model
