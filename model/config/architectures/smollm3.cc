// SmolLM3: Llama, but every fourth layer is not rotated ("NoPE", Yang et al., 2025).
#include "model/config/architectures/architecture.h"
#include "model/config/decoder_fields.h"

namespace skein::model {
namespace {

void ReadUnrotated(FieldReader& reader, ModelConfig& config) {
  int64_t interval = 4;
  reader.Int("no_rope_layer_interval", 1, kMaxPositions, &interval);
  const nlohmann::json& rotated = reader.Get("no_rope_layers");  // 1: of a layer that is rotated
  if (!rotated.is_null() &&
      (!rotated.is_array() || static_cast<int64_t>(rotated.size()) < config.num_layers)) {
    reader.FailField("no_rope_layers", "must be a list of 0 or 1 for each layer");
    return;
  }
  for (const nlohmann::json& element : rotated.is_null() ? nlohmann::json::array() : rotated) {
    if (element != 0 && element != 1) {
      reader.FailField("no_rope_layers", "must be a list of 0 or 1 for each layer");
      return;
    }
  }
  for (int64_t layer = 0; layer < config.num_layers; ++layer) {
    const bool is_rotated =
        rotated.is_null() ? (layer + 1) % interval != 0 : rotated[static_cast<size_t>(layer)] != 0;
    config.unrotated.push_back(!is_rotated);
  }
}

void Read(FieldReader& reader, ModelConfig& config) {
  const DecoderDefaults defaults = {.rope_theta = 2e6, .tie_word_embeddings = true};
  ReadDecoder(reader, defaults, config);
  ReadActivation(reader, "hidden_act", Activation::kSilu, config);
  ReadBiases(reader, config);
  if (!reader.status().ok()) return;
  ReadUnrotated(reader, config);
  bool windows = false;
  reader.Bool("use_sliding_window", &windows);
  if (windows)
    reader.FailUnimplemented("use_sliding_window",
                             "Skein runs full attention of this architecture");
  ReadRope(reader, defaults, config);
}

}  // namespace

const Architecture kSmolLm3 = {"SmolLM3ForCausalLM", "smollm3", "smollm3", Read};

}  // namespace skein::model
