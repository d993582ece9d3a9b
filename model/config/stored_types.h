// What types a model's matrices are stored in, where they are not all of ModelConfig::dtype, as in
// quantised files.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/types/span.h"
#include "base/dtype.h"
#include "model/format/tensor_source.h"

namespace skein::model {

// The part of some matrices' elements that has a type.
struct TypeShare {
  DType dtype = DType::kBF16;
  double share = 1;

  friend bool operator==(const TypeShare&, const TypeShare&) = default;
};
// Bytes of an element on the average.
double ElementBytes(absl::Span<const TypeShare> types);

struct StoredTypes {
  // Of all matrices, by name, where some are quantised; else empty. What follows holds then.
  std::map<std::string, DType, std::less<>> matrices;
  // The longest blocks of matrices of which tensor parallelism splits the columns: what reads
  // attention, and what reads the activations of the MLP, of experts, and of the shared one.
  int64_t attention_block = 1;
  int64_t mlp_block = 1;
  int64_t expert_block = 1;
  int64_t shared_block = 1;
  // Of all layers' matrices, and of the output matrix; shares add up to 1.
  std::vector<TypeShare> layers;
  std::vector<TypeShare> output;

  bool any() const { return !matrices.empty(); }

  friend bool operator==(const StoredTypes&, const StoredTypes&) = default;
};

// Reads headers only. `weights` have Hugging Face's names; tensors that a Llama has no matrix for
// are left to CheckWeights.
StoredTypes ReadStoredTypes(const TensorSource& weights, bool tie_word_embeddings);

}  // namespace skein::model
