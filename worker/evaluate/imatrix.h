// worker imatrix: how large the inputs of a model's products are on a text, for `skein quantize`.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"

namespace skein::worker {

struct ImatrixOptions {
  std::string model;  // a folder or a GGUF file
  std::string text;   // a file
  std::string out;    // *.gguf, which is not there yet
  int64_t context = 512;
  int64_t most_tokens = 0;  // of the text; 0: all
  int threads = 1;
};

// Computes the text window by window, and writes the sums (model/quantize/importance.h). Errors
// name the flag or the file: Unimplemented for a model that no GGUF file can hold. Prints what it
// wrote; progress shows on a terminal.
absl::Status RunImatrix(const ImatrixOptions& options);

}  // namespace skein::worker
