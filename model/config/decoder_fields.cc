#include "model/config/decoder_fields.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "model/config/quantization_config.h"
#include "nlohmann/json.hpp"

namespace skein::model {
namespace {

using nlohmann::json;

// Limits catch nonsense before it is multiplied or allocated: each is some 10 times above the
// largest published model, and all products of them stay within int64_t.
constexpr int64_t kMaxHidden = 1 << 20;
constexpr int64_t kMaxLayers = 10000;
constexpr int64_t kMaxHeads = 4096;
constexpr int64_t kMaxHeadDim = 1024;
constexpr int64_t kMaxExperts = 4096;
constexpr double kMaxRopeFactor = 1e4;

void ReadShape(FieldReader& reader, const DecoderDefaults& defaults, ModelConfig& config) {
  reader.RequiredInt("vocab_size", 1, kMaxVocab, &config.vocab_size);
  reader.RequiredInt("hidden_size", 1, kMaxHidden, &config.hidden_size);
  reader.RequiredInt("intermediate_size", 1, kMaxIntermediate, &config.intermediate_size);
  reader.RequiredInt("num_hidden_layers", 1, kMaxLayers, &config.num_layers);
  reader.RequiredInt("num_attention_heads", 1, kMaxHeads, &config.num_heads);
  if (!reader.status().ok()) return;
  config.num_kv_heads = config.num_heads;
  reader.Int("num_key_value_heads", 1, config.num_heads, &config.num_kv_heads);
  if (config.num_heads % config.num_kv_heads != 0) {
    reader.FailField("num_key_value_heads",
                     absl::StrCat("must divide num_attention_heads, ", config.num_heads));
  }
  config.head_dim = defaults.head_dim;
  if (config.head_dim == 0) {
    if (!reader.Has("head_dim") && config.hidden_size % config.num_heads != 0) {
      reader.FailField("head_dim",
                       absl::StrCat("it is hidden_size / num_attention_heads, but ",
                                    config.num_heads, " does not divide ", config.hidden_size));
    }
    config.head_dim = config.hidden_size / config.num_heads;
  }
  reader.Int("head_dim", 2, kMaxHeadDim, &config.head_dim);
  if (config.head_dim < 2 || config.head_dim > kMaxHeadDim || config.head_dim % 2 != 0) {
    reader.Fail(absl::InvalidArgumentError(absl::StrCat(
        "head_dim is ", config.head_dim, ": must be even and in [2, ", kMaxHeadDim, "]")));
  }
  reader.RequiredInt("max_position_embeddings", 1, kMaxPositions, &config.max_position_embeddings);
  config.rms_norm_eps = defaults.rms_norm_eps;
  reader.Double("rms_norm_eps", 1e-12, 0.1, &config.rms_norm_eps);
  config.tie_word_embeddings = defaults.tie_word_embeddings;
  reader.Bool("tie_word_embeddings", &config.tie_word_embeddings);
}

// `torch_dtype` of transformers 4, `dtype` of 5.
void ReadDType(FieldReader& reader, ModelConfig& config) {
  for (const char* field : {"torch_dtype", "dtype"}) {
    std::string name;
    reader.String(field, &name);
    if (name.empty()) continue;
    if (name == "float32") {
      config.dtype = DType::kF32;
    } else if (name == "float16") {
      config.dtype = DType::kF16;
    } else if (name == "bfloat16") {
      config.dtype = DType::kBF16;
    } else {
      reader.FailUnimplemented(field, "Skein reads float32, float16 and bfloat16");
    }
  }
}

void ReadTokenIds(FieldReader& reader, ModelConfig& config) {
  std::vector<int32_t> bos;
  reader.TokenIds("bos_token_id", &bos);
  if (bos.size() > 1) reader.FailField("bos_token_id", "must be one token id");
  if (!bos.empty()) config.bos_token_id = bos[0];
  reader.TokenIds("eos_token_id", &config.eos_token_ids);
}

void ReadRotaryShare(FieldReader& reader, const DecoderDefaults& defaults,
                     const ModelConfig& config, RopeConfig& rope) {
  double share = rope.rotary_share;
  reader.Double("partial_rotary_factor", 0.0, 1.0, &share);
  if (share != 1.0 && !defaults.partial_rotary) {
    reader.FailUnimplemented("partial_rotary_factor",
                             "Skein rotates whole heads (1.0) of this architecture");
  }
  rope.rotary_share = share;
  if (rope.RotaryDim(config.head_dim) < 2) {
    reader.FailField("partial_rotary_factor",
                     absl::StrCat("leaves nothing to rotate of heads of ", config.head_dim));
  }
}

// YaRN's logarithm of the factor, which flattens attention over long contexts less.
double YarnMagnitude(double factor, double scale) {
  return factor <= 1.0 ? 1.0 : 0.1 * scale * std::log(factor) + 1.0;
}

void ReadYarn(FieldReader& reader, const ModelConfig& config, RopeConfig& rope) {
  rope.factor = std::max(1.0, static_cast<double>(config.max_position_embeddings) /
                                  static_cast<double>(rope.original_max_position_embeddings));
  reader.Double("factor", 1.0, kMaxRopeFactor, &rope.factor);
  reader.Double("beta_fast", 1e-3, kMaxRopeFactor, &rope.beta_fast);
  reader.Double("beta_slow", 1e-3, kMaxRopeFactor, &rope.beta_slow);
  reader.Bool("truncate", &rope.truncate);
  if (rope.theta <= 1.0) reader.FailField("rope_theta", "must be above 1 for yarn");
  if (rope.beta_fast < rope.beta_slow) {
    reader.FailField("beta_fast", absl::StrCat("must not be below beta_slow, ", rope.beta_slow));
  }
  double mscale = 0.0;
  double mscale_all_dim = 0.0;
  reader.Double("mscale", 0.0, 100.0, &mscale);
  reader.Double("mscale_all_dim", 0.0, 100.0, &mscale_all_dim);
  rope.magnitude =
      mscale != 0.0 && mscale_all_dim != 0.0
          ? YarnMagnitude(rope.factor, mscale) / YarnMagnitude(rope.factor, mscale_all_dim)
          : YarnMagnitude(rope.factor, 1.0);
  reader.Double("attention_factor", 1e-3, 1e3, &rope.magnitude);
}

void ReadLongRope(FieldReader& reader, const ModelConfig& config, RopeConfig& rope) {
  const auto frequencies = static_cast<size_t>(rope.RotaryDim(config.head_dim)) / 2;
  reader.RequiredDoubles("short_factor", frequencies, 1e-3, 1e6, &rope.short_divisors);
  reader.RequiredDoubles("long_factor", frequencies, 1e-3, 1e6, &rope.long_divisors);
  const auto original = static_cast<double>(rope.original_max_position_embeddings);
  rope.factor = static_cast<double>(config.max_position_embeddings) / original;
  reader.Double("factor", 1e-3, kMaxRopeFactor, &rope.factor);
  rope.magnitude = rope.factor <= 1.0 || original <= 1.0
                       ? 1.0
                       : std::sqrt(1.0 + std::log(rope.factor) / std::log(original));
  reader.Double("attention_factor", 1e-3, 1e3, &rope.magnitude);
}

void ReadLlama3(FieldReader& reader, RopeConfig& rope) {
  reader.RequiredDouble("factor", 1.0, kMaxRopeFactor, &rope.factor);
  reader.RequiredDouble("low_freq_factor", 1e-3, kMaxRopeFactor, &rope.low_freq_factor);
  reader.RequiredDouble("high_freq_factor", 1e-3, kMaxRopeFactor, &rope.high_freq_factor);
  if (rope.high_freq_factor <= rope.low_freq_factor) {
    reader.FailField("high_freq_factor",
                     absl::StrCat("must be above low_freq_factor, ", rope.low_freq_factor));
  }
}

}  // namespace

void ReadDecoder(FieldReader& reader, const DecoderDefaults& defaults, ModelConfig& config) {
  reader.Fail(ReadQuantizationConfig(reader.object()).status());
  ReadShape(reader, defaults, config);
  ReadDType(reader, config);
  ReadTokenIds(reader, config);
}

void ReadAttentionBias(FieldReader& reader, ModelConfig& config) {
  reader.Bool("attention_bias", &config.qkv_bias);
  config.output_bias = config.qkv_bias;
}

void ReadBiases(FieldReader& reader, ModelConfig& config) {
  ReadAttentionBias(reader, config);
  reader.Bool("mlp_bias", &config.mlp_bias);
}

void ReadActivation(FieldReader& reader, const char* field, Activation activation,
                    ModelConfig& config) {
  const char* const name = activation == Activation::kSilu ? "silu" : "gelu_pytorch_tanh";
  std::string said = name;
  reader.String(field, &said);
  if (said != name) {
    reader.FailUnimplemented(field, absl::StrCat("Skein runs ", name, " of this architecture"));
  }
  config.activation = activation;
}

void ReadExperts(FieldReader& reader, const ExpertDefaults& defaults, ModelConfig& config) {
  ExpertsConfig& experts = config.experts;
  experts.count = defaults.count;
  experts.chosen = defaults.chosen;
  reader.Int(defaults.count_field, 1, kMaxExperts, &experts.count);
  reader.Int("num_experts_per_tok", 1, experts.count, &experts.chosen);
  if (experts.chosen > experts.count) {
    reader.FailField("num_experts_per_tok",
                     absl::StrCat("must be at most the number of experts, ", experts.count));
  }
}

void SetWindows(int64_t window, absl::FunctionRef<bool(int64_t)> is_sliding, ModelConfig& config) {
  std::vector<int64_t> windows(static_cast<size_t>(config.num_layers));
  for (size_t i = 0; i < windows.size(); ++i) {
    if (is_sliding(static_cast<int64_t>(i))) windows[i] = window;
  }
  if (windows != std::vector<int64_t>(windows.size())) config.windows = std::move(windows);
}

void ReadWindows(FieldReader& reader, int64_t window, absl::FunctionRef<bool(int64_t)> is_sliding,
                 ModelConfig& config) {
  if (!reader.Has("layer_types")) return SetWindows(window, is_sliding, config);
  const json& types = reader.Get("layer_types");
  if (!types.is_array() || static_cast<int64_t>(types.size()) != config.num_layers) {
    reader.FailField("layer_types", absl::StrCat("must be a list of one type for each of ",
                                                 config.num_layers, " layers"));
    return;
  }
  for (const json& type : types) {
    if (type == "sliding_attention" || type == "full_attention") continue;
    reader.FailUnimplemented("layer_types", "Skein runs 'full_attention' and 'sliding_attention'");
    return;
  }
  const auto slides = [&](int64_t layer) {
    return types[static_cast<size_t>(layer)] == "sliding_attention";
  };
  SetWindows(window, slides, config);
}

void ReadRope(FieldReader& reader, const DecoderDefaults& defaults, ModelConfig& config) {
  config.rope.theta = defaults.rope_theta;
  reader.Double("rope_theta", 1.0, kMaxTheta, &config.rope.theta);
  ReadRotaryShare(reader, defaults, config, config.rope);
  int64_t original_context = defaults.original_context;
  reader.Int("original_max_position_embeddings", 1, kMaxPositions, &original_context);
  const RopeConfig outside = config.rope;
  std::optional<RopeConfig> first;
  for (const char* field : {"rope_scaling", "rope_parameters"}) {
    if (!reader.Has(field) || !reader.status().ok()) continue;
    config.rope = outside;
    reader.Object(field, [&](FieldReader& object) {
      ReadRopeObject(object, defaults, config, original_context, config.rope);
    });
    if (reader.Has("rope_theta") && config.rope.theta != outside.theta) {
      reader.Fail(absl::InvalidArgumentError(absl::StrCat(
          "rope_theta is ", outside.theta, ", but ", field, ".rope_theta is ", config.rope.theta)));
    }
    if (first && *first != config.rope) {
      reader.Fail(
          absl::InvalidArgumentError("rope_scaling and rope_parameters contradict each other"));
    }
    first = config.rope;
  }
  // These are there to serve more than the model was trained with. Files with YaRN may tell that
  // length or the longer one.
  using Scaling = RopeConfig::Scaling;
  if (config.rope.scaling == Scaling::kDynamic ||
      (config.rope.scaling == Scaling::kYarn &&
       config.rope.original_max_position_embeddings == config.max_position_embeddings)) {
    config.max_position_embeddings = std::min(
        kMaxPositions, static_cast<int64_t>(config.rope.factor *
                                            static_cast<double>(config.max_position_embeddings)));
  }
}

void ReadRopeObject(FieldReader& object, const DecoderDefaults& defaults, const ModelConfig& config,
                    int64_t original_context, RopeConfig& rope) {
  object.Double("rope_theta", 1.0, kMaxTheta, &rope.theta);
  ReadRotaryShare(object, defaults, config, rope);
  std::string type = "default";
  const char* type_field = object.Has("rope_type") ? "rope_type" : "type";  // `type`: before 4.43
  object.String(type_field, &type);
  for (const auto& item : object.object().items()) {
    if (item.value().is_object()) {
      object.FailUnimplemented(item.key().c_str(),
                               "Skein rotates all layers of this architecture in one way");
    }
  }
  if (!object.status().ok()) return;
  using Scaling = RopeConfig::Scaling;
  if (type == "yarn" || type == "longrope" || type == "su" || type == "llama3") {
    rope.original_max_position_embeddings = config.max_position_embeddings;
    object.Int("original_max_position_embeddings", 1, kMaxPositions,
               &rope.original_max_position_embeddings);
    if (original_context != 0) rope.original_max_position_embeddings = original_context;
  }
  if (type == "linear") {
    rope.scaling = Scaling::kLinear;
    object.RequiredDouble("factor", 1.0, kMaxRopeFactor, &rope.factor);
  } else if (type == "dynamic") {
    rope.scaling = Scaling::kDynamic;
    object.RequiredDouble("factor", 1.0, kMaxRopeFactor, &rope.factor);
    rope.original_max_position_embeddings = config.max_position_embeddings;
    if (rope.RotaryDim(config.head_dim) < 4) {
      object.FailField(type_field, "needs heads of which 4 dimensions or more are rotated");
    }
  } else if (type == "yarn" && !defaults.yarn_is_longrope) {
    rope.scaling = Scaling::kYarn;
    ReadYarn(object, config, rope);
  } else if (type == "longrope" || type == "su" || type == "yarn") {  // `su`: Phi-3 before 4.42
    rope.scaling = Scaling::kLongRope;
    ReadLongRope(object, config, rope);
  } else if (type == "llama3") {
    rope.scaling = Scaling::kLlama3;
    ReadLlama3(object, rope);
  } else if (type != "default") {
    object.FailUnimplemented(
        type_field, "Skein runs 'default', 'linear', 'dynamic', 'yarn', 'longrope' and 'llama3'");
  }
}

}  // namespace skein::model
