// config.json to ModelConfig and back.
#include <string>

#include "absl/strings/str_cat.h"
#include "base/json/json.h"
#include "base/status_macros.h"
#include "base/status_util.h"
#include "model/config/field_reader.h"
#include "model/config/model_config.h"

namespace skein::model {
namespace {

using nlohmann::json;

// Limits catch nonsense before it is multiplied or allocated: each is some 10 times above the
// largest published model, and all products of them stay within int64_t.
constexpr int64_t kMaxVocab = 1 << 24;
constexpr int64_t kMaxHidden = 1 << 20;
constexpr int64_t kMaxIntermediate = 1 << 22;
constexpr int64_t kMaxLayers = 10000;
constexpr int64_t kMaxHeads = 4096;
constexpr int64_t kMaxHeadDim = 1024;
constexpr int64_t kMaxPositions = 1 << 27;
constexpr double kMaxTheta = 1e12;
constexpr double kMaxRopeFactor = 1e4;

void ReadArchitecture(FieldReader& reader, ModelConfig& config) {
  constexpr char kSupported[] = "Skein runs LlamaForCausalLM";
  if (reader.Has("architectures")) {
    const json& names = reader.Get("architectures");
    if (!names.is_array() || names.size() != 1 || !names[0].is_string()) {
      reader.FailField("architectures", "must be a list of one name");
    } else if (names[0] != "LlamaForCausalLM") {
      reader.FailUnimplemented("architectures", kSupported);
    }
  } else {
    std::string type;
    reader.String("model_type", &type);
    if (type.empty()) {
      reader.FailField("architectures", "must be a list of one name");
    } else if (type != "llama") {
      reader.FailUnimplemented("model_type", kSupported);
    }
  }
  config.architecture = "LlamaForCausalLM";
}

// What would change the computation and is not computed.
void RefuseUnsupported(FieldReader& reader) {
  for (const char* field : {"attention_bias", "mlp_bias"}) {
    bool bias = false;
    reader.Bool(field, &bias);
    if (bias) reader.FailUnimplemented(field, "Skein runs models without these biases");
  }
  std::string activation = "silu";
  reader.String("hidden_act", &activation);
  if (activation != "silu") reader.FailUnimplemented("hidden_act", "Skein runs silu");
  for (const char* field : {"quantization_config", "compression_config"}) {
    if (reader.Has(field)) {
      reader.FailUnimplemented(field, "use the unquantised model, in F32, F16 or BF16");
    }
  }
  if (reader.Has("sliding_window")) {
    reader.FailUnimplemented("sliding_window", "Skein runs full attention");
  }
  double rotary_share = 1.0;
  reader.Double("partial_rotary_factor", 0.0, 1.0, &rotary_share);
  if (rotary_share != 1.0) {
    reader.FailUnimplemented("partial_rotary_factor", "Skein rotates whole heads (1.0)");
  }
}

void ReadShape(FieldReader& reader, ModelConfig& config) {
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
  if (!reader.Has("head_dim") && config.hidden_size % config.num_heads != 0) {
    reader.FailField("head_dim",
                     absl::StrCat("it is hidden_size / num_attention_heads, but ", config.num_heads,
                                  " does not divide ", config.hidden_size));
  }
  config.head_dim = config.hidden_size / config.num_heads;
  reader.Int("head_dim", 2, kMaxHeadDim, &config.head_dim);
  if (config.head_dim < 2 || config.head_dim > kMaxHeadDim || config.head_dim % 2 != 0) {
    reader.Fail(absl::InvalidArgumentError(absl::StrCat(
        "head_dim is ", config.head_dim, ": must be even and in [2, ", kMaxHeadDim, "]")));
  }
  reader.RequiredInt("max_position_embeddings", 1, kMaxPositions, &config.max_position_embeddings);
  config.rms_norm_eps = 1e-6;  // transformers' default for Llama
  reader.Double("rms_norm_eps", 1e-12, 0.1, &config.rms_norm_eps);
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

// The object of either form; `theta` is what its surroundings say.
absl::StatusOr<RopeConfig> ReadRopeObject(const char* field, const json& object, double theta) {
  if (!object.is_object()) {
    return absl::InvalidArgumentError(absl::StrCat(field, " must be an object"));
  }
  FieldReader reader(object, absl::StrCat(field, "."));
  RopeConfig rope;
  rope.theta = theta;
  reader.Double("rope_theta", 1.0, kMaxTheta, &rope.theta);
  double rotary_share = 1.0;
  reader.Double("partial_rotary_factor", 0.0, 1.0, &rotary_share);
  if (rotary_share != 1.0) {
    reader.FailUnimplemented("partial_rotary_factor", "Skein rotates whole heads (1.0)");
  }
  for (const auto& item : object.items()) {
    if (item.value().is_object()) {
      reader.FailUnimplemented(item.key().c_str(), "Skein rotates all layers in one way");
    }
  }
  std::string type = "default";
  const char* type_field = reader.Has("rope_type") ? "rope_type" : "type";  // `type`: before 4.43
  reader.String(type_field, &type);
  if (type == "llama3") {
    rope.scaling = RopeConfig::Scaling::kLlama3;
    reader.RequiredDouble("factor", 1.0, kMaxRopeFactor, &rope.factor);
    reader.RequiredDouble("low_freq_factor", 1e-3, kMaxRopeFactor, &rope.low_freq_factor);
    reader.RequiredDouble("high_freq_factor", 1e-3, kMaxRopeFactor, &rope.high_freq_factor);
    reader.RequiredInt("original_max_position_embeddings", 1, kMaxPositions,
                       &rope.original_max_position_embeddings);
    if (rope.high_freq_factor <= rope.low_freq_factor) {
      reader.FailField("high_freq_factor",
                       absl::StrCat("must be above low_freq_factor, ", rope.low_freq_factor));
    }
  } else if (type != "default") {
    reader.FailUnimplemented(type_field, "Skein runs 'default' and 'llama3'");
  }
  SKEIN_RETURN_IF_ERROR(reader.status());
  return rope;
}

// transformers 4: `rope_theta` and `rope_scaling`; 5: `rope_parameters`, which holds both. A file
// with both forms must mean the same.
absl::Status ReadRope(FieldReader& reader, ModelConfig& config) {
  reader.Double("rope_theta", 1.0, kMaxTheta, &config.rope.theta);
  SKEIN_RETURN_IF_ERROR(reader.status());
  const double theta = config.rope.theta;
  std::optional<RopeConfig> first;
  for (const char* field : {"rope_scaling", "rope_parameters"}) {
    if (!reader.Has(field)) continue;
    SKEIN_ASSIGN_OR_RETURN(config.rope, ReadRopeObject(field, reader.Get(field), theta));
    if (reader.Has("rope_theta") && config.rope.theta != theta) {
      return absl::InvalidArgumentError(absl::StrCat("rope_theta is ", theta, ", but ", field,
                                                     ".rope_theta is ", config.rope.theta));
    }
    if (first && *first != config.rope) {
      return absl::InvalidArgumentError("rope_scaling and rope_parameters contradict each other");
    }
    first = config.rope;
  }
  return absl::OkStatus();
}

std::string DTypeField(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "float32";
    case DType::kF16:
      return "float16";
    case DType::kBF16:
      return "bfloat16";
    default:
      break;
  }
  return "";
}

}  // namespace

absl::StatusOr<ModelConfig> ParseModelConfig(std::string_view text) {
  SKEIN_ASSIGN_OR_RETURN(const json object, ParseJson(text));
  if (!object.is_object()) return absl::InvalidArgumentError("must be a JSON object");
  FieldReader reader(object);
  ModelConfig config;
  ReadArchitecture(reader, config);
  RefuseUnsupported(reader);
  ReadShape(reader, config);
  ReadDType(reader, config);
  ReadTokenIds(reader, config);
  SKEIN_RETURN_IF_ERROR(reader.status());
  SKEIN_RETURN_IF_ERROR(ReadRope(reader, config));
  return config;
}

std::string ModelConfigToJson(const ModelConfig& config) {
  json rope = {{"rope_theta", config.rope.theta}, {"rope_type", "default"}};
  if (config.rope.scaling == RopeConfig::Scaling::kLlama3) {
    rope["rope_type"] = "llama3";
    rope["factor"] = config.rope.factor;
    rope["low_freq_factor"] = config.rope.low_freq_factor;
    rope["high_freq_factor"] = config.rope.high_freq_factor;
    rope["original_max_position_embeddings"] = config.rope.original_max_position_embeddings;
  }
  json object = {
      {"architectures", {config.architecture}},
      {"model_type", "llama"},
      {"vocab_size", config.vocab_size},
      {"hidden_size", config.hidden_size},
      {"intermediate_size", config.intermediate_size},
      {"num_hidden_layers", config.num_layers},
      {"num_attention_heads", config.num_heads},
      {"num_key_value_heads", config.num_kv_heads},
      {"head_dim", config.head_dim},
      {"max_position_embeddings", config.max_position_embeddings},
      {"rms_norm_eps", config.rms_norm_eps},
      {"tie_word_embeddings", config.tie_word_embeddings},
      {"dtype", DTypeField(config.dtype)},
      {"hidden_act", "silu"},
      {"rope_parameters", rope},
      {"eos_token_id", config.eos_token_ids},
  };
  if (config.bos_token_id) object["bos_token_id"] = *config.bos_token_id;
  return object.dump(2) + "\n";
}

absl::StatusOr<GenerationDefaults> ParseGenerationDefaults(std::string_view text) {
  SKEIN_ASSIGN_OR_RETURN(const json object, ParseJson(text));
  if (!object.is_object()) return absl::InvalidArgumentError("must be a JSON object");
  FieldReader reader(object);
  GenerationDefaults defaults;
  reader.OptionalDouble("temperature", 0.0, 1e4, &defaults.temperature);
  reader.OptionalInt("top_k", 0, kMaxVocab, &defaults.top_k);
  reader.OptionalDouble("top_p", 0.0, 1.0, &defaults.top_p);
  reader.OptionalDouble("min_p", 0.0, 1.0, &defaults.min_p);
  reader.OptionalDouble("typical_p", 0.0, 1.0, &defaults.typical_p);
  reader.OptionalDouble("repetition_penalty", 0.01, 100, &defaults.repetition_penalty);
  if (reader.Has("do_sample")) reader.Bool("do_sample", &defaults.do_sample.emplace());
  reader.TokenIds("bos_token_id", &defaults.bos_token_ids);
  reader.TokenIds("eos_token_id", &defaults.eos_token_ids);
  SKEIN_RETURN_IF_ERROR(reader.status());
  return defaults;
}

}  // namespace skein::model
