// What repeated measurements say, on a host that may be busy with other things.
#pragma once

#include <vector>

namespace skein::worker {

struct Sampled {
  double median = 0;
  // Half of the samples are within this share of the median, on either side of it.
  double spread = 0;
};

// `samples` is not empty.
Sampled Summarise(std::vector<double> samples);

}  // namespace skein::worker
