// A Hugging Face folder of a Llama as a GGUF file, written as llama.cpp's converter does: Skein's
// reader is held against it.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace skein::testing {

// Writes `folder` (config.json, safetensors in any of their types, perhaps a byte-level
// tokenizer.json of GPT-2's pattern) to `path`. Norms become F32; rows of queries and keys are
// interleaved; Llama 3's scaling of RoPE becomes a tensor of divisors. With q8_0 matrices are
// quantised so, each value to the nearest.
absl::Status WriteGgufOfFolder(const std::string& folder, const std::string& path,
                               bool q8_0 = false);

}  // namespace skein::testing
