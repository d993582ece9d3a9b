#include "model/config/model_config.h"

#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"

namespace skein::model {

DType ModelConfig::DTypeOf(std::string_view tensor) const {
  const auto found = stored.matrices.find(tensor);
  return found == stored.matrices.end() ? dtype : found->second;
}

std::vector<TypeShare> ModelConfig::LayerTypes() const {
  return stored.layers.empty() ? std::vector<TypeShare>{{dtype}} : stored.layers;
}

std::vector<TypeShare> ModelConfig::OutputTypes() const {
  return stored.output.empty() ? std::vector<TypeShare>{{dtype}} : stored.output;
}

int64_t ModelConfig::LayersOfExperts() const {
  int64_t layers = 0;
  for (int64_t layer = 0; layer < num_layers; ++layer) layers += HasExperts(layer) ? 1 : 0;
  return layers;
}

int64_t ModelConfig::LargestWindow(int64_t context_length) const {
  if (windows.empty() || absl::c_linear_search(windows, 0)) return 0;
  const int64_t largest = *absl::c_max_element(windows);
  return largest < context_length ? largest : 0;
}

int64_t ModelConfig::ParameterCount() const {
  int64_t count = 0;
  for (const NamedShape& tensor : TensorsOf(*this)) {
    int64_t elements = 1;
    for (const int64_t size : tensor.shape) elements *= size;
    count += elements;
  }
  return count;
}

std::vector<NamedShape> TensorsOf(const ModelConfig& config) {
  const int64_t hidden = config.hidden_size;
  const int64_t ffn = config.intermediate_size;
  const int64_t query = config.num_heads * config.head_dim;
  const int64_t kv = config.num_kv_heads * config.head_dim;
  std::vector<NamedShape> tensors = {{"model.embed_tokens.weight", {config.vocab_size, hidden}},
                                     {"model.norm.weight", {hidden}}};
  if (!config.tie_word_embeddings)
    tensors.push_back({"lm_head.weight", {config.vocab_size, hidden}});
  for (int64_t layer = 0; layer < config.num_layers; ++layer) {
    const std::string prefix = absl::StrCat("model.layers.", layer, ".");
    const auto norm = [&](const char* name, int64_t size) {
      tensors.push_back({absl::StrCat(prefix, name, ".weight"), {size}});
    };
    const auto projection = [&](const std::string& name, int64_t rows, int64_t cols, bool bias) {
      tensors.push_back({absl::StrCat(prefix, name, ".weight"), {rows, cols}});
      if (bias) tensors.push_back({absl::StrCat(prefix, name, ".bias"), {rows}});
    };
    norm("input_layernorm", hidden);
    norm("post_attention_layernorm", hidden);
    if (config.post_norms) {
      norm("pre_feedforward_layernorm", hidden);
      norm("post_feedforward_layernorm", hidden);
    }
    if (config.qk_norm) {
      norm("self_attn.q_norm", config.head_dim);
      norm("self_attn.k_norm", config.head_dim);
    }
    const auto unit = [&](const std::string& name, const ExpertsConfig& names, int64_t inner) {
      projection(absl::StrCat(name, ".", names.gate), inner, hidden, false);
      projection(absl::StrCat(name, ".", names.up), inner, hidden, false);
      projection(absl::StrCat(name, ".", names.down), hidden, inner, false);
    };
    if (config.joined_projections) {
      projection("self_attn.qkv_proj", query + 2 * kv, hidden, config.qkv_bias);
    } else {
      projection("self_attn.q_proj", query, hidden, config.qkv_bias);
      projection("self_attn.k_proj", kv, hidden, config.qkv_bias);
      projection("self_attn.v_proj", kv, hidden, config.qkv_bias);
    }
    projection("self_attn.o_proj", hidden, query, config.output_bias);
    if (config.HasExperts(layer)) {
      const ExpertsConfig& experts = config.experts;
      projection(experts.block + ".gate", experts.count, hidden, false);
      for (int64_t i = 0; i < experts.count; ++i) {
        unit(absl::StrCat(experts.block, ".experts.", i), experts, experts.intermediate_size);
      }
      if (experts.shared_intermediate_size > 0) {
        projection(experts.block + ".shared_expert_gate", 1, hidden, false);
        unit(experts.block + ".shared_expert", experts, experts.shared_intermediate_size);
      }
      continue;
    }
    if (config.joined_projections) {
      projection("mlp.gate_up_proj", 2 * ffn, hidden, config.mlp_bias);
    } else {
      projection("mlp.gate_proj", ffn, hidden, config.mlp_bias);
      projection("mlp.up_proj", ffn, hidden, config.mlp_bias);
    }
    projection("mlp.down_proj", hidden, ffn, config.mlp_bias);
  }
  return tensors;
}

}  // namespace skein::model
