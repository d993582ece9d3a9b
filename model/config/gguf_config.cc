#include "model/config/gguf_config.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/dtype.h"
#include "base/printable.h"
#include "base/range.h"
#include "base/status_macros.h"
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

// Reads keys of one architecture: "block_count" is "llama.block_count".
class Keys {
 public:
  Keys(const GgufMetadata& metadata, std::string_view architecture)
      : metadata_(metadata), prefix_(absl::StrCat(std::string(architecture), ".")) {}

  std::string Key(std::string_view name) const { return prefix_ + std::string(name); }
  bool Has(std::string_view name) const { return metadata_.Has(Key(name)); }
  absl::StatusOr<int64_t> Integer(std::string_view name) const {
    return metadata_.Integer(Key(name));
  }
  absl::StatusOr<int64_t> IntegerOfLayers(std::string_view name) const {
    return metadata_.IntegerOfLayers(Key(name));
  }
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

// What would change the computation and is not computed.
absl::Status RefuseUnsupported(const Keys& keys) {
  for (const auto& [name, runs] :
       {std::pair("expert_count", "models without experts"),
        std::pair("attention.sliding_window", "full attention"),
        std::pair("attn_logit_softcapping", "attention without soft caps"),
        std::pair("final_logit_softcapping", "logits without soft caps")}) {
    if (!keys.Has(name)) continue;
    SKEIN_ASSIGN_OR_RETURN(const double value, keys.Number(name));
    if (value == 0) continue;
    return absl::UnimplementedError(
        absl::StrCat("metadata '", keys.Key(name), "' is ", value, "; Skein runs ", runs));
  }
  return absl::OkStatus();
}

// Llama 3's scaling is a tensor. A factor without a type is linear; one of 0 or 1 does nothing.
absl::Status RefuseScaling(const Keys& keys) {
  constexpr char kType[] = "rope.scaling.type";
  for (const char* name : {"rope.scaling.factor", "rope.scale_linear"}) {  // the second until 2023
    if (!keys.Has(name)) continue;
    SKEIN_ASSIGN_OR_RETURN(const double factor, keys.Number(name));
    if (factor == 0 || factor == 1) continue;
    if (keys.Has(kType)) {
      SKEIN_ASSIGN_OR_RETURN(const std::string_view type, keys.String(kType));
      if (type == "none") continue;
    }
    return absl::UnimplementedError(
        absl::StrCat("metadata '", keys.Key(name), "' is ", factor,
                     "; Skein runs RoPE without linear or YaRN scaling"));
  }
  if (!keys.Has(kType)) return absl::OkStatus();
  SKEIN_ASSIGN_OR_RETURN(const std::string_view type, keys.String(kType));
  if (type == "none" || type == "linear") return absl::OkStatus();
  return absl::UnimplementedError(
      absl::StrCat("metadata '", keys.Key(kType), "' is '", Printable(type),
                   "'; Skein runs RoPE without scaling, and Llama 3's"));
}

absl::Status ReadRope(const Keys& keys, json& config) {
  json rope = {{"rope_type", "default"}};
  if (keys.Has("rope.freq_base")) {
    SKEIN_ASSIGN_OR_RETURN(rope["rope_theta"], keys.Number("rope.freq_base"));
  }
  SKEIN_RETURN_IF_ERROR(RefuseScaling(keys));
  if (keys.Has("rope.dimension_count")) {
    SKEIN_ASSIGN_OR_RETURN(const int64_t rotated, keys.Integer("rope.dimension_count"));
    const int64_t head_dim =
        config.contains("head_dim")
            ? config["head_dim"].get<int64_t>()
            : config["hidden_size"].get<int64_t>() /
                  std::max<int64_t>(1, config["num_attention_heads"].get<int64_t>());
    if (rotated != head_dim) {
      return absl::UnimplementedError(absl::StrCat("metadata '", keys.Key("rope.dimension_count"),
                                                   "' is ", rotated,
                                                   "; Skein rotates whole heads, of ", head_dim));
    }
  }
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

const TensorInfo* FindTensor(const GgufModel& model, std::string_view name) {
  const absl::StatusOr<const TensorInfo*> found = model.tensors->Find(name);
  return found.ok() ? *found : nullptr;
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
  if (architecture != "llama") {
    return absl::UnimplementedError(absl::StrCat("metadata '", std::string(kGgufArchitecture),
                                                 "' is '", Printable(architecture),
                                                 "'; Skein runs llama"));
  }
  const Keys keys(metadata, architecture);
  json config = {{"architectures", {"LlamaForCausalLM"}},
                 {"tie_word_embeddings", FindTensor(model, "output.weight") == nullptr},
                 {"dtype", MatrixType(model)}};
  SKEIN_RETURN_IF_ERROR(RefuseUnsupported(keys));
  SKEIN_RETURN_IF_ERROR(ReadShape(metadata, keys, config));
  SKEIN_RETURN_IF_ERROR(ReadRope(keys, config));
  SKEIN_RETURN_IF_ERROR(ReadTokens(metadata, config));
  return config.dump();
}

absl::StatusOr<std::vector<float>> RopeDivisorsOfGguf(const GgufModel& model, int64_t head_dim) {
  const TensorInfo* tensor = FindTensor(model, kGgufRopeDivisors);
  if (tensor == nullptr) return std::vector<float>{};
  if (tensor->dtype != DType::kF32 || tensor->shape != std::vector<int64_t>{head_dim / 2}) {
    return absl::InvalidArgumentError(absl::StrCat("tensor '", tensor->name,
                                                   "' must be F32 and have a number for each of ",
                                                   head_dim / 2, " frequencies of a head"));
  }
  std::vector<float> divisors(static_cast<size_t>(tensor->shape[0]));
  SKEIN_RETURN_IF_ERROR(
      model.tensors->Read(*tensor, {{Range{0, tensor->shape[0]}}},
                          absl::MakeSpan(reinterpret_cast<std::byte*>(divisors.data()),
                                         divisors.size() * sizeof(float))));
  for (float divisor : divisors) {
    if (!(divisor >= 1e-3f && divisor <= 1e6f)) {
      return absl::InvalidArgumentError(absl::StrCat("tensor '", tensor->name, "' holds ", divisor,
                                                     ", not a number from 0.001 to 1000000"));
    }
  }
  return divisors;
}

}  // namespace skein::model
