#include "model/quantize/recipes.h"

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/printable.h"
#include "base/status_macros.h"
#include "model/format/gguf_keys.h"
#include "model/format/gguf_names.h"

namespace skein::model {
namespace {

constexpr Upgrade All(DType type) { return {Layers::kAll, type}; }

constexpr Recipe kRecipes[] = {
    {"Q8_0", 7, DType::kQ8_0},
    {"Q6_K", 18, DType::kQ6_K},
    {.name = "Q5_K_M",
     .file_type = 17,
     .base = DType::kQ5_K,
     .values = {Layers::kMoreBits, DType::kQ6_K},
     .down = {Layers::kMoreBits, DType::kQ6_K}},
    {"Q5_K_S", 16, DType::kQ5_K},
    {"Q5_1", 9, DType::kQ5_1},
    {"Q5_0", 8, DType::kQ5_0},
    {.name = "Q4_K_M",
     .file_type = 15,
     .base = DType::kQ4_K,
     .values = {Layers::kMoreBits, DType::kQ6_K},
     .down = {Layers::kMoreBits, DType::kQ6_K},
     .attention_output_of_eight = DType::kQ5_K},
    {.name = "Q4_K_S",
     .file_type = 14,
     .base = DType::kQ4_K,
     .values = {Layers::kFirstFour, DType::kQ5_K},
     .down = {Layers::kFirstEighth, DType::kQ5_K},
     .attention_output_of_eight = DType::kQ5_K},
    {"Q4_1", 3, DType::kQ4_1},
    {.name = "IQ4_NL",
     .file_type = 25,
     .base = DType::kIQ4_NL,
     .values = {Layers::kSharedKeys, DType::kQ5_K},
     .down = {Layers::kFirstEighth, DType::kQ5_K},
     .attention_output_of_eight = DType::kQ5_K},
    {"Q4_0", 2, DType::kQ4_0},
    {.name = "IQ4_XS",
     .file_type = 30,
     .base = DType::kIQ4_XS,
     .values = {Layers::kSharedKeys, DType::kQ5_K},
     .down = {Layers::kFirstEighth, DType::kQ5_K},
     .attention_output_of_eight = DType::kQ5_K},
    {.name = "Q3_K_L",
     .file_type = 13,
     .base = DType::kQ3_K,
     .values = All(DType::kQ5_K),
     .down = All(DType::kQ5_K),
     .attention_output = All(DType::kQ5_K)},
    {.name = "Q3_K_M",
     .file_type = 12,
     .base = DType::kQ3_K,
     .values = {Layers::kFirstTwo, DType::kQ5_K, DType::kQ4_K},
     .down = {Layers::kFirstSixteenth, DType::kQ5_K, DType::kQ4_K},
     .attention_output = All(DType::kQ4_K),
     .attention_output_of_eight = DType::kQ5_K},
    {.name = "Q3_K_S",
     .file_type = 11,
     .base = DType::kQ3_K,
     .attention_output_of_eight = DType::kQ5_K},
    {.name = "Q2_K",
     .file_type = 10,
     .base = DType::kQ2_K,
     .values = {Layers::kSharedKeys, DType::kQ4_K, DType::kQ3_K},
     .down = All(DType::kQ3_K),
     .attention_output = All(DType::kQ3_K),
     .attention_output_of_eight = DType::kQ5_K},
};

// Files of eight experts, whose attention is a small part of the whole.
constexpr int64_t kEightExperts = 8;
constexpr DType kAttentionBesideEight = DType::kQ8_0;

bool IsOf(Layers layers, int64_t layer, const RecipeFacts& facts) {
  const int64_t eighth = facts.layers / 8;
  switch (layers) {
    case Layers::kNone:
      return false;
    case Layers::kAll:
      return true;
    case Layers::kFirstTwo:
      return layer < 2;
    case Layers::kFirstFour:
      return layer < 4;
    case Layers::kFirstEighth:
      return layer < eighth;
    case Layers::kFirstSixteenth:
      return layer < facts.layers / 16;
    case Layers::kMoreBits:
      return layer < eighth || layer >= 7 * facts.layers / 8 || (layer - eighth) % 3 == 2;
    case Layers::kSharedKeys:
      return facts.kv_heads > 0 && facts.heads / facts.kv_heads >= 4;
  }
  return false;
}

DType TypeBy(const Upgrade& upgrade, DType base, int64_t layer, const RecipeFacts& facts) {
  return IsOf(upgrade.layers, layer, facts) ? upgrade.type : upgrade.otherwise.value_or(base);
}

// Of the embedding table where it is tied, and of the output matrix.
DType OutputType(const Recipe& recipe, const TensorInfo& tensor) {
  const bool fits = tensor.shape.back() % BlockElements(recipe.base) == 0;
  return recipe.base == DType::kQ8_0 || !fits ? DType::kQ8_0 : DType::kQ6_K;
}

DType LayerType(const Recipe& recipe, const RecipeFacts& facts, const GgufLayerName& name) {
  int64_t layer = 0;
  if (!absl::SimpleAtoi(std::string(name.layer), &layer)) return recipe.base;
  const bool eight = facts.experts == kEightExperts;
  if (name.tensor == "attn_v.weight" || name.tensor == "attn_qkv.weight") {
    return eight ? kAttentionBesideEight : TypeBy(recipe.values, recipe.base, layer, facts);
  }
  if (name.tensor == "attn_k.weight" && eight) return kAttentionBesideEight;
  if (name.tensor == "attn_output.weight") {
    if (eight) return recipe.attention_output_of_eight.value_or(recipe.base);
    return TypeBy(recipe.attention_output, recipe.base, layer, facts);
  }
  if (name.tensor.starts_with("ffn_down")) {
    return TypeBy(recipe.down, recipe.base, layer, facts);
  }
  return recipe.base;
}

// The type for rows of so many elements.
DType Fitting(DType type, int64_t cols) {
  if (cols % BlockElements(type) == 0) return type;
  const DType small = [&] {
    switch (type) {
      case DType::kQ6_K:
        return DType::kQ8_0;
      case DType::kQ5_K:
        return DType::kQ5_1;
      case DType::kQ4_K:
        return DType::kQ5_0;
      case DType::kIQ4_XS:
        return DType::kIQ4_NL;
      case DType::kQ3_K:
      case DType::kQ2_K:
        return DType::kQ4_0;
      default:
        return type;
    }
  }();
  return cols % BlockElements(small) == 0 ? small : DType::kF16;
}

}  // namespace

absl::Span<const Recipe> Recipes() { return kRecipes; }

absl::StatusOr<const Recipe*> FindRecipe(std::string_view name) {
  const std::string upper = absl::AsciiStrToUpper(std::string(name));
  std::vector<std::string> names;
  for (const Recipe& recipe : kRecipes) {
    if (recipe.name == upper) return &recipe;
    names.emplace_back(recipe.name);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("'", Printable(std::string(name)), "' is none of ", absl::StrJoin(names, ", ")));
}

absl::StatusOr<RecipeFacts> FactsOf(const GgufMetadata& metadata, const TensorSource& tensors) {
  SKEIN_ASSIGN_OR_RETURN(const std::string_view architecture, metadata.String(kGgufArchitecture));
  const auto key = [&](const char* name) {
    return absl::StrCat(std::string(architecture), ".", name);
  };
  RecipeFacts facts;
  SKEIN_ASSIGN_OR_RETURN(facts.layers, metadata.Integer(key("block_count")));
  SKEIN_ASSIGN_OR_RETURN(facts.heads, metadata.IntegerOfLayers(key("attention.head_count")));
  facts.kv_heads = facts.heads;
  if (metadata.Has(key("attention.head_count_kv"))) {
    SKEIN_ASSIGN_OR_RETURN(facts.kv_heads,
                           metadata.IntegerOfLayers(key("attention.head_count_kv")));
  }
  if (metadata.Has(key("expert_count"))) {
    SKEIN_ASSIGN_OR_RETURN(facts.experts, metadata.Integer(key("expert_count")));
  }
  facts.tied = !tensors.Find("output.weight").ok();
  return facts;
}

ChosenType TypeOf(const Recipe& recipe, const RecipeFacts& facts, const TensorInfo& tensor) {
  const bool is_router = absl::StrContains(tensor.name, ".ffn_gate_inp");
  const bool is_norm = absl::StrContains(tensor.name, "_norm.");
  if (tensor.shape.size() < 2 || is_router || is_norm || !absl::EndsWith(tensor.name, ".weight")) {
    return {tensor.dtype, tensor.dtype};
  }
  DType type = recipe.base;
  if (tensor.name == "output.weight" || (tensor.name == "token_embd.weight" && facts.tied)) {
    type = OutputType(recipe, tensor);
  } else if (const std::optional<GgufLayerName> name = SplitGgufName(tensor.name)) {
    type = LayerType(recipe, facts, *name);
  }
  return {type, Fitting(type, tensor.shape.back())};
}

}  // namespace skein::model
