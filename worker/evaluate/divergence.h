// How well logits foretell tokens, and how far those of one model are from another's. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace skein::worker {

// Minus the natural logarithm of the probability that softmax gives to `token`.
double NegativeLogLikelihood(absl::Span<const float> logits, int32_t token);

// The Kullback-Leibler divergence, in nats, of softmax(logits) from softmax(reference): the sum of
// p * log(p / q), p the reference's. Not negative, but for rounding.
double KlDivergence(absl::Span<const float> reference, absl::Span<const float> logits);

// Whether both have their largest logit at the same token, the first of equal ones.
bool SameTop(absl::Span<const float> reference, absl::Span<const float> logits);

// Numbers as they come.
class Samples {
 public:
  void Add(double value) {
    values_.push_back(value);
    sum_ += value;
  }
  int64_t count() const { return static_cast<int64_t>(values_.size()); }
  double Mean() const { return values_.empty() ? 0 : sum_ / static_cast<double>(count()); }
  // The standard error of the mean; 0 of fewer than two.
  double MeanError() const;
  // The smallest that at least so large a share, in (0, 1], are not above. There is a sample.
  double Quantile(double share) const;

 private:
  std::vector<double> values_;
  double sum_ = 0;
};

}  // namespace skein::worker
