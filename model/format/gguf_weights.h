// The tensors of a GGUF file as those of a Hugging Face folder.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "model/format/gguf.h"
#include "model/format/tensor_source.h"

namespace skein::model {

// Tensors under Hugging Face's names, with their rows in its order: files of the architecture
// `llama` keep the two halves of a head's queries and keys, which RoPE turns by pairs, interleaved.
// Tensors that the configuration holds (`rope_freqs.weight`) are left out. Errors name the key that
// is missing or wrong.
absl::StatusOr<std::unique_ptr<TensorSource>> AsHuggingFaceWeights(GgufModel model);

}  // namespace skein::model
