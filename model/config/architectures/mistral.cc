// Mistral (Jiang et al., 2023): Llama with a window in every layer, in its first version.
#include "model/config/architectures/architecture.h"
#include "model/config/decoder_fields.h"

namespace skein::model {
namespace {

void Read(FieldReader& reader, ModelConfig& config) {
  const DecoderDefaults defaults;
  ReadDecoder(reader, defaults, config);
  ReadActivation(reader, "hidden_act", Activation::kSilu, config);
  int64_t window = reader.Says("sliding_window") ? 0 : 4096;
  reader.Int("sliding_window", 1, kMaxPositions, &window);
  SetWindows(window, [](int64_t) { return true; }, config);
  ReadRope(reader, defaults, config);
}

}  // namespace

// GGUF files have it as llama, without a window.
const Architecture kMistral = {"MistralForCausalLM", "mistral", "", Read};

}  // namespace skein::model
