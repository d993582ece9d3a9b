// Parses any bytes as config.json and generation_config.json. A config that is accepted must count
// its parameters and have frequencies; a Llama's must come back from its own JSON unchanged.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "model/config/model_config.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto config = skein::model::ParseModelConfig(text);
  using Scaling = skein::model::RopeConfig::Scaling;
  if (config.ok()) {
    if (config->num_layers <= 100 && config->ParameterCount() <= 0) std::abort();
    for (const int64_t context : {int64_t{0}, config->max_position_embeddings}) {
      for (const float frequency : config->rope.InverseFrequencies(config->head_dim, context)) {
        if (!(frequency >= 0)) std::abort();
      }
    }
    const Scaling scaling = config->rope.scaling;
    if (config->architecture == "LlamaForCausalLM" &&
        (scaling == Scaling::kNone || scaling == Scaling::kLlama3)) {
      const auto again = skein::model::ParseModelConfig(skein::model::ModelConfigToJson(*config));
      if (!again.ok() || !(*again == *config)) std::abort();
    }
  }
  (void)skein::model::ParseGenerationDefaults(text);
  return 0;
}
