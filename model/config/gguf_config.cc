#include "model/config/gguf_config.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/dtype.h"
#include "base/printable.h"
#include "base/range.h"
#include "base/status_macros.h"
#include "model/config/architectures/architecture.h"
#include "model/format/gguf_keys.h"
#include "nlohmann/json.hpp"

namespace skein::model {
namespace {

using nlohmann::json;

// Tokens that end a turn in published models, under whatever key; only control and user-defined
// tokens are meant by them.
constexpr std::string_view kEndTokens[] = {
    "<|eot_id|>", "<|eom_id|>",    "<|im_end|>",      "<|end|>", "<end_of_turn>", "<|eot|>",
    "<|eom|>",    "<|endoftext|>", "<|end_of_text|>", "<EOT>",   "_<EOT>",
};

// A value of expert_gating_func.
constexpr int kSoftmaxGating = 1;

// Reads keys of one architecture: "block_count" is "llama.block_count".
class Keys {
 public:
  Keys(const GgufMetadata& metadata, std::string_view architecture)
      : metadata_(metadata), prefix_(absl::StrCat(std::string(architecture), ".")) {}

  std::string_view Architecture() const {
    return std::string_view(prefix_).substr(0, prefix_.size() - 1);
  }
  std::string Key(std::string_view name) const { return prefix_ + std::string(name); }
  bool Has(std::string_view name) const { return metadata_.Has(Key(name)); }
  absl::StatusOr<int64_t> Integer(std::string_view name) const {
    return metadata_.Integer(Key(name));
  }
  absl::StatusOr<int64_t> IntegerOfLayers(std::string_view name) const {
    return metadata_.IntegerOfLayers(Key(name));
  }
  absl::StatusOr<bool> Bool(std::string_view name) const { return metadata_.Bool(Key(name)); }
  absl::StatusOr<double> Number(std::string_view name) const { return metadata_.Number(Key(name)); }
  absl::StatusOr<std::string_view> String(std::string_view name) const {
    return metadata_.String(Key(name));
  }

 private:
  const GgufMetadata& metadata_;
  std::string prefix_;
};

absl::Status ReadShape(const GgufMetadata& metadata, const Keys& keys, json& config) {
  if (metadata.Has(kGgufTokens)) {
    SKEIN_ASSIGN_OR_RETURN(const absl::Span<const std::string> tokens,
                           metadata.Strings(kGgufTokens));
    config["vocab_size"] = tokens.size();
  } else {
    SKEIN_ASSIGN_OR_RETURN(config["vocab_size"], keys.Integer("vocab_size"));
  }
  const struct {
    const char* name;
    const char* field;
    bool required;
  } kFields[] = {
      {"embedding_length", "hidden_size", true},
      {"feed_forward_length", "intermediate_size", true},
      {"block_count", "num_hidden_layers", true},
      {"attention.head_count", "num_attention_heads", true},
      {"attention.head_count_kv", "num_key_value_heads", false},
      {"attention.key_length", "head_dim", false},
      {"context_length", "max_position_embeddings", true},
  };
  for (const auto& [name, field, required] : kFields) {
    if (!required && !keys.Has(name)) continue;
    SKEIN_ASSIGN_OR_RETURN(config[field], keys.IntegerOfLayers(name));
  }
  if (keys.Has("attention.value_length")) {
    SKEIN_ASSIGN_OR_RETURN(const int64_t values, keys.Integer("attention.value_length"));
    if (config.contains("head_dim") && config["head_dim"] != values) {
      return absl::UnimplementedError(absl::StrCat(
          "metadata '", keys.Key("attention.value_length"), "' is ", values, ", keys have ",
          config["head_dim"].dump(), "; Skein runs heads whose keys and values are of one length"));
    }
  }
  SKEIN_ASSIGN_OR_RETURN(config["rms_norm_eps"], keys.Number("attention.layer_norm_rms_epsilon"));
  return absl::OkStatus();
}

// Keys that some families have. A value of 0 stands for none.
absl::Status ReadOptional(const Keys& keys, const Architecture& family, json& config) {
  constexpr std::pair<std::string_view, const char*> kNumbers[] = {
      {"attn_logit_softcapping", "attn_logit_softcapping"},
      {"final_logit_softcapping", "final_logit_softcapping"},
      {"embedding_scale", "embedding_multiplier"},
      {"residual_scale", "residual_multiplier"},
      {"attention.scale", "attention_multiplier"},
      {"logit_scale", "logits_scaling"},
      {"attention.sliding_window", "sliding_window"},
      {"attention.sliding_window_pattern", "sliding_window_pattern"},
      {"rope.freq_base_swa", "rope_local_base_freq"},
      {"expert_count", "num_experts"},
      {"expert_used_count", "num_experts_per_tok"},
      {"expert_feed_forward_length", "moe_intermediate_size"},
      {"expert_shared_feed_forward_length", "shared_expert_intermediate_size"},
  };
  for (const auto& [name, field] : kNumbers) {
    if (!keys.Has(name)) continue;
    SKEIN_ASSIGN_OR_RETURN(const double value, keys.Number(name));
    if (value != 0 && std::find(family.gguf_keys.begin(), family.gguf_keys.end(), name) ==
                          family.gguf_keys.end()) {
      return absl::UnimplementedError(absl::StrCat("metadata '", keys.Key(name), "' is ", value,
                                                   "; Skein runs ", std::string(family.name),
                                                   " without it"));
    }
    const bool whole = value == std::floor(value) && std::abs(value) < 1e15;
    config[field] = value == 0 ? json() : whole ? json(static_cast<int64_t>(value)) : json(value);
  }
  return absl::OkStatus();
}

// What would change the computation and is not computed.
absl::Status RefuseUnsupported(const Keys& keys) {
  if (keys.Has("rope.scaling.finetuned") && keys.Architecture() == "granite") {
    SKEIN_ASSIGN_OR_RETURN(const bool rotates, keys.Bool("rope.scaling.finetuned"));
    if (!rotates) {
      return absl::UnimplementedError(absl::StrCat("metadata '", keys.Key("rope.scaling.finetuned"),
                                                   "' is false; Skein runs Granite with RoPE"));
    }
  }
  for (const auto& [name, neutral, runs] :
       {std::tuple("expert_weights_scale", 1, "experts weighted by their router alone"),
        std::tuple("expert_gating_func", kSoftmaxGating, "routers with softmax, 1"),
        std::tuple("expert_group_count", 1, "experts in one group"),
        std::tuple("leading_dense_block_count", 0, "layers as their tensors say"),
        std::tuple("attention.clamp_kqv", 0, "projections as they are"),
        std::tuple("attention.max_alibi_bias", 0, "rotary embedding"),
        std::tuple("rope.scaling.yarn_log_multiplier", 0, "YaRN as published")}) {
    if (!keys.Has(name)) continue;
    SKEIN_ASSIGN_OR_RETURN(const double value, keys.Number(name));
    if (value == 0 || value == neutral) continue;
    return absl::UnimplementedError(
        absl::StrCat("metadata '", keys.Key(name), "' is ", value, "; Skein runs ", runs));
  }
  return absl::OkStatus();
}

const TensorInfo* FindTensor(const GgufModel& model, std::string_view name) {
  const absl::StatusOr<const TensorInfo*> found = model.tensors->Find(name);
  return found.ok() ? *found : nullptr;
}

// The numbers of a tensor of one for each frequency.
absl::StatusOr<std::vector<float>> ReadDivisors(const GgufModel& model, const TensorInfo& tensor,
                                                int64_t frequencies) {
  if (tensor.dtype != DType::kF32 || tensor.shape != std::vector<int64_t>{frequencies}) {
    return absl::InvalidArgumentError(absl::StrCat("tensor '", tensor.name,
                                                   "' must be F32 and have a number for each of ",
                                                   frequencies, " frequencies of a head"));
  }
  std::vector<float> divisors(static_cast<size_t>(frequencies));
  SKEIN_RETURN_IF_ERROR(
      model.tensors->Read(tensor, {{Range{0, frequencies}}},
                          absl::MakeSpan(reinterpret_cast<std::byte*>(divisors.data()),
                                         divisors.size() * sizeof(float))));
  for (float divisor : divisors) {
    if (!(divisor >= 1e-3f && divisor <= 1e6f)) {
      return absl::InvalidArgumentError(absl::StrCat("tensor '", tensor.name, "' holds ", divisor,
                                                     ", not a number from 0.001 to 1000000"));
    }
  }
  return divisors;
}

// Llama 3's scaling is a tensor, LongRoPE's are two. A factor without a type is linear; one of 0 or
// 1 does nothing.
absl::Status ReadScaling(const GgufModel& model, const Keys& keys, int64_t frequencies, json& rope,
                         json& config) {
  std::string type = "linear";
  if (keys.Has("rope.scaling.type")) {
    SKEIN_ASSIGN_OR_RETURN(const std::string_view said, keys.String("rope.scaling.type"));
    type = std::string(said);
  }
  double factor = 1;
  for (const char* name : {"rope.scaling.factor", "rope.scale_linear"}) {  // the second until 2023
    if (!keys.Has(name)) continue;
    SKEIN_ASSIGN_OR_RETURN(factor, keys.Number(name));
    break;
  }
  const TensorInfo* const short_factors = FindTensor(model, kGgufShortDivisors);
  const TensorInfo* const long_factors = FindTensor(model, kGgufLongDivisors);
  if ((short_factors == nullptr) != (long_factors == nullptr)) {
    return absl::InvalidArgumentError(
        absl::StrCat("has one of the tensors '", std::string(kGgufShortDivisors), "' and '",
                     std::string(kGgufLongDivisors), "', which belong together"));
  }
  double magnitude = 1;
  if (keys.Has("rope.scaling.attn_factor")) {
    SKEIN_ASSIGN_OR_RETURN(magnitude, keys.Number("rope.scaling.attn_factor"));
  }
  if (short_factors != nullptr) {
    rope["rope_type"] = "longrope";
    SKEIN_ASSIGN_OR_RETURN(rope["short_factor"], ReadDivisors(model, *short_factors, frequencies));
    SKEIN_ASSIGN_OR_RETURN(rope["long_factor"], ReadDivisors(model, *long_factors, frequencies));
    rope["attention_factor"] = magnitude;
  } else if (magnitude != 1) {
    return absl::UnimplementedError(absl::StrCat("metadata '", keys.Key("rope.scaling.attn_factor"),
                                                 "' is ", magnitude,
                                                 "; Skein runs it with LongRoPE alone"));
  } else if (type == "none" || (type == "linear" && (factor == 0 || factor == 1))) {
    return absl::OkStatus();
  } else if (type == "linear" || type == "yarn") {
    rope["rope_type"] = type;
    rope["factor"] = factor;
    for (const char* beta : {"beta_fast", "beta_slow"}) {
      const std::string name = absl::StrCat("rope.scaling.yarn_", beta);
      if (type != "yarn" || !keys.Has(name)) continue;
      SKEIN_ASSIGN_OR_RETURN(rope[beta], keys.Number(name));
    }
    for (const char* name : {"rope.scaling.yarn_attn_factor", "rope.scaling.yarn_ext_factor"}) {
      if (type != "yarn" || !keys.Has(name)) continue;
      SKEIN_ASSIGN_OR_RETURN(const double value, keys.Number(name));
      if (std::abs(value) != 1) {  // -1: not said
        return absl::UnimplementedError(
            absl::StrCat("metadata '", keys.Key(name), "' is ", value, "; Skein runs YaRN with 1"));
      }
    }
  } else {
    return absl::UnimplementedError(
        absl::StrCat("metadata '", keys.Key("rope.scaling.type"), "' is '", Printable(type),
                     "'; Skein runs none, linear, yarn, and longrope by its tensors"));
  }
  if (keys.Has("rope.scaling.original_context_length")) {
    SKEIN_ASSIGN_OR_RETURN(config["original_max_position_embeddings"],
                           keys.Integer("rope.scaling.original_context_length"));
  }
  return absl::OkStatus();
}

absl::Status ReadRope(const GgufModel& model, const Keys& keys, json& config) {
  json rope = {{"rope_type", "default"}};
  if (keys.Has("rope.freq_base")) {
    SKEIN_ASSIGN_OR_RETURN(rope["rope_theta"], keys.Number("rope.freq_base"));
  }
  const int64_t head_dim =
      config.contains("head_dim")
          ? config["head_dim"].get<int64_t>()
          : config["hidden_size"].get<int64_t>() /
                std::max<int64_t>(1, config["num_attention_heads"].get<int64_t>());
  int64_t rotated = head_dim;
  if (keys.Has("rope.dimension_count")) {
    SKEIN_ASSIGN_OR_RETURN(rotated, keys.Integer("rope.dimension_count"));
    if (rotated < 2 || rotated > head_dim || rotated % 2 != 0) {
      return absl::InvalidArgumentError(absl::StrCat("metadata '", keys.Key("rope.dimension_count"),
                                                     "' is ", rotated, ": must be even and in [2, ",
                                                     head_dim, "], the dimensions of a head"));
    }
    if (rotated != head_dim) {  // half a dimension more, so that the share's product has as many
      rope["partial_rotary_factor"] =
          (static_cast<double>(rotated) + 0.5) / static_cast<double>(head_dim);
    }
  }
  SKEIN_RETURN_IF_ERROR(ReadScaling(model, keys, rotated / 2, rope, config));
  config["rope_parameters"] = rope;
  return absl::OkStatus();
}

absl::Status ReadTokens(const GgufMetadata& metadata, json& config) {
  const auto vocab_size = config["vocab_size"].get<int64_t>();
  // 2^32 - 1 stands for no token.
  const auto is_token = [&](std::string_view key, int64_t id) -> absl::StatusOr<bool> {
    if (id == std::numeric_limits<uint32_t>::max()) return false;
    if (id >= 0 && id < vocab_size) return true;
    return absl::InvalidArgumentError(absl::StrCat("metadata '", std::string(key), "' is ", id,
                                                   ", the vocabulary has ", vocab_size, " tokens"));
  };
  if (metadata.Has(kGgufBosId)) {
    SKEIN_ASSIGN_OR_RETURN(const int64_t id, metadata.Integer(kGgufBosId));
    SKEIN_ASSIGN_OR_RETURN(const bool there, is_token(kGgufBosId, id));
    if (there) config["bos_token_id"] = id;
  }
  std::set<int64_t> ends;
  for (const std::string_view key : {kGgufEosId, std::string_view("tokenizer.ggml.eot_token_id"),
                                     std::string_view("tokenizer.ggml.eom_token_id")}) {
    if (!metadata.Has(key)) continue;
    SKEIN_ASSIGN_OR_RETURN(const int64_t id, metadata.Integer(key));
    SKEIN_ASSIGN_OR_RETURN(const bool there, is_token(key, id));
    if (there) ends.insert(id);
  }
  if (metadata.Has(kGgufTokens) && metadata.Has(kGgufTokenTypes)) {
    SKEIN_ASSIGN_OR_RETURN(const absl::Span<const std::string> tokens,
                           metadata.Strings(kGgufTokens));
    SKEIN_ASSIGN_OR_RETURN(const std::vector<int64_t> types, metadata.Integers(kGgufTokenTypes));
    for (size_t i = 0; i < std::min(tokens.size(), types.size()); ++i) {
      if ((types[i] == kControlToken || types[i] == kUserDefinedToken) &&
          std::find(std::begin(kEndTokens), std::end(kEndTokens), tokens[i]) !=
              std::end(kEndTokens)) {
        ends.insert(static_cast<int64_t>(i));
      }
    }
  }
  config["eos_token_id"] = ends;
  return absl::OkStatus();
}

// The type of most elements of matrices, which plans count with.
const char* MatrixType(const GgufModel& model) {
  double all = 0;
  double halves = 0;
  double singles = 0;
  for (const TensorInfo& tensor : model.tensors->tensors()) {
    if (tensor.shape.size() < 2) continue;
    const auto elements = static_cast<double>(tensor.elements());
    all += elements;
    if (tensor.dtype == DType::kF16) halves += elements;
    if (tensor.dtype == DType::kF32) singles += elements;
  }
  if (2 * singles > all) return "float32";
  return 2 * halves > all ? "float16" : "bfloat16";
}

}  // namespace

absl::StatusOr<std::string> ConfigJsonOfGguf(const GgufModel& model) {
  const GgufMetadata& metadata = model.metadata;
  SKEIN_ASSIGN_OR_RETURN(const std::string_view architecture, metadata.String(kGgufArchitecture));
  const auto named = std::find_if(
      Architectures().begin(), Architectures().end(),
      [&](const Architecture& a) { return !a.gguf.empty() && a.gguf == architecture; });
  if (named == Architectures().end()) {
    std::string known;
    for (const Architecture& a : Architectures()) {
      if (a.gguf.empty()) continue;
      absl::StrAppend(&known, known.empty() ? "" : ", ", std::string(a.gguf));
    }
    return absl::UnimplementedError(absl::StrCat("metadata '", std::string(kGgufArchitecture),
                                                 "' is '", Printable(architecture),
                                                 "'; Skein runs ", known));
  }
  const Keys keys(metadata, architecture);
  const Architecture* family = &*named;
  if (family->with_experts != nullptr && keys.Has("expert_count")) {
    SKEIN_ASSIGN_OR_RETURN(const int64_t experts, keys.Integer("expert_count"));
    if (experts > 0) family = family->with_experts;
  }
  json config = {{"architectures", {family->name}},
                 {"tie_word_embeddings", FindTensor(model, "output.weight") == nullptr},
                 {"dtype", MatrixType(model)},
                 // Files tell of biases by having them.
                 {"attention_bias", FindTensor(model, "blk.0.attn_q.bias") != nullptr},
                 {"mlp_bias", FindTensor(model, "blk.0.ffn_up.bias") != nullptr}};
  SKEIN_RETURN_IF_ERROR(RefuseUnsupported(keys));
  SKEIN_RETURN_IF_ERROR(ReadShape(metadata, keys, config));
  SKEIN_RETURN_IF_ERROR(ReadOptional(keys, *family, config));
  SKEIN_RETURN_IF_ERROR(ReadRope(model, keys, config));
  SKEIN_RETURN_IF_ERROR(ReadTokens(metadata, config));
  if (family->adapt_gguf != nullptr) family->adapt_gguf(model, config);
  return config.dump();
}

absl::StatusOr<std::vector<float>> RopeDivisorsOfGguf(const GgufModel& model, int64_t frequencies) {
  const TensorInfo* const tensor = FindTensor(model, kGgufRopeDivisors);
  if (tensor == nullptr) return std::vector<float>{};
  return ReadDivisors(model, *tensor, frequencies);
}

}  // namespace skein::model
