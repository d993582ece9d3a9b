#include "model/config/stored_types.h"

#include <algorithm>

#include "absl/strings/match.h"

namespace skein::model {
namespace {

// Elements and bytes of some matrices.
struct Size {
  double elements = 0;
  double bytes = 0;

  void Add(const TensorInfo& tensor) {
    elements += static_cast<double>(tensor.elements());
    bytes += static_cast<double>(DTypeBytes(tensor.dtype, tensor.elements()));
  }
  double element_bytes() const { return elements > 0 ? bytes / elements : 1; }
};

}  // namespace

StoredTypes ReadStoredTypes(const TensorSource& weights, bool tie_word_embeddings) {
  StoredTypes types;
  const std::string output = tie_word_embeddings ? "model.embed_tokens.weight" : "lm_head.weight";
  Size layers;
  Size outputs;
  bool quantized = false;
  for (const TensorInfo& tensor : weights.tensors()) {
    if (tensor.shape.size() != 2) continue;
    types.matrices.emplace(tensor.name, tensor.dtype);
    quantized |= IsQuantized(tensor.dtype);
    if (tensor.name == output) outputs.Add(tensor);
    if (absl::StartsWith(tensor.name, "model.layers.")) layers.Add(tensor);
    const int64_t block = BlockElements(tensor.dtype);
    if (absl::EndsWith(tensor.name, ".self_attn.o_proj.weight")) {
      types.attention_block = std::max(types.attention_block, block);
    } else if (absl::EndsWith(tensor.name, ".mlp.down_proj.weight")) {
      types.mlp_block = std::max(types.mlp_block, block);
    }
  }
  if (!quantized) return {};
  types.layer_element_bytes = layers.element_bytes();
  types.output_element_bytes = outputs.element_bytes();
  return types;
}

}  // namespace skein::model
