#include "model/config/stored_types.h"

#include <algorithm>

#include "absl/strings/match.h"

namespace skein::model {
namespace {

// Elements of some matrices, by type.
using Elements = std::map<DType, double>;

std::vector<TypeShare> SharesOf(const Elements& elements) {
  double sum = 0;
  for (const auto& [dtype, count] : elements) sum += count;
  std::vector<TypeShare> shares;
  for (const auto& [dtype, count] : elements) shares.push_back({dtype, count / sum});
  return shares;
}

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

double ElementBytes(absl::Span<const TypeShare> types) {
  double bytes = 0;
  for (const TypeShare& of : types) {
    bytes += of.share * static_cast<double>(BlockBytes(of.dtype)) /
             static_cast<double>(BlockElements(of.dtype));
  }
  return bytes;
}

StoredTypes ReadStoredTypes(const TensorSource& weights, bool tie_word_embeddings) {
  StoredTypes types;
  const std::string output = tie_word_embeddings ? "model.embed_tokens.weight" : "lm_head.weight";
  Elements layers;
  Elements outputs;
  bool quantized = false;
  for (const TensorInfo& tensor : weights.tensors()) {
    if (tensor.shape.size() != 2) continue;
    types.matrices.emplace(tensor.name, tensor.dtype);
    quantized |= IsQuantized(tensor.dtype);
    const auto elements = static_cast<double>(tensor.elements());
    if (tensor.name == output) outputs[tensor.dtype] += elements;
    if (absl::StartsWith(tensor.name, "model.layers.")) layers[tensor.dtype] += elements;
    const int64_t block = BlockElements(tensor.dtype);
    int64_t* const of = SplitBlock(tensor.name, types);
    if (of != nullptr) *of = std::max(*of, block);
  }
  if (!quantized) return {};
  types.layers = SharesOf(layers);
  types.output = SharesOf(outputs);
  return types;
}

}  // namespace skein::model
