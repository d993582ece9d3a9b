#include "worker/probe/samples.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

#include "base/bench/report.h"

namespace skein::worker {

Sampled Summarise(std::vector<double> samples) {
  Sampled sampled;
  sampled.median = Median(samples);
  for (double& sample : samples) sample = std::abs(sample - sampled.median);
  if (sampled.median > 0) sampled.spread = Median(std::move(samples)) / sampled.median;
  return sampled;
}

double MedianDifference(absl::Span<const double> of, absl::Span<const double> beside) {
  std::vector<double> differences;
  for (size_t i = 0; i < of.size(); ++i) differences.push_back(of[i] - beside[i]);
  return Median(std::move(differences));
}

}  // namespace skein::worker
