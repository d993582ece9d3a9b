// config.json to ModelConfig and back.
#include <string>

#include "absl/strings/str_cat.h"
#include "base/json/json.h"
#include "base/status_macros.h"
#include "base/status_util.h"
#include "model/config/architectures/architecture.h"
#include "model/config/decoder_fields.h"
#include "model/config/field_reader.h"
#include "model/config/model_config.h"

namespace skein::model {
namespace {

using nlohmann::json;

// The architecture that config.json names; null behind an error.
const Architecture* FindArchitecture(FieldReader& reader) {
  std::string name;
  std::string type;
  if (reader.Has("architectures")) {
    const json& names = reader.Get("architectures");
    if (!names.is_array() || names.size() != 1 || !names[0].is_string()) {
      reader.FailField("architectures", "must be a list of one name");
      return nullptr;
    }
    name = names[0].get<std::string>();
  } else {
    reader.String("model_type", &type);
    if (type.empty()) {
      reader.FailField("architectures", "must be a list of one name");
      return nullptr;
    }
  }
  for (const Architecture& architecture : Architectures()) {
    if (name.empty() ? type == architecture.model_type : name == architecture.name) {
      return &architecture;
    }
  }
  reader.FailUnimplemented(name.empty() ? "model_type" : "architectures",
                           absl::StrCat("Skein runs ", ArchitectureNames()));
  return nullptr;
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
  const Architecture* const architecture = FindArchitecture(reader);
  if (architecture != nullptr) {
    config.architecture = std::string(architecture->name);
    architecture->read(reader, config);
  }
  SKEIN_RETURN_IF_ERROR(reader.status());
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
      {"attention_bias", config.qkv_bias},
      {"mlp_bias", config.mlp_bias},
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
