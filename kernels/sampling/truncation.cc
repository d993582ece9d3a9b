#include "kernels/sampling/truncation.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace skein::kernels {
namespace {

constexpr double kLn2 = 0.69314718055994531;

// |-ln p - entropy| is |logit - expected logit| / temperature: the order needs neither logarithms
// nor the temperature.
void KeepTypical(absl::Span<const float> logits, double typical_p,
                 std::vector<Candidate>& candidates) {
  // Among them infinite logits, which have no mean.
  std::erase_if(candidates, [](const Candidate& c) { return c.weight == 0; });
  const double sum = SumOfWeights(candidates);
  double mean = 0;
  for (const Candidate& c : candidates) mean += c.weight * logits[c.id];
  mean /= sum;
  for (Candidate& c : candidates) {
    c.key = std::bit_cast<uint32_t>(static_cast<float>(std::abs(logits[c.id] - mean)));
  }
  KeepUpTo(AtWeight(candidates, typical_p * sum), candidates);
  for (Candidate& c : candidates) c.key = DescendingKey(logits[c.id]);
}

// Within 1e-13 of it for x > 0, with the same bits whatever the C library: mu lives on in later
// draws, perhaps on another machine.
double Log2(double x) {
  int exponent;
  double m = std::frexp(x, &exponent);
  if (m < 0.70710678118654752) {
    m *= 2;
    --exponent;
  }
  // ln m = 2 artanh s, with |s| <= 0.172.
  const double s = (m - 1) / (m + 1);
  double series = 0;
  for (int odd = 17; odd > 0; odd -= 2) series = series * (s * s) + 1.0 / odd;
  return exponent + 2 * s * series / kLn2;
}

}  // namespace

void Truncate(absl::Span<const float> logits, const SamplingParams& params,
              std::vector<Candidate>& candidates) {
  if (params.typical_p < 1.0f) KeepTypical(logits, params.typical_p, candidates);
  if (params.top_p < 1.0f) {
    KeepUpTo(AtWeight(candidates, double{params.top_p} * SumOfWeights(candidates)), candidates);
  }
  if (params.min_p > 0.0f) {
    double largest = 0;
    for (const Candidate& c : candidates) largest = std::max(largest, c.weight);
    std::erase_if(candidates,
                  [&](const Candidate& c) { return c.weight < double{params.min_p} * largest; });
  }
}

void KeepUnsurprising(double mu, std::vector<Candidate>& candidates) {
  const double least = mu > 0 ? Exp(-mu * kLn2) * SumOfWeights(candidates) : 2;
  // The most likely token's weight is 1.
  if (least > 1) return KeepFirst(1, candidates);
  std::erase_if(candidates, [&](const Candidate& c) { return c.weight < least; });
}

float NextMu(const SamplingParams& params, float mu, const Candidate& chosen, double sum) {
  const double surprise = Log2(sum) - Log2(chosen.weight);
  return static_cast<float>(mu - params.mirostat_eta * (surprise - params.mirostat_tau));
}

}  // namespace skein::kernels
