// An architecture as data: what config.json says, checked.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "base/dtype.h"
#include "model/config/rope.h"
#include "model/config/stored_types.h"

namespace skein::model {

enum class Activation { kSilu, kGeluTanh };

// A mixture of experts in place of a layer's MLP: gated linear units, of which a router chooses
// some for each row.
struct ExpertsConfig {
  int64_t count = 0;                     // 0: none
  int64_t chosen = 0;                    // for each row
  int64_t intermediate_size = 0;         // of each
  bool normalized = false;               // weights of the chosen are divided by their sum
  int64_t shared_intermediate_size = 0;  // of one more, gated, that all rows have; 0: none
  std::vector<bool> absent;              // layers with an MLP all the same; empty: none
  // Of tensors, behind the layer's: block.gate is the router, block.experts.0.up an expert's.
  std::string block = "mlp";
  std::string gate = "gate_proj";
  std::string up = "up_proj";
  std::string down = "down_proj";

  friend bool operator==(const ExpertsConfig&, const ExpertsConfig&) = default;
};

// A decoder: layers of attention and of a gated MLP, each normalised before it, whose outputs are
// added up. What architectures differ in are fields, so that one builder makes all their Programs.
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

  bool qkv_bias = false;     // of the projections to queries, keys and values
  bool output_bias = false;  // of attention's output
  bool mlp_bias = false;     // of all three of the MLP's matrices
  bool qk_norm = false;      // RMSNorm of each head's query and key, before they are rotated
  bool post_norms = false;   // RMSNorm of what attention and MLP add, too
  // One matrix for queries, keys and values, and one for gates and ups.
  bool joined_projections = false;
  ExpertsConfig experts;
  double norm_offset = 0.0;                   // is added to the stored gains of all norms
  Activation activation = Activation::kSilu;  // of gates
  // Of each layer, to how many positions it attends, its own and those before; 0: to all. Empty:
  // all layers to all.
  std::vector<int64_t> windows;
  std::optional<RopeConfig> window_rope;  // of layers with a window, where it is not `rope`
  std::vector<bool> unrotated;            // layers without rotary embedding; empty: none
  std::optional<double> attention_scale;  // of q . k; absent: 1 / sqrt(head_dim)
  double attention_softcap = 0.0;         // cap * tanh(x / cap) of scaled q . k; 0: none
  double logits_softcap = 0.0;            // the same of logits
  double embedding_scale = 1.0;           // multiplies embeddings,
  double residual_scale = 1.0;            // what attention and MLP add,
  double logits_scale = 1.0;              // and logits

  std::optional<int32_t> bos_token_id;
  std::vector<int32_t> eos_token_ids;  // may be empty

  friend bool operator==(const ModelConfig&, const ModelConfig&) = default;

  bool HasExperts(int64_t layer) const {
    return experts.count > 0 &&
           (experts.absent.empty() || !experts.absent[static_cast<size_t>(layer)]);
  }
  // How many layers do.
  int64_t LayersOfExperts() const;
  int64_t WindowOf(int64_t layer) const {
    return windows.empty() ? 0 : windows[static_cast<size_t>(layer)];
  }
  // The most positions that any layer attends to in a context of so many tokens; 0: one attends to
  // all of them.
  int64_t LargestWindow(int64_t context_length) const;
  // The types of the layers' matrices, and of the output matrix.
  std::vector<TypeShare> LayerTypes() const;
  std::vector<TypeShare> OutputTypes() const;
  // The type of a tensor as plans count with it.
  DType DTypeOf(std::string_view tensor) const;
  // Parameters of the whole model (tied embeddings counted once).
  int64_t ParameterCount() const;
};

// A tensor of a model, under the name that Hugging Face gives it.
struct NamedShape {
  std::string name;
  std::vector<int64_t> shape;
};
// All tensors that a model of this configuration has; a tied output matrix is none.
std::vector<NamedShape> TensorsOf(const ModelConfig& config);

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
// that appears twice is an error. Unimplemented: an architecture, RoPE type, activation or
// quantisation that Skein does not run, with what it does run.
absl::StatusOr<ModelConfig> ParseModelConfig(std::string_view json);
absl::StatusOr<GenerationDefaults> ParseGenerationDefaults(std::string_view json);

// A config.json in the form of transformers 5 that ParseModelConfig reads back as an equal config.
// Takes a LlamaForCausalLM with RoPE as it is or Llama 3's; rope.divisors and stored are left out.
std::string ModelConfigToJson(const ModelConfig& config);

// These take a model: a Hugging Face folder or a GGUF file.

// Reads <folder>/config.json, or the file's metadata; of quantised models the headers of their
// tensors, too. NotFound names the path.
absl::StatusOr<ModelConfig> LoadModelConfig(const std::string& model);
// Reads <folder>/generation_config.json; a missing file, or a GGUF file, gives empty defaults.
absl::StatusOr<GenerationDefaults> LoadGenerationDefaults(const std::string& model);

// The chat template as a Jinja text: chat_template.jinja, or the field of tokenizer_config.json or
// of the metadata; unset when the model has none.
absl::StatusOr<std::optional<std::string>> LoadChatTemplate(const std::string& model);

}  // namespace skein::model
