// Qwen 2, 2.5 and 3, and those with experts. The former have biases of queries, keys and values,
// the latter norms of queries and keys instead.
#include <algorithm>
#include <utility>
#include <vector>

#include "model/config/architectures/architecture.h"
#include "model/config/decoder_fields.h"

namespace skein::model {
namespace {

// Whether a layer has a window, where there are some, by its number and the first one's.
using IsSliding = bool (*)(int64_t layer, int64_t max_window_layers);

bool LaterLayers(int64_t layer, int64_t max_window_layers) { return layer >= max_window_layers; }

void ReadLayers(FieldReader& reader, const DecoderDefaults& defaults, ModelConfig& config,
                IsSliding is_sliding = LaterLayers) {
  ReadDecoder(reader, defaults, config);
  ReadActivation(reader, "hidden_act", Activation::kSilu, config);
  bool windows = false;
  reader.Bool("use_sliding_window", &windows);
  int64_t window = windows && !reader.Says("sliding_window") ? 4096 : 0;
  if (windows) reader.Int("sliding_window", 1, kMaxPositions, &window);
  int64_t max_window_layers = 28;
  reader.Int("max_window_layers", 0, kMaxPositions, &max_window_layers);
  ReadWindows(
      reader, window, [&](int64_t layer) { return is_sliding(layer, max_window_layers); }, config);
  ReadRope(reader, defaults, config);
}

void ReadQwen2(FieldReader& reader, ModelConfig& config) {
  ReadLayers(reader, {}, config);
  config.qkv_bias = true;
}

void ReadQwen3(FieldReader& reader, ModelConfig& config) {
  ReadLayers(reader, {.head_dim = 128}, config);
  config.qk_norm = true;
  ReadAttentionBias(reader, config);
}

void ReadMixture(FieldReader& reader, const ExpertDefaults& defaults, ModelConfig& config) {
  ReadExperts(reader, defaults, config);
  ExpertsConfig& experts = config.experts;
  experts.intermediate_size = defaults.intermediate_size;
  reader.Int("moe_intermediate_size", 1, kMaxIntermediate, &experts.intermediate_size);
  reader.Bool("norm_topk_prob", &experts.normalized);
  // A layer has experts if its number, from 1, is a multiple of this, unless it is listed.
  int64_t every = 1;
  reader.Int("decoder_sparse_step", 1, kMaxPositions, &every);
  std::vector<bool> absent(static_cast<size_t>(config.num_layers));
  for (size_t i = 0; i < absent.size(); ++i) absent[i] = (i + 1) % static_cast<size_t>(every) != 0;
  std::vector<int32_t> plain;
  reader.TokenIds("mlp_only_layers", &plain);  // numbers of layers are written alike
  for (const int32_t layer : plain) {
    if (layer < config.num_layers) absent[static_cast<size_t>(layer)] = true;
  }
  if (std::find(absent.begin(), absent.end(), true) != absent.end()) {
    experts.absent = std::move(absent);
  }
}

void ReadQwen2Moe(FieldReader& reader, ModelConfig& config) {
  // Every other layer of the first ones.
  ReadLayers(reader, {}, config, [](int64_t layer, int64_t max_window_layers) {
    return layer % 2 == 0 && layer < max_window_layers;
  });
  config.qkv_bias = true;
  reader.Bool("qkv_bias", &config.qkv_bias);
  ReadMixture(reader, {.count = 60, .chosen = 4, .intermediate_size = 1408}, config);
  config.experts.shared_intermediate_size = 5632;
  reader.Int("shared_expert_intermediate_size", 1, kMaxIntermediate,
             &config.experts.shared_intermediate_size);
}

void ReadQwen3Moe(FieldReader& reader, ModelConfig& config) {
  ReadLayers(reader, {}, config, [](int64_t, int64_t) { return true; });
  config.qk_norm = true;
  ReadAttentionBias(reader, config);
  ReadMixture(reader, {.count = 128, .chosen = 8, .intermediate_size = 768}, config);
}

// Files have experts in all layers, and do not say whether weights are normalised: Qwen 3's are.
void AdaptQwen3Moe(const GgufModel&, nlohmann::json& config) { config["norm_topk_prob"] = true; }

constexpr std::string_view kExpertKeys[] = {"expert_count", "expert_used_count",
                                            "expert_feed_forward_length"};
constexpr std::string_view kSharedExpertKeys[] = {"expert_count", "expert_used_count",
                                                  "expert_feed_forward_length",
                                                  "expert_shared_feed_forward_length"};

}  // namespace

const Architecture kQwen2 = {"Qwen2ForCausalLM", "qwen2", "qwen2", ReadQwen2};
const Architecture kQwen3 = {"Qwen3ForCausalLM", "qwen3", "qwen3", ReadQwen3};
const Architecture kQwen2Moe = {"Qwen2MoeForCausalLM", "qwen2_moe", "qwen2moe",
                                ReadQwen2Moe,          nullptr,     kSharedExpertKeys};
const Architecture kQwen3Moe = {"Qwen3MoeForCausalLM", "qwen3_moe",   "qwen3moe",
                                ReadQwen3Moe,          AdaptQwen3Moe, kExpertKeys};

}  // namespace skein::model
