// Qwen 2, 2.5 and 3. The former have biases of queries, keys and values, the latter norms of
// queries and keys instead.
#include "model/config/architectures/architecture.h"
#include "model/config/decoder_fields.h"

namespace skein::model {
namespace {

void ReadLayers(FieldReader& reader, const DecoderDefaults& defaults, ModelConfig& config) {
  ReadDecoder(reader, defaults, config);
  ReadActivation(reader, "hidden_act", Activation::kSilu, config);
  bool windows = false;
  reader.Bool("use_sliding_window", &windows);
  int64_t window = windows && !reader.Says("sliding_window") ? 4096 : 0;
  if (windows) reader.Int("sliding_window", 1, kMaxPositions, &window);
  int64_t first_sliding = 28;
  reader.Int("max_window_layers", 0, kMaxPositions, &first_sliding);
  ReadWindows(reader, window, [&](int64_t layer) { return layer >= first_sliding; }, config);
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

}  // namespace

const Architecture kQwen2 = {"Qwen2ForCausalLM", "qwen2", "qwen2", ReadQwen2};
const Architecture kQwen3 = {"Qwen3ForCausalLM", "qwen3", "qwen3", ReadQwen3};

}  // namespace skein::model
