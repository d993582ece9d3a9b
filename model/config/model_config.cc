#include "model/config/model_config.h"

#include <cmath>
#include <numbers>

namespace skein::model {

std::vector<float> ModelConfig::RopeInverseFrequencies() const {
  std::vector<float> frequencies(static_cast<size_t>(head_dim / 2));
  for (size_t i = 0; i < frequencies.size(); ++i) {
    const double exponent = 2.0 * static_cast<double>(i) / static_cast<double>(head_dim);
    double frequency = std::pow(rope.theta, -exponent);
    if (rope.scaling == RopeConfig::Scaling::kLlama3) {
      // Turns within the context that the model was first trained with: many (high frequencies)
      // stay, few (low ones) are stretched by `factor`, and between them both are blended.
      const double turns = static_cast<double>(rope.original_max_position_embeddings) * frequency /
                           (2.0 * std::numbers::pi);
      const double stretched = frequency / rope.factor;
      if (turns < rope.low_freq_factor) {
        frequency = stretched;
      } else if (turns <= rope.high_freq_factor) {
        const double smooth =
            (turns - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor);
        frequency = (1.0 - smooth) * stretched + smooth * frequency;
      }
    }
    if (!rope.divisors.empty()) frequency /= static_cast<double>(rope.divisors[i]);
    frequencies[i] = static_cast<float>(frequency);
  }
  return frequencies;
}

DType ModelConfig::DTypeOf(std::string_view tensor) const {
  const auto found = stored.matrices.find(tensor);
  return found == stored.matrices.end() ? dtype : found->second;
}

int64_t ModelConfig::ParameterCount() const {
  const int64_t query = num_heads * head_dim;
  const int64_t kv = num_kv_heads * head_dim;
  const int64_t attention = hidden_size * (query + 2 * kv) + query * hidden_size;
  const int64_t mlp = 3 * hidden_size * intermediate_size;
  const int64_t norms = 2 * hidden_size;
  const int64_t embeddings = (tie_word_embeddings ? 1 : 2) * vocab_size * hidden_size;
  return embeddings + num_layers * (attention + mlp + norms) + hidden_size;
}

}  // namespace skein::model
