// The buckets of histograms: those of vLLM's metrics of the same names, so that dashboards and
// alerts carry over, and finer ones below where a small model or a fast GPU would fall into the
// first bucket always.
#pragma once

#include <cstdint>
#include <vector>

namespace skein::coordinator {

// Upper bounds in seconds.
std::vector<double> FirstTokenBuckets();
std::vector<double> PerTokenBuckets();        // between tokens
std::vector<double> RequestLatencyBuckets();  // whole requests, and their wait in the queue

// 1, 2, 5, 10, 20, ... tokens, up to `most`.
std::vector<double> TokenBuckets(int64_t most);

}  // namespace skein::coordinator
