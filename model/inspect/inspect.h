// What a model's files hold, and what keeps Skein from running them.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/dtype.h"

namespace skein::model {

// Tensors with one purpose.
struct TensorClass {
  std::string name;  // "embedding", "attention", "mlp", "norms", "output", "other"
  int64_t tensors = 0;
  int64_t elements = 0;
  int64_t bytes = 0;
  std::map<DType, int64_t> elements_of;  // by the type that they are stored in

  double bits_per_weight() const;
};

// Facts that could not be read are 0 or empty; `refusals` say why.
struct Inspection {
  std::string format;        // "GGUF", "safetensors"
  std::string architecture;  // as the files name it
  std::string name;          // of the model, where the files tell it
  int64_t files = 0;
  int64_t file_bytes = 0;
  int64_t parameters = 0;            // elements of all tensors
  std::vector<TensorClass> classes;  // in a model's order, without empty ones
  int64_t layers = 0;
  int64_t hidden_size = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t context_length = 0;
  std::string tokenizer;  // the file that has it, of GGUF its model and pre-tokenizer
  int64_t vocab_size = 0;
  std::vector<int32_t> end_tokens;
  bool has_chat_template = false;
  std::vector<std::string> refusals;  // sentences; empty: Skein runs it on CPUs
};

// Reads headers and what describes a Hugging Face folder, or a GGUF file; no weights. Never fails:
// what cannot be read is a refusal.
Inspection Inspect(const std::string& model);

}  // namespace skein::model
