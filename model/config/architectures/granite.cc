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
  ReadBiases(reader, config);
  reader.Double("embedding_multiplier", 1e-6, kMaxScale, &config.embedding_scale);
  reader.Double("residual_multiplier", 1e-6, kMaxScale, &config.residual_scale);
  reader.Double("attention_multiplier", 1e-6, kMaxScale, &config.attention_scale.emplace(1.0));
  double divisor = 1.0;
  reader.Double("logits_scaling", 1e-6, kMaxScale, &divisor);
  config.logits_scale = 1.0 / divisor;
  ReadRope(reader, defaults, config);
}

}  // namespace

constexpr std::string_view kKeys[] = {"embedding_scale", "residual_scale", "attention.scale",
                                      "logit_scale"};

const Architecture kGranite = {"GraniteForCausalLM", "granite", "granite", Read, nullptr, kKeys};

}  // namespace skein::model
