// Mixtral (Jiang et al., 2024): Mistral with experts in every layer.
#include "model/config/architectures/architecture.h"
#include "model/config/decoder_fields.h"

namespace skein::model {
namespace {

void Read(FieldReader& reader, ModelConfig& config) {
  const DecoderDefaults defaults = {.rms_norm_eps = 1e-5, .rope_theta = 1e6};
  ReadDecoder(reader, defaults, config);
  ReadActivation(reader, "hidden_act", Activation::kSilu, config);
  int64_t window = 0;
  reader.Int("sliding_window", 1, kMaxPositions, &window);
  SetWindows(window, [](int64_t) { return true; }, config);
  ReadRope(reader, defaults, config);
  ReadExperts(reader, {.count_field = "num_local_experts", .count = 8, .chosen = 2}, config);
  config.experts.intermediate_size = config.intermediate_size;
  config.experts.normalized = true;
  config.experts.block = "block_sparse_moe";
  config.experts.gate = "w1";
  config.experts.up = "w3";
  config.experts.down = "w2";
}

void AdaptGguf(const GgufModel&, nlohmann::json& config) {
  config["num_local_experts"] = config["num_experts"];
  nlohmann::json& rope = config["rope_parameters"];
  if (!rope.contains("rope_theta")) rope["rope_theta"] = 10000.0;  // as llama files mean it
}

constexpr std::string_view kGgufKeys[] = {"expert_count", "expert_used_count"};

}  // namespace

// GGUF files have it as llama, with experts.
const Architecture kMixtral = {"MixtralForCausalLM", "mixtral", "", Read, AdaptGguf, kGgufKeys};

}  // namespace skein::model
