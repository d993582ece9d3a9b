// worker perplexity: how well a model foretells a text, and how far it is from another.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/packing/layout.h"

namespace skein::worker {

struct PerplexityOptions {
  std::string model;    // a folder or a GGUF file
  std::string text;     // a file
  std::string against;  // a model with the same vocabulary, whose logits are the truth; "": none
  int64_t context = 512;
  int64_t stride = 0;       // 0: half of the text's tokens in a window
  int64_t most_tokens = 0;  // of the text; 0: all
  int threads = 1;
  kernels::KvDType kv_dtype = kernels::KvDType::kF32;  // of `model`
  bool exact = false;                                  // kernels::Program's, of `model`
  std::string json_file;                               // "": none; "-": standard output
};

struct Perplexity {
  int64_t tokens = 0;  // scored
  int64_t windows = 0;
  double nll = 0;        // the mean, in nats
  double nll_error = 0;  // its standard error
  double perplexity() const;
  double perplexity_error() const;

  // Of the divergence from `against`, in nats.
  struct Divergence {
    double mean = 0;
    double error = 0;
    double median = 0;
    double p99 = 0;
    double most = 0;
    double same_top = 0;  // share of tokens
    double against_perplexity = 0;
  };
  std::optional<Divergence> divergence;
};

// Cuts the text into windows (CutWindows) and scores each token once. Every window begins with the
// token with which the model's texts begin, where it has one. Errors name the flag or the file.
// Progress shows on a terminal.
absl::StatusOr<Perplexity> MeasurePerplexity(const PerplexityOptions& options);

// Likewise, and prints.
absl::Status RunPerplexity(const PerplexityOptions& options);

}  // namespace skein::worker
