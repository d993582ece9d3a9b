#include "kernels/sampling/truncation.h"

#include <algorithm>
#include <cmath>

namespace skein::kernels {
namespace {

constexpr double kLn2 = 0.69314718055994531;

// Returns the logarithm within 1e-13 of it for x > 0, with the same bits whatever the C library: mu
// lives on in later draws, perhaps on another machine.
double Log2(double x) {
  int exponent;
  double m = std::frexp(x, &exponent);
  if (m < 0.70710678118654752) {
    m *= 2;
    --exponent;
  }
  // ln m is 2 artanh s, with |s| <= 0.172.
  const double s = (m - 1) / (m + 1);
  double series = 0;
  for (int odd = 17; odd > 0; odd -= 2) series = series * (s * s) + 1.0 / odd;
  return exponent + 2 * s * series / kLn2;
}

void Truncate(const serving::SamplingParams& params, Candidates& candidates) {
  if (params.typical_p < 1.0f) candidates.KeepTypical(params.typical_p);
  if (params.top_p < 1.0f) {
    candidates.KeepUpTo(candidates.AtWeight(double{params.top_p} * candidates.SumOfWeights()));
  }
  if (params.min_p > 0.0f) {
    double largest = 0;
    for (const Candidate& c : candidates.list()) largest = std::max(largest, c.weight);
    candidates.KeepHeavy(double{params.min_p} * largest);
  }
}

void KeepUnsurprising(double mu, Candidates& candidates) {
  const double least = mu > 0 ? Exp(-mu * kLn2) * candidates.SumOfWeights() : 2;
  // The most likely token's weight is 1.
  if (least > 1) return candidates.KeepFirst(1);
  candidates.KeepHeavy(least);
}

}  // namespace

void Restrict(const serving::SamplingParams& params, float mu, Candidates& candidates) {
  if (params.mirostat_tau > 0.0f) {
    KeepUnsurprising(mu, candidates);
  } else {
    Truncate(params, candidates);
  }
}

void RestrictRow(const serving::SamplingParams& params, absl::Span<const float> logits,
                 float largest, float mu, Candidates& candidates) {
  if (params.top_k > 0 && params.mirostat_tau == 0.0f) {
    candidates.AssignFirst(logits, 0, params.top_k);
    candidates.Weigh(largest, params.temperature);
  } else {
    candidates.Assign(logits, largest, params.temperature);
  }
  Restrict(params, mu, candidates);
}

float NextMu(const serving::SamplingParams& params, float mu, const Candidate& chosen, double sum) {
  const double surprise = Log2(sum) - Log2(chosen.weight);
  return static_cast<float>(mu - params.mirostat_eta * (surprise - params.mirostat_tau));
}

}  // namespace skein::kernels
