#include "model/config/gguf_of_config.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "model/config/architectures/architecture.h"
#include "model/format/gguf_keys.h"
#include "model/format/gguf_writer.h"

namespace skein::model {
namespace {

using Scaling = RopeConfig::Scaling;

// Writes keys of one architecture: "block_count" is "llama.block_count".
class Writer {
 public:
  explicit Writer(const Architecture& family) : family_(family) {
    made_.metadata[std::string(kGgufArchitecture)] = GgufText(family.gguf);
  }

  void Integer(std::string_view name, int64_t value) { Set(name, GgufUint32(value)); }
  void Number(std::string_view name, double value) { Set(name, GgufFloat32(value)); }
  void Text(std::string_view name, std::string_view value) { Set(name, GgufText(value)); }
  // A key that some families have, where the value is not what it is without.
  void NumberIfKnown(std::string_view name, double value, double without) {
    if (Knows(name) && value != without) Number(name, value);
  }
  void IntegerIfKnown(std::string_view name, int64_t value) {
    if (Knows(name) && value != 0) Integer(name, value);
  }
  void Tensor(std::string_view name, std::vector<float> values) {
    made_.tensors.push_back({std::string(name), std::move(values)});
  }

  GgufOfConfig Take() { return std::move(made_); }

 private:
  bool Knows(std::string_view name) const {
    return std::find(family_.gguf_keys.begin(), family_.gguf_keys.end(), name) !=
           family_.gguf_keys.end();
  }
  void Set(std::string_view name, GgufValue value) {
    made_.metadata[absl::StrCat(std::string(family_.gguf), ".", std::string(name))] =
        std::move(value);
  }

  const Architecture& family_;
  GgufOfConfig made_;
};

std::vector<float> Floats(const std::vector<double>& values) {
  return {values.begin(), values.end()};
}

// Llama 3's scaling, as the divisors of frequencies that files hold.
std::vector<float> Divisors(const ModelConfig& config) {
  RopeConfig plain = config.rope;
  plain.scaling = Scaling::kNone;
  const std::vector<float> scaled = config.rope.InverseFrequencies(config.head_dim, 0);
  const std::vector<float> unscaled = plain.InverseFrequencies(config.head_dim, 0);
  std::vector<float> divisors;
  for (size_t i = 0; i < scaled.size(); ++i) divisors.push_back(unscaled[i] / scaled[i]);
  return divisors;
}

void WriteRope(const ModelConfig& config, Writer& writer) {
  const RopeConfig& rope = config.rope;
  writer.Number("rope.freq_base", rope.theta);
  writer.Integer("rope.dimension_count", rope.RotaryDim(config.head_dim));
  if (config.window_rope) {
    writer.NumberIfKnown("rope.freq_base_swa", config.window_rope->theta, 0);
  }
  switch (rope.scaling) {
    case Scaling::kLinear:
    case Scaling::kYarn:
      writer.Text("rope.scaling.type", rope.scaling == Scaling::kYarn ? "yarn" : "linear");
      writer.Number("rope.scaling.factor", rope.factor);
      if (rope.scaling == Scaling::kLinear) break;
      writer.Integer("rope.scaling.original_context_length", rope.original_max_position_embeddings);
      writer.Number("rope.scaling.yarn_beta_fast", rope.beta_fast);
      writer.Number("rope.scaling.yarn_beta_slow", rope.beta_slow);
      break;
    case Scaling::kLongRope:
      writer.Number("rope.scaling.attn_factor", rope.magnitude);
      writer.Integer("rope.scaling.original_context_length", rope.original_max_position_embeddings);
      writer.Tensor(kGgufShortDivisors, Floats(rope.short_divisors));
      writer.Tensor(kGgufLongDivisors, Floats(rope.long_divisors));
      break;
    case Scaling::kLlama3:
      writer.Tensor(kGgufRopeDivisors, Divisors(config));
      break;
    case Scaling::kNone:
    case Scaling::kDynamic:  // files have no word for it
      break;
  }
}

void WriteExperts(const ExpertsConfig& experts, Writer& writer) {
  writer.IntegerIfKnown("expert_count", experts.count);
  writer.IntegerIfKnown("expert_used_count", experts.chosen);
  writer.IntegerIfKnown("expert_feed_forward_length", experts.intermediate_size);
  writer.IntegerIfKnown("expert_shared_feed_forward_length", experts.shared_intermediate_size);
}

bool IsNear(double a, double b) {
  return std::abs(a - b) <= 1e-6 * std::max(std::abs(a), std::abs(b));
}

// What is rotated, and how fast, up to the model's context.
bool RotatesAlike(const RopeConfig& a, const RopeConfig& b, const ModelConfig& config) {
  if (a.RotaryDim(config.head_dim) != b.RotaryDim(config.head_dim)) return false;
  if (!IsNear(a.magnitude, b.magnitude)) return false;
  for (const int64_t context : {int64_t{0}, config.max_position_embeddings}) {
    const std::vector<float> ours = a.InverseFrequencies(config.head_dim, context);
    const std::vector<float> theirs = b.InverseFrequencies(config.head_dim, context);
    if (!std::equal(ours.begin(), ours.end(), theirs.begin(), theirs.end(), IsNear)) return false;
  }
  return true;
}

}  // namespace

absl::StatusOr<GgufOfConfig> MakeGgufOfConfig(const ModelConfig& config) {
  const auto* const family =
      std::find_if(Architectures().begin(), Architectures().end(),
                   [&](const Architecture& a) { return a.name == config.architecture; });
  if (family == Architectures().end()) {
    return absl::UnimplementedError(
        absl::StrCat("architecture ", config.architecture, " has no name in GGUF files"));
  }
  // Mistral is Llama in files, and Mixtral is Llama with experts.
  const Architecture* named = family;
  if (named->gguf.empty()) {
    named = std::find_if(Architectures().begin(), Architectures().end(),
                         [&](const Architecture& a) { return a.with_experts == family; });
    if (named == Architectures().end()) named = &kLlama;
  }
  if (config.rope.scaling == Scaling::kLlama3 && named->gguf != kLlama.gguf) {
    return absl::UnimplementedError(absl::StrCat("a GGUF file of ", config.architecture,
                                                 " cannot say this model's rotary embedding"));
  }
  Architecture written = *family;
  written.gguf = named->gguf;
  Writer writer(written);
  writer.Integer("vocab_size", config.vocab_size);
  writer.Integer("context_length", config.max_position_embeddings);
  writer.Integer("embedding_length", config.hidden_size);
  writer.Integer("feed_forward_length", config.intermediate_size);
  writer.Integer("block_count", config.num_layers);
  writer.Integer("attention.head_count", config.num_heads);
  writer.Integer("attention.head_count_kv", config.num_kv_heads);
  writer.Integer("attention.key_length", config.head_dim);
  writer.Integer("attention.value_length", config.head_dim);
  writer.Number("attention.layer_norm_rms_epsilon", config.rms_norm_eps);
  WriteRope(config, writer);
  WriteExperts(config.experts, writer);
  writer.NumberIfKnown("attn_logit_softcapping", config.attention_softcap, 0);
  writer.NumberIfKnown("final_logit_softcapping", config.logits_softcap, 0);
  writer.NumberIfKnown("embedding_scale", config.embedding_scale, 1);
  writer.NumberIfKnown("residual_scale", config.residual_scale, 1);
  writer.NumberIfKnown("logit_scale", 1 / config.logits_scale, 0);  // is asked for
  if (config.attention_scale) writer.NumberIfKnown("attention.scale", *config.attention_scale, 0);
  const auto widest = std::max_element(config.windows.begin(), config.windows.end());
  if (widest != config.windows.end()) {
    writer.IntegerIfKnown("attention.sliding_window", *widest);
  } else if (config.post_norms) {  // Gemma's have one where files do not say
    writer.Integer("attention.sliding_window", 0);
  }
  return writer.Take();
}

absl::Status CheckSameMeaning(const ModelConfig& folder, const ModelConfig& file) {
  const auto differs = [&](std::string_view what) {
    return absl::UnimplementedError(absl::StrCat("a GGUF file of ", folder.architecture,
                                                 " cannot say this model's ", std::string(what)));
  };
  ModelConfig want = folder;
  if (want.windows != file.windows) return differs("sliding windows");
  if (want.unrotated != file.unrotated) return differs("layers without rotary embedding");
  if (!RotatesAlike(want.rope, file.rope, want)) return differs("rotary embedding");
  if (want.window_rope.has_value() != file.window_rope.has_value() ||
      (want.window_rope && !RotatesAlike(*want.window_rope, *file.window_rope, want))) {
    return differs("rotary embedding of layers with a window");
  }
  for (const auto& [field, what] :
       {std::pair(&ModelConfig::rms_norm_eps, "rms_norm_eps"),
        std::pair(&ModelConfig::attention_softcap, "soft cap of scores"),
        std::pair(&ModelConfig::logits_softcap, "soft cap of logits"),
        std::pair(&ModelConfig::embedding_scale, "scale of embeddings"),
        std::pair(&ModelConfig::residual_scale, "scale of residuals"),
        std::pair(&ModelConfig::logits_scale, "scale of logits")}) {
    if (!IsNear(want.*field, file.*field)) return differs(what);
    want.*field = file.*field;
  }
  const auto scale = [](const ModelConfig& config) {
    return config.attention_scale.value_or(1 / std::sqrt(static_cast<double>(config.head_dim)));
  };
  if (!IsNear(scale(want), scale(file))) return differs("scale of attention");
  want.attention_scale = file.attention_scale;
  want.rope = file.rope;
  want.window_rope = file.window_rope;
  want.architecture = file.architecture;  // Mistral's are Llama's
  want.norm_offset = file.norm_offset;    // stored gains have it
  want.dtype = file.dtype;
  want.stored = file.stored;
  want.bos_token_id = file.bos_token_id;
  want.eos_token_ids = file.eos_token_ids;
  if (want.experts != file.experts) return differs("experts");
  if (want.vocab_size != file.vocab_size) return differs("size of the vocabulary");
  return want == file ? absl::OkStatus() : differs("shape");
}

}  // namespace skein::model
