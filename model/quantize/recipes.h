// Which type each tensor of a GGUF file gets: the mixtures that files are named after.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/dtype.h"
#include "model/format/gguf_metadata.h"
#include "model/format/tensor_source.h"

namespace skein::model {

// Which layers' tensors of a kind get a better type.
enum class Layers : uint8_t {
  kNone,
  kAll,
  kFirstTwo,
  kFirstFour,
  kFirstEighth,
  kFirstSixteenth,
  kMoreBits,    // the first and the last eighth, and every third one between
  kSharedKeys,  // all, where four heads or more share a key
};

// `type` where the layer is one of `layers`, else `otherwise`, or the recipe's base.
struct Upgrade {
  Layers layers = Layers::kNone;
  DType type = DType::kF32;
  std::optional<DType> otherwise = std::nullopt;
};

// The types that tensors of llama.cpp's files of the same name have, made without an importance
// matrix; of all tensors that are not named here, `base`.
struct Recipe {
  std::string_view name;  // "Q4_K_M"
  int64_t file_type = 0;  // general.file_type
  DType base = DType::kQ8_0;
  Upgrade values = {};  // attn_v, and attn_qkv
  Upgrade down = {};    // ffn_down, of experts, too
  Upgrade attention_output = {};
  // Where a layer has eight experts, beside which attention is small.
  std::optional<DType> attention_output_of_eight = std::nullopt;
};

// All recipes, best first.
absl::Span<const Recipe> Recipes();

// Any letters' case. InvalidArgument lists the names.
absl::StatusOr<const Recipe*> FindRecipe(std::string_view name);

// What recipes ask of a model.
struct RecipeFacts {
  int64_t layers = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t experts = 0;  // of a layer; 0: none
  // The embedding table is the output matrix, too.
  bool tied = false;
};

// Errors name the key that is missing or wrong.
absl::StatusOr<RecipeFacts> FactsOf(const GgufMetadata& metadata, const TensorSource& tensors);

// What the recipe has for a tensor, and what the tensor gets: where its rows are no whole blocks, a
// type of blocks that fit; F16 where none does.
struct ChosenType {
  DType meant = DType::kF32;
  DType type = DType::kF32;
};
// Vectors, norms and routers keep their type.
ChosenType TypeOf(const Recipe& recipe, const RecipeFacts& facts, const TensorInfo& tensor);

}  // namespace skein::model
