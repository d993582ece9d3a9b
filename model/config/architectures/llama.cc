// Llama 1 to 3: the decoder as it is, with biases where asked for.
#include "model/config/architectures/architecture.h"
#include "model/config/decoder_fields.h"

namespace skein::model {
namespace {

void Read(FieldReader& reader, ModelConfig& config) {
  const DecoderDefaults defaults;
  ReadDecoder(reader, defaults, config);
  ReadActivation(reader, "hidden_act", Activation::kSilu, config);
  reader.Bool("attention_bias", &config.qkv_bias);
  config.output_bias = config.qkv_bias;
  reader.Bool("mlp_bias", &config.mlp_bias);
  if (reader.Has("sliding_window")) {
    reader.FailUnimplemented("sliding_window", "Skein runs full attention of this architecture");
  }
  ReadRope(reader, defaults, config);
}

// Its files name no biases; converters write Mistral's, Granite's and other models as it, too.
void AdaptGguf(const GgufModel& file, nlohmann::json& config) {
  config["attention_bias"] = file.tensors->Find("blk.0.attn_q.bias").ok();
  config["mlp_bias"] = file.tensors->Find("blk.0.ffn_up.bias").ok();
}

}  // namespace

const Architecture kLlama = {"LlamaForCausalLM", "llama", "llama", Read, AdaptGguf};

}  // namespace skein::model
