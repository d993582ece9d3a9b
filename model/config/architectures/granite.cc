// Granite 3: Llama with factors on embeddings, residuals, attention and logits.
#include "model/config/architectures/architecture.h"
#include "model/config/decoder_fields.h"

namespace skein::model {
namespace {

constexpr double kMaxScale = 1e6;

void Read(FieldReader& reader, ModelConfig& config) {
  const DecoderDefaults defaults;
  ReadDecoder(reader, defaults, config);
  ReadActivation(reader, "hidden_act", Activation::kSilu, config);
  reader.Bool("attention_bias", &config.qkv_bias);
  config.output_bias = config.qkv_bias;
  reader.Bool("mlp_bias", &config.mlp_bias);
  reader.Double("embedding_multiplier", 1e-6, kMaxScale, &config.embedding_scale);
  reader.Double("residual_multiplier", 1e-6, kMaxScale, &config.residual_scale);
  config.attention_scale = 1.0;
  reader.Double("attention_multiplier", 1e-6, kMaxScale, &config.attention_scale.emplace(1.0));
  double divisor = 1.0;
  reader.Double("logits_scaling", 1e-6, kMaxScale, &divisor);
  config.logits_scale = 1.0 / divisor;
  ReadRope(reader, defaults, config);
}

void AdaptGguf(const GgufModel& file, nlohmann::json& config) {
  config["attention_bias"] = file.tensors->Find("blk.0.attn_q.bias").ok();
}

}  // namespace

constexpr std::string_view kKeys[] = {"embedding_scale", "residual_scale", "attention.scale",
                                      "logit_scale"};

const Architecture kGranite = {"GraniteForCausalLM", "granite", "granite", Read, AdaptGguf, kKeys};

}  // namespace skein::model
