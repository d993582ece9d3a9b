// Into how many micro-batches a pipeline's decodes are cut. Pure.
#pragma once

#include <cstdint>
#include <vector>

namespace skein::plan {

// The numbers that are worth a prediction, ascending: one for each stage, or for each sequence
// where those are fewer; one more, which hides hops; and those from which on the largest
// micro-batch has a row less, up to four times the stages: long hops take more of them to hide, and
// each reads all weights again.
std::vector<int32_t> MicroBatchCounts(int32_t stages, int32_t sequences);

// So many in a row that make no shorter steps than the best before end the search.
inline constexpr int kMicroBatchTries = 2;

}  // namespace skein::plan
