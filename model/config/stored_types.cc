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

// Which of `types` a matrix counts for; null for those whose columns are not split.
int64_t* SplitBlock(const std::string& name, StoredTypes& types) {
  if (absl::EndsWith(name, ".self_attn.o_proj.weight")) return &types.attention_block;
  if (!absl::EndsWith(name, ".down_proj.weight") && !absl::EndsWith(name, ".w2.weight")) {
    return nullptr;
  }
  if (absl::StrContains(name, ".experts.")) return &types.expert_block;
  if (absl::StrContains(name, ".shared_expert.")) return &types.shared_block;
  return &types.mlp_block;
}

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
    int64_t* const of = SplitBlock(tensor.name, types);
    if (of != nullptr) *of = std::max(*of, block);
  }
  if (!quantized) return {};
  types.layer_element_bytes = layers.element_bytes();
  types.output_element_bytes = outputs.element_bytes();
  return types;
}

}  // namespace skein::model
