// The fields of config.json that families of decoders share; each family's file in architectures/
// says which of them it has.
#pragma once

#include <cstdint>

#include "absl/functional/function_ref.h"
#include "model/config/field_reader.h"
#include "model/config/model_config.h"

namespace skein::model {

inline constexpr int64_t kMaxPositions = 1 << 27;
inline constexpr double kMaxTheta = 1e12;
inline constexpr int64_t kMaxVocab = 1 << 24;
inline constexpr int64_t kMaxIntermediate = 1 << 22;

// In what transformers' defaults and abilities of a family differ.
struct DecoderDefaults {
  double rms_norm_eps = 1e-6;
  double rope_theta = 10000.0;
  bool tie_word_embeddings = false;
  int64_t head_dim = 0;         // 0: hidden_size / num_attention_heads
  bool partial_rotary = false;  // whether a part of a head may be rotated
  // Of original_max_position_embeddings, which counts before what rope_scaling says; 0: none.
  int64_t original_context = 0;
  bool yarn_is_longrope = false;  // in files before 2025
};

// Reads shape, dtype and end tokens, and refuses quantised weights. Callers may read on after an
// error; values mean nothing then.
void ReadDecoder(FieldReader& reader, const DecoderDefaults& defaults, ModelConfig& config);

// attention_bias is of the projections to and from attention, mlp_bias of the MLP's three.
void ReadAttentionBias(FieldReader& reader, ModelConfig& config);
void ReadBiases(FieldReader& reader, ModelConfig& config);

// `field` must name the activation, or be absent.
void ReadActivation(FieldReader& reader, const char* field, Activation activation,
                    ModelConfig& config);

// Layers for which it is true have this window, the others attend to everything; 0: none.
void SetWindows(int64_t window, absl::FunctionRef<bool(int64_t)> is_sliding, ModelConfig& config);
// The same, but where there is a field layer_types that tells which layers do.
void ReadWindows(FieldReader& reader, int64_t window, absl::FunctionRef<bool(int64_t)> is_sliding,
                 ModelConfig& config);

struct ExpertDefaults {
  const char* count_field = "num_experts";
  int64_t count = 0;
  int64_t chosen = 0;
  int64_t intermediate_size = 0;
};
// The numbers of experts, and of those of a row.
void ReadExperts(FieldReader& reader, const ExpertDefaults& defaults, ModelConfig& config);

// rope_theta, rope_scaling and rope_parameters.
void ReadRope(FieldReader& reader, const DecoderDefaults& defaults, ModelConfig& config);
// One object of those, on top of what `rope` says; `original_context` is what its surroundings say
// for original_max_position_embeddings, 0 for nothing.
void ReadRopeObject(FieldReader& object, const DecoderDefaults& defaults, const ModelConfig& config,
                    int64_t original_context, RopeConfig& rope);

}  // namespace skein::model
