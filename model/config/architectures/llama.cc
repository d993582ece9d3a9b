// Llama 1 to 3: the decoder as it is, with biases where asked for.
#include "model/config/architectures/architecture.h"
#include "model/config/decoder_fields.h"

namespace skein::model {
namespace {

void Read(FieldReader& reader, ModelConfig& config) {
  const DecoderDefaults defaults;
  ReadDecoder(reader, defaults, config);
  ReadActivation(reader, "hidden_act", Activation::kSilu, config);
  ReadBiases(reader, config);
  if (reader.Has("sliding_window")) {
    reader.FailUnimplemented("sliding_window", "Skein runs full attention of this architecture");
  }
  ReadRope(reader, defaults, config);
}

}  // namespace

// GGUF files have Mistral, and others like it, as it, too.
const Architecture kLlama = {"LlamaForCausalLM", "llama", "llama", Read, nullptr, {}, &kMixtral};

}  // namespace skein::model
