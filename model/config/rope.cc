#include "model/config/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace skein::model {
namespace {

// Turns within the context that the model was first trained with: many (high frequencies) stay, few
// (low ones) are stretched by `factor`, and between them both are blended.
double Llama3(const RopeConfig& rope, double frequency) {
  const double turns = static_cast<double>(rope.original_max_position_embeddings) * frequency /
                       (2.0 * std::numbers::pi);
  const double stretched = frequency / rope.factor;
  if (turns < rope.low_freq_factor) return stretched;
  if (turns > rope.high_freq_factor) return frequency;
  const double smooth =
      (turns - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor);
  return (1.0 - smooth) * stretched + smooth * frequency;
}

// The (fractional) index of the frequency that makes so many turns in the original context.
double IndexOfTurns(const RopeConfig& rope, double turns, double dim) {
  const auto context = static_cast<double>(rope.original_max_position_embeddings);
  return dim * std::log(context / (turns * 2.0 * std::numbers::pi)) / (2.0 * std::log(rope.theta));
}

// Frequencies before the first index stay, those behind the last one are stretched.
double Yarn(const RopeConfig& rope, double frequency, double i, double dim) {
  double first = IndexOfTurns(rope, rope.beta_fast, dim);
  double last = IndexOfTurns(rope, rope.beta_slow, dim);
  if (rope.truncate) {
    first = std::floor(first);
    last = std::ceil(last);
  }
  first = std::max(first, 0.0);
  last = std::min(last, dim - 1.0);
  if (first == last) last += 0.001;
  const double stretch = std::clamp((i - first) / (last - first), 0.0, 1.0);
  return frequency / rope.factor * stretch + frequency * (1.0 - stretch);
}

}  // namespace

int64_t RopeConfig::RotaryDim(int64_t head_dim) const {
  return static_cast<int64_t>(static_cast<double>(head_dim) * rotary_share) / 2 * 2;
}

std::vector<float> RopeConfig::InverseFrequencies(int64_t head_dim, int64_t context) const {
  const auto dim = static_cast<double>(RotaryDim(head_dim));
  const bool is_long = context > original_max_position_embeddings;
  double base = theta;
  if (scaling == Scaling::kDynamic && is_long) {
    const double lengths =
        static_cast<double>(context) / static_cast<double>(original_max_position_embeddings);
    base *= std::pow(factor * lengths - (factor - 1.0), dim / (dim - 2.0));
  }
  std::vector<float> frequencies(static_cast<size_t>(dim) / 2);
  for (size_t i = 0; i < frequencies.size(); ++i) {
    double frequency = std::pow(base, -2.0 * static_cast<double>(i) / dim);
    switch (scaling) {
      case Scaling::kNone:
      case Scaling::kDynamic:
        break;
      case Scaling::kLinear:
        frequency /= factor;
        break;
      case Scaling::kYarn:
        frequency = Yarn(*this, frequency, static_cast<double>(i), dim);
        break;
      case Scaling::kLongRope:
        frequency /= (is_long ? long_divisors : short_divisors)[i];
        break;
      case Scaling::kLlama3:
        frequency = Llama3(*this, frequency);
        break;
    }
    if (!divisors.empty()) frequency /= static_cast<double>(divisors[i]);
    frequencies[i] = static_cast<float>(frequency);
  }
  return frequencies;
}

}  // namespace skein::model
