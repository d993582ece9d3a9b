#include "model/config/check_weights.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "base/dtype.h"
#include "base/range.h"
#include "base/status_macros.h"

namespace skein::model {
namespace {

constexpr std::string_view kEmbedding = "model.embed_tokens.weight";
constexpr std::string_view kNorm = "model.norm.weight";
constexpr std::string_view kOutput = "lm_head.weight";
constexpr std::string_view kLayers = "model.layers.";

constexpr std::array<std::string_view, 9> kLayerTensors = {
    "input_layernorm.weight",  "self_attn.q_proj.weight", "self_attn.k_proj.weight",
    "self_attn.v_proj.weight", "self_attn.o_proj.weight", "post_attention_layernorm.weight",
    "mlp.gate_proj.weight",    "mlp.up_proj.weight",      "mlp.down_proj.weight",
};
// Older files have it; it follows from config.json.
constexpr std::string_view kRopeFrequencies = "self_attn.rotary_emb.inv_freq";

// What of two matrices is compared at once.
constexpr int64_t kPieceBytes = 4 << 20;

bool IsOfLayer(std::string_view name, int64_t num_layers) {
  if (name.substr(0, kLayers.size()) != kLayers) return false;
  name.remove_prefix(kLayers.size());
  const size_t dot = name.find('.');
  int64_t layer = -1;
  if (dot == std::string_view::npos ||
      !absl::SimpleAtoi(std::string(name.substr(0, dot)), &layer)) {
    return false;
  }
  const std::string_view tensor = name.substr(dot + 1);
  return absl::StrCat(layer) == std::string(name.substr(0, dot)) && layer < num_layers &&
         (tensor == kRopeFrequencies ||
          std::find(kLayerTensors.begin(), kLayerTensors.end(), tensor) != kLayerTensors.end());
}

absl::StatusOr<bool> SameBytes(const TensorSource& weights, const TensorInfo& a,
                               const TensorInfo& b) {
  if (a.dtype != b.dtype || a.shape != b.shape || a.shape.size() != 2) return false;
  const int64_t row_bytes = DTypeBytes(a.dtype, a.shape[1]);
  const int64_t step = std::max<int64_t>(1, kPieceBytes / std::max<int64_t>(1, row_bytes));
  std::vector<std::byte> of_a;
  std::vector<std::byte> of_b;
  for (int64_t row = 0; row < a.shape[0]; row += step) {
    const int64_t rows = std::min(step, a.shape[0] - row);
    const std::array<Range, 2> slice = {Range{row, row + rows}, Range{0, a.shape[1]}};
    of_a.resize(static_cast<size_t>(rows * row_bytes));
    of_b.resize(of_a.size());
    SKEIN_RETURN_IF_ERROR(weights.Read(a, slice, absl::MakeSpan(of_a)));
    SKEIN_RETURN_IF_ERROR(weights.Read(b, slice, absl::MakeSpan(of_b)));
    if (of_a != of_b) return false;
  }
  return true;
}

absl::Status CheckTied(const TensorSource& weights, const TensorInfo& output) {
  SKEIN_ASSIGN_OR_RETURN(const TensorInfo* embedding, weights.Find(kEmbedding));
  SKEIN_ASSIGN_OR_RETURN(const bool same, SameBytes(weights, *embedding, output));
  if (same) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(std::string(weights.description()), ": tensor 'lm_head.weight' differs from '",
                   std::string(kEmbedding),
                   "', but config.json has tie_word_embeddings: true; set that to false, "
                   "or remove the tensor"));
}

// Files that hold a vocabulary alone, or a part of a model.
absl::Status CheckPresent(const ModelConfig& config, const TensorSource& weights) {
  std::vector<std::string> needed = {std::string(kEmbedding), std::string(kNorm)};
  if (!config.tie_word_embeddings) needed.emplace_back(kOutput);
  for (int64_t layer = 0; layer < config.num_layers; ++layer) {
    for (const std::string_view tensor : kLayerTensors) {
      needed.push_back(absl::StrCat(std::string(kLayers), layer, ".", std::string(tensor)));
    }
  }
  for (const std::string& name : needed) SKEIN_RETURN_IF_ERROR(weights.Find(name).status());
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<std::string>> CheckWeights(const ModelConfig& config,
                                                      const TensorSource& weights) {
  SKEIN_RETURN_IF_ERROR(CheckPresent(config, weights));
  int64_t unused = 0;
  std::string first_unused;
  for (const TensorInfo& tensor : weights.tensors()) {
    const std::string& name = tensor.name;
    if (name == kEmbedding || name == kNorm || IsOfLayer(name, config.num_layers)) {
      continue;
    }
    if (name == kOutput) {
      if (config.tie_word_embeddings) SKEIN_RETURN_IF_ERROR(CheckTied(weights, tensor));
      continue;
    }
    if (absl::StartsWith(name, "model.") || absl::StartsWith(name, "lm_head.")) {
      return absl::InvalidArgumentError(absl::StrCat(
          std::string(weights.description()), ": tensor '", name,
          "' has no place in the model of config.json (", config.architecture, " of ",
          config.num_layers, " layers, without biases); answers without it would be wrong"));
    }
    if (unused++ == 0) first_unused = name;
  }
  std::vector<std::string> warnings;
  if (unused > 0) {
    warnings.push_back(absl::StrCat(std::string(weights.description()), ": tensor '", first_unused,
                                    "'",
                                    unused == 1 ? "" : absl::StrCat(", as ", unused - 1, " more,"),
                                    " is not of the network and not used"));
  }
  return warnings;
}

}  // namespace skein::model
