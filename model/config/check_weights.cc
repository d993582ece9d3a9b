#include "model/config/check_weights.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <string_view>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "base/dtype.h"
#include "base/range.h"
#include "base/status_macros.h"

namespace skein::model {
namespace {

constexpr std::string_view kEmbedding = "model.embed_tokens.weight";
constexpr std::string_view kOutput = "lm_head.weight";
// Older files have it in each layer; it follows from config.json.
constexpr std::string_view kRopeFrequencies = ".self_attn.rotary_emb.inv_freq";

// What of two matrices is compared at once.
constexpr int64_t kPieceBytes = 4 << 20;

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

// Whether it is a bias of zeros, which some programs write for every quantised matrix.
absl::StatusOr<bool> IsZeroBias(const TensorSource& weights, const TensorInfo& tensor) {
  if (!absl::EndsWith(tensor.name, ".bias") || tensor.shape.size() != 1) return false;
  std::vector<std::byte> bytes(static_cast<size_t>(DTypeBytes(tensor.dtype, tensor.shape[0])));
  SKEIN_RETURN_IF_ERROR(weights.Read(tensor, {{Range{0, tensor.shape[0]}}}, absl::MakeSpan(bytes)));
  std::vector<float> values(static_cast<size_t>(tensor.shape[0]));
  ConvertToFloat(tensor.dtype, bytes.data(), tensor.shape[0], values.data());
  return std::all_of(values.begin(), values.end(), [](float value) { return value == 0; });
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

}  // namespace

absl::StatusOr<std::vector<std::string>> CheckWeights(const ModelConfig& config,
                                                      const TensorSource& weights) {
  std::set<std::string, std::less<>> of_network;
  for (const NamedShape& tensor : TensorsOf(config)) {
    // Files may hold a vocabulary alone, or a part of a model.
    SKEIN_RETURN_IF_ERROR(weights.Find(tensor.name).status());
    of_network.insert(tensor.name);
  }
  int64_t unused = 0;
  std::string first_unused;
  for (const TensorInfo& tensor : weights.tensors()) {
    const std::string& name = tensor.name;
    if (of_network.contains(name)) continue;
    if (name == kOutput) {
      SKEIN_RETURN_IF_ERROR(CheckTied(weights, tensor));
      continue;
    }
    if (const std::string_view view = name; view.ends_with(kRopeFrequencies)) {
      const std::string layer(view.substr(0, view.size() - kRopeFrequencies.size()));
      if (of_network.contains(layer + ".input_layernorm.weight")) continue;
    }
    SKEIN_ASSIGN_OR_RETURN(const bool adds_nothing, IsZeroBias(weights, tensor));
    if (adds_nothing) continue;
    if (absl::StartsWith(name, "model.") || absl::StartsWith(name, "lm_head.")) {
      return absl::InvalidArgumentError(
          absl::StrCat(std::string(weights.description()), ": tensor '", name,
                       "' has no place in the model of config.json (", config.architecture, " of ",
                       config.num_layers, " layers); answers without it would be wrong"));
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
