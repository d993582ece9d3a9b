// What repeated measurements say, on a host that may be busy with other things.
#pragma once

#include <vector>

#include "absl/types/span.h"

namespace skein::worker {

struct Sampled {
  double median = 0;
  // Half of the samples are within this share of the median, on either side of it.
  double spread = 0;
};

// `samples` is not empty.
Sampled Summarise(std::vector<double> samples);

// By how much samples of one thing are beyond those of another that were taken beside them, one by
// one: what the host did then, both have. As many of each, and one at least.
double MedianDifference(absl::Span<const double> of, absl::Span<const double> beside);

}  // namespace skein::worker
