// Parses any bytes as config.json and generation_config.json. A config that is accepted must count
// its parameters and come back from its own JSON unchanged.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "model/config/model_config.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto config = skein::model::ParseModelConfig(text);
  if (config.ok()) {
    const auto again = skein::model::ParseModelConfig(skein::model::ModelConfigToJson(*config));
    if (!again.ok() || !(*again == *config) || config->ParameterCount() <= 0 ||
        config->RopeInverseFrequencies().empty()) {
      std::abort();
    }
  }
  (void)skein::model::ParseGenerationDefaults(text);
  return 0;
}
