#include "worker/evaluate/divergence.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace skein::worker {
namespace {

// log(sum of exp(logits)), from the largest logit.
struct Normalizer {
  float largest = 0;
  double log_sum = 0;  // of exp(logit - largest)
};

Normalizer NormalizerOf(absl::Span<const float> logits) {
  Normalizer of;
  of.largest = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(double{logit} - of.largest);
  of.log_sum = std::log(sum);
  return of;
}

}  // namespace

double NegativeLogLikelihood(absl::Span<const float> logits, int32_t token) {
  const Normalizer of = NormalizerOf(logits);
  return of.log_sum - (double{logits[static_cast<size_t>(token)]} - of.largest);
}

double KlDivergence(absl::Span<const float> reference, absl::Span<const float> logits) {
  const Normalizer p = NormalizerOf(reference);
  const Normalizer q = NormalizerOf(logits);
  double sum = 0;
  for (size_t i = 0; i < reference.size(); ++i) {
    const double log_p = double{reference[i]} - p.largest - p.log_sum;
    if (std::exp(log_p) == 0) continue;  // whatever the other says of it
    const double log_q = double{logits[i]} - q.largest - q.log_sum;
    sum += std::exp(log_p) * (log_p - log_q);
  }
  return sum;
}

bool SameTop(absl::Span<const float> reference, absl::Span<const float> logits) {
  return std::max_element(reference.begin(), reference.end()) - reference.begin() ==
         std::max_element(logits.begin(), logits.end()) - logits.begin();
}

double Samples::MeanError() const {
  if (count() < 2) return 0;
  const double mean = Mean();
  double squares = 0;
  for (const double value : values_) squares += (value - mean) * (value - mean);
  const auto n = static_cast<double>(count());
  return std::sqrt(squares / (n - 1) / n);
}

double Samples::Quantile(double share) const {
  std::vector<double> sorted = values_;
  const auto rank = static_cast<size_t>(std::ceil(share * static_cast<double>(count())));
  const auto at =
      sorted.begin() + static_cast<ptrdiff_t>(std::clamp<size_t>(rank, 1, sorted.size()) - 1);
  std::nth_element(sorted.begin(), at, sorted.end());
  return *at;
}

}  // namespace skein::worker
