// Gemma 2 and 3: norms behind attention and MLP too, windows in most layers, GeGLU, scaled
// embeddings. The former cap attention and logits, the latter normalises queries and keys.
#include <algorithm>
#include <cmath>
#include <utility>

#include "model/config/architectures/architecture.h"
#include "model/config/decoder_fields.h"

namespace skein::model {
namespace {

constexpr double kMaxSoftcap = 1e6;

void ReadGemma(FieldReader& reader, const DecoderDefaults& defaults, ModelConfig& config) {
  ReadDecoder(reader, defaults, config);
  ReadActivation(reader, "hidden_activation", Activation::kGeluTanh, config);
  bool bias = false;
  reader.Bool("attention_bias", &bias);
  if (bias) reader.FailUnimplemented("attention_bias", "Skein runs Gemma without it");
  bool both_directions = false;
  reader.Bool("use_bidirectional_attention", &both_directions);
  if (both_directions) {
    reader.FailUnimplemented("use_bidirectional_attention", "Skein runs causal attention");
  }
  config.post_norms = true;
  config.norm_offset = 1.0;
  config.embedding_scale = std::sqrt(static_cast<double>(config.hidden_size));
  double scalar = 256.0;
  reader.Double("query_pre_attn_scalar", 1e-3, 1e6, &scalar);
  config.attention_scale = 1.0 / std::sqrt(scalar);
  reader.Double("attn_logit_softcapping", 1e-3, kMaxSoftcap, &config.attention_softcap);
  reader.Double("final_logit_softcapping", 1e-3, kMaxSoftcap, &config.logits_softcap);
}

int64_t ReadWindow(FieldReader& reader) {
  int64_t window = reader.Says("sliding_window") ? 0 : 4096;
  reader.Int("sliding_window", 1, kMaxPositions, &window);
  return window;
}

void ReadGemma2(FieldReader& reader, ModelConfig& config) {
  const DecoderDefaults defaults = {.tie_word_embeddings = true, .head_dim = 256};
  if (!reader.Says("attn_logit_softcapping")) config.attention_softcap = 50.0;
  if (!reader.Says("final_logit_softcapping")) config.logits_softcap = 30.0;
  ReadGemma(reader, defaults, config);
  ReadWindows(reader, ReadWindow(reader), [](int64_t layer) { return layer % 2 == 0; }, config);
  ReadRope(reader, defaults, config);
}

// Layers with a window have frequencies of their own. transformers 4 writes rope_local_base_freq
// beside what is of the others, 5 an object for each.
void ReadTwoRopes(FieldReader& reader, const DecoderDefaults& defaults, ModelConfig& config) {
  RopeConfig local = {.theta = 10000.0};
  reader.Double("rope_local_base_freq", 1.0, kMaxTheta, &local.theta);
  config.rope.theta = defaults.rope_theta;
  const bool nested = reader.Get("rope_parameters").is_object() &&
                      (reader.Get("rope_parameters").contains("full_attention") ||
                       reader.Get("rope_parameters").contains("sliding_attention"));
  if (nested) {
    reader.Double("rope_theta", 1.0, kMaxTheta, &config.rope.theta);
    if (reader.Has("rope_scaling")) {
      reader.FailUnimplemented("rope_scaling", "Skein takes what rope_parameters says alone");
    }
    reader.Object("rope_parameters", [&](FieldReader& object) {
      for (const auto& [field, rope] :
           {std::pair("full_attention", &config.rope), std::pair("sliding_attention", &local)}) {
        if (!object.Has(field)) continue;
        object.Object(field, [&](FieldReader& of_layers) {
          ReadRopeObject(of_layers, defaults, config, /*original_context=*/0, *rope);
          if (rope->scaling == RopeConfig::Scaling::kDynamic) {
            of_layers.FailUnimplemented("rope_type", "Skein runs Gemma without it");
          }
        });
      }
    });
  } else {
    ReadRope(reader, defaults, config);
  }
  config.window_rope = local;
}

void ReadGemma3(FieldReader& reader, ModelConfig& config) {
  const DecoderDefaults defaults = {
      .rope_theta = 1e6, .tie_word_embeddings = true, .head_dim = 256};
  ReadGemma(reader, defaults, config);
  config.qk_norm = true;
  int64_t pattern = 6;  // one layer in so many attends to everything
  reader.Int("sliding_window_pattern", 1, kMaxPositions, &pattern);
  ReadWindows(
      reader, ReadWindow(reader), [&](int64_t layer) { return (layer + 1) % pattern != 0; },
      config);
  ReadTwoRopes(reader, defaults, config);
}

// The largest of each divides by hidden_size / num_attention_heads instead of by head_dim: 27B.
void AdaptGguf(const GgufModel&, nlohmann::json& config, int64_t layers_of_largest) {
  const auto number = [&](const char* field) { return config.at(field).get<int64_t>(); };
  const bool largest = number("num_hidden_layers") == layers_of_largest;
  const int64_t head_dim = config.value("head_dim", int64_t{256});
  config["query_pre_attn_scalar"] =
      largest ? number("hidden_size") / std::max<int64_t>(1, number("num_attention_heads"))
              : head_dim;
  if (!config.contains("sliding_window")) config["sliding_window"] = nullptr;
}

void AdaptGemma2(const GgufModel& file, nlohmann::json& config) { AdaptGguf(file, config, 46); }
void AdaptGemma3(const GgufModel& file, nlohmann::json& config) { AdaptGguf(file, config, 62); }

}  // namespace

constexpr std::string_view kGemma2Keys[] = {"attention.sliding_window", "attn_logit_softcapping",
                                            "final_logit_softcapping"};
constexpr std::string_view kGemma3Keys[] = {
    "attention.sliding_window", "attention.sliding_window_pattern", "rope.freq_base_swa",
    "attn_logit_softcapping", "final_logit_softcapping"};

const Architecture kGemma2 = {"Gemma2ForCausalLM", "gemma2",    "gemma2",
                              ReadGemma2,          AdaptGemma2, kGemma2Keys};
const Architecture kGemma3 = {"Gemma3ForCausalLM", "gemma3_text", "gemma3",
                              ReadGemma3,          AdaptGemma3,   kGemma3Keys};

}  // namespace skein::model
