// An architecture as data: what config.json says, checked.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "base/dtype.h"
#include "model/config/stored_types.h"

namespace skein::model {

// Rotary position embedding, as in Hugging Face's config.json (both the `rope_theta` +
// `rope_scaling` form of transformers 4 and the `rope_parameters` form of transformers 5).
struct RopeConfig {
  enum class Scaling { kNone, kLlama3 };
  double theta = 10000.0;
  Scaling scaling = Scaling::kNone;
  // Llama-3 scaling only.
  double factor = 1.0;
  double low_freq_factor = 1.0;
  double high_freq_factor = 4.0;
  int64_t original_max_position_embeddings = 8192;
  // What frequencies are divided by, [head_dim / 2], as GGUF files tell a scaling; empty: by 1.
  std::vector<float> divisors;

  friend bool operator==(const RopeConfig&, const RopeConfig&) = default;
};

struct ModelConfig {
  std::string architecture;  // "LlamaForCausalLM"
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;
  int64_t num_layers = 0;
  int64_t num_heads = 0;
  int64_t num_kv_heads = 0;  // divides num_heads
  int64_t head_dim = 0;      // even
  int64_t max_position_embeddings = 0;
  double rms_norm_eps = 1e-5;
  bool tie_word_embeddings = false;
  DType dtype = DType::kBF16;  // of the stored weights, as the file says; tensors decide
  StoredTypes stored;          // where weights are quantised, what matrices are stored in
  RopeConfig rope;
  std::optional<int32_t> bos_token_id;
  std::vector<int32_t> eos_token_ids;  // may be empty

  friend bool operator==(const ModelConfig&, const ModelConfig&) = default;

  // The inverse frequencies of the rotary embedding, [head_dim / 2], scaling applied. Computed in
  // double and rounded once.
  std::vector<float> RopeInverseFrequencies() const;
  // The type of a tensor as plans count with it.
  DType DTypeOf(std::string_view tensor) const;
  // Parameters of the whole model (tied embeddings counted once).
  int64_t ParameterCount() const;
};

// Defaults of generation_config.json; absent fields are unset.
struct GenerationDefaults {
  std::optional<double> temperature;
  std::optional<int64_t> top_k;
  std::optional<double> top_p;
  std::optional<double> min_p;
  std::optional<double> typical_p;
  std::optional<double> repetition_penalty;
  std::optional<bool> do_sample;
  std::vector<int32_t> bos_token_ids;  // unused: prompts begin as the tokenizer says
  std::vector<int32_t> eos_token_ids;

  friend bool operator==(const GenerationDefaults&, const GenerationDefaults&) = default;
};

// Fields that transformers always writes are required. Other absent fields get its defaults, except
// for bos and eos, which stay unset. Errors name the field, its value and what is allowed; a key
// that appears twice is an error. Unimplemented: an architecture, RoPE type, activation, bias or
// quantisation that Skein does not run, with what it does run.
absl::StatusOr<ModelConfig> ParseModelConfig(std::string_view json);
absl::StatusOr<GenerationDefaults> ParseGenerationDefaults(std::string_view json);

// A config.json in the form of transformers 5 that ParseModelConfig reads back as an equal config,
// but for rope.divisors and stored, which that form lacks.
std::string ModelConfigToJson(const ModelConfig& config);

// These take a model: a Hugging Face folder or a GGUF file.

// Reads <folder>/config.json, or the file's metadata. NotFound names the path.
absl::StatusOr<ModelConfig> LoadModelConfig(const std::string& model);
// Reads <folder>/generation_config.json; a missing file, or a GGUF file, gives empty defaults.
absl::StatusOr<GenerationDefaults> LoadGenerationDefaults(const std::string& model);

// The chat template as a Jinja text: chat_template.jinja, or the field of tokenizer_config.json or
// of the metadata; unset when the model has none.
absl::StatusOr<std::optional<std::string>> LoadChatTemplate(const std::string& model);

}  // namespace skein::model
