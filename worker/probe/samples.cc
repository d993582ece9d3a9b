#include "worker/probe/samples.h"

#include <algorithm>
#include <cmath>
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

}  // namespace skein::worker
