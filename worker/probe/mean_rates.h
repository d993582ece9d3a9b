// What ranks of a host say of their cores together. Pure.
#pragma once

#include "absl/types/span.h"
#include "topology/rates.h"

namespace skein::worker {

// The mean of the times, of which rates are the inverse, that ranks have measured beside each
// other; of the points of the first, and the largest spread. Reads alone are those of the first,
// which alone has measured them, but no slower than beside others. Ranks with more or fewer points
// than the first count for nothing. `all` is not empty.
topology::DeviceRates MeanRates(absl::Span<const topology::DeviceRates> all);

}  // namespace skein::worker
