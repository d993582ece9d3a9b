// Rotary position embedding: what config.json says of it, and the frequencies that follow.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace skein::model {

// As in Hugging Face's config.json (both the `rope_theta` + `rope_scaling` form of transformers 4
// and the `rope_parameters` form of transformers 5).
struct RopeConfig {
  enum class Scaling {
    kNone,
    kLinear,    // all frequencies by the factor
    kDynamic,   // theta by the served context ("NTK-aware")
    kYarn,      // Peng et al., "YaRN" (2023)
    kLongRope,  // Ding et al., "LongRoPE" (2024): two lists of divisors
    kLlama3,
  };
  double theta = 10000.0;
  Scaling scaling = Scaling::kNone;
  double factor = 1.0;
  double low_freq_factor = 1.0;  // kLlama3, as the next
  double high_freq_factor = 4.0;
  int64_t original_max_position_embeddings = 8192;  // not of kLinear
  // Of a head's dimensions, the first ones are rotated: so large a share.
  double rotary_share = 1.0;
  double beta_fast = 32.0;  // kYarn, as the next two
  double beta_slow = 1.0;
  bool truncate = true;
  // What cosines and sines are multiplied by. kYarn and kLongRope.
  double magnitude = 1.0;
  std::vector<double> short_divisors;  // kLongRope, of each frequency, as the next
  std::vector<double> long_divisors;
  // What frequencies are divided by besides, as GGUF files tell a scaling; empty: by 1.
  std::vector<float> divisors;

  friend bool operator==(const RopeConfig&, const RopeConfig&) = default;

  // Even; the dimensions of a head that are rotated.
  int64_t RotaryDim(int64_t head_dim) const;
  // The inverse frequencies, [RotaryDim / 2], scaling applied. Computed in double and rounded once.
  // Scalings that depend on the length take the served context for it, so that an answer's tokens
  // and what later prompts reuse of them are rotated alike; 0: none is served beyond the original.
  std::vector<float> InverseFrequencies(int64_t head_dim, int64_t context) const;
};

}  // namespace skein::model
