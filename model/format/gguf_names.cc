#include "model/format/gguf_names.h"

#include <algorithm>
#include <cctype>
#include <cstddef>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace skein::model {
namespace {

constexpr GgufName kNames[] = {
    {"token_embd.weight", "model.embed_tokens.weight"},
    {"output_norm.weight", "model.norm.weight"},
    {"output.weight", "lm_head.weight"},
};
constexpr GgufName kLayerNames[] = {
    {"attn_norm.weight", "input_layernorm.weight"},
    {"attn_q.weight", "self_attn.q_proj.weight"},
    {"attn_k.weight", "self_attn.k_proj.weight"},
    {"attn_v.weight", "self_attn.v_proj.weight"},
    {"attn_qkv.weight", "self_attn.qkv_proj.weight"},
    {"attn_output.weight", "self_attn.o_proj.weight"},
    {"attn_q.bias", "self_attn.q_proj.bias"},
    {"attn_k.bias", "self_attn.k_proj.bias"},
    {"attn_v.bias", "self_attn.v_proj.bias"},
    {"attn_output.bias", "self_attn.o_proj.bias"},
    {"attn_q_norm.weight", "self_attn.q_norm.weight"},
    {"attn_k_norm.weight", "self_attn.k_norm.weight"},
    {"ffn_norm.weight", "post_attention_layernorm.weight"},
    {"ffn_gate.weight", "mlp.gate_proj.weight"},
    {"ffn_up.weight", "mlp.up_proj.weight"},
    {"ffn_down.weight", "mlp.down_proj.weight"},
    {"ffn_gate.bias", "mlp.gate_proj.bias"},
    {"ffn_up.bias", "mlp.up_proj.bias"},
    {"ffn_down.bias", "mlp.down_proj.bias"},
};
// Of architectures with norms behind attention and MLP, too.
constexpr GgufName kPostNormNames[] = {
    {"post_attention_norm.weight", "post_attention_layernorm.weight"},
    {"ffn_norm.weight", "pre_feedforward_layernorm.weight"},
    {"post_ffw_norm.weight", "post_feedforward_layernorm.weight"},
};
constexpr GgufName kExpertNames[] = {
    {"ffn_gate_inp.weight", "mlp.gate.weight"},
    {"ffn_gate_inp_shexp.weight", "mlp.shared_expert_gate.weight"},
    {"ffn_gate_shexp.weight", "mlp.shared_expert.gate_proj.weight"},
    {"ffn_up_shexp.weight", "mlp.shared_expert.up_proj.weight"},
    {"ffn_down_shexp.weight", "mlp.shared_expert.down_proj.weight"},
};
constexpr GgufName kMixtralNames[] = {{"ffn_gate_inp.weight", "block_sparse_moe.gate.weight"}};
// Of all experts of a layer, as one tensor; behind an expert's own name.
constexpr GgufName kOfEachExpert[] = {
    {"ffn_gate_exps.weight", "gate_proj.weight"},
    {"ffn_up_exps.weight", "up_proj.weight"},
    {"ffn_down_exps.weight", "down_proj.weight"},
};
constexpr GgufName kOfEachMixtralExpert[] = {
    {"ffn_gate_exps.weight", "w1.weight"},
    {"ffn_up_exps.weight", "w3.weight"},
    {"ffn_down_exps.weight", "w2.weight"},
};
// ffn_up has the gates, too.
constexpr GgufName kJoinedNames[] = {{"ffn_up.weight", "mlp.gate_up_proj.weight"}};
constexpr std::string_view kLayers = "blk.";

std::string_view Find(absl::Span<const GgufName> names, std::string_view gguf) {
  for (const GgufName& name : names) {
    if (name.gguf == gguf) return name.hugging_face;
  }
  return {};
}

constexpr GgufDialect kDialects[] = {
    {"llama", true, kMixtralNames, "block_sparse_moe.experts.", kOfEachMixtralExpert},
    {"qwen2moe", false, kExpertNames, "mlp.experts.", kOfEachExpert},
    {"qwen3moe", false, kExpertNames, "mlp.experts.", kOfEachExpert},
    {"granite", true},
    {"smollm3", true},
    {"phi3", false, kJoinedNames},
    {"gemma2", false, kPostNormNames},
    {"gemma3", false, kPostNormNames},
};

constexpr std::string_view kHuggingFaceLayers = "model.layers.";

std::string_view FindGguf(absl::Span<const GgufName> names, std::string_view hugging_face) {
  for (const GgufName& name : names) {
    if (name.hugging_face == hugging_face) return name.gguf;
  }
  return {};
}

}  // namespace

std::optional<GgufLayerName> SplitGgufName(std::string_view name) {
  if (name.substr(0, kLayers.size()) != kLayers) return std::nullopt;
  name.remove_prefix(kLayers.size());
  const size_t dot = name.find('.');
  if (dot == 0 || dot == name.npos || !std::all_of(name.begin(), name.begin() + dot, ::isdigit)) {
    return std::nullopt;
  }
  return GgufLayerName{name.substr(0, dot), name.substr(dot + 1)};
}

GgufDialect GgufDialectOf(std::string_view architecture) {
  for (const GgufDialect& dialect : kDialects) {
    if (dialect.architecture == architecture) return dialect;
  }
  return {};
}

std::string HuggingFaceName(const GgufDialect& dialect, std::string_view gguf) {
  if (const std::string_view name = Find(kNames, gguf); !name.empty()) return std::string(name);
  const std::optional<GgufLayerName> split = SplitGgufName(gguf);
  if (!split) return std::string(gguf);
  std::string_view name = Find(dialect.layer_names, split->tensor);
  if (name.empty()) name = Find(kLayerNames, split->tensor);
  return absl::StrCat("model.layers.", std::string(split->layer), ".",
                      std::string(name.empty() ? split->tensor : name));
}

std::string_view OfEachExpert(const GgufDialect& dialect, std::string_view tensor) {
  return Find(dialect.of_each_expert, tensor);
}

std::optional<GgufPlace> GgufPlaceOf(const GgufDialect& dialect, std::string_view hugging_face) {
  if (const std::string_view name = FindGguf(kNames, hugging_face); !name.empty()) {
    return GgufPlace{std::string(name)};
  }
  if (!hugging_face.starts_with(kHuggingFaceLayers)) return std::nullopt;
  std::string_view rest = hugging_face.substr(kHuggingFaceLayers.size());
  const size_t dot = rest.find('.');
  if (dot == rest.npos) return std::nullopt;
  const std::string layer =
      absl::StrCat(std::string(kLayers), std::string(rest.substr(0, dot)), ".");
  rest.remove_prefix(dot + 1);
  if (rest.starts_with(dialect.experts)) {
    const std::string_view of_expert = rest.substr(dialect.experts.size());
    const size_t end = of_expert.find('.');
    GgufPlace place;
    if (end == of_expert.npos ||
        !absl::SimpleAtoi(std::string(of_expert.substr(0, end)), &place.expert)) {
      return std::nullopt;
    }
    const std::string_view name = FindGguf(dialect.of_each_expert, of_expert.substr(end + 1));
    if (name.empty()) return std::nullopt;
    place.name = layer + std::string(name);
    return place;
  }
  std::string_view name = FindGguf(dialect.layer_names, rest);
  if (name.empty()) name = FindGguf(kLayerNames, rest);
  if (name.empty()) return std::nullopt;
  return GgufPlace{layer + std::string(name)};
}

bool IsInterleaved(const GgufDialect& dialect, std::string_view gguf) {
  const std::optional<GgufLayerName> name = SplitGgufName(gguf);
  return dialect.interleaved && name &&
         (name->tensor.starts_with("attn_q.") || name->tensor.starts_with("attn_k."));
}

}  // namespace skein::model
