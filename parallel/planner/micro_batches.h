// Into how many micro-batches a pipeline's decodes are cut. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/time/time.h"

namespace skein::plan {

// The numbers that are worth a prediction, ascending: one for each stage, or for each sequence
// where those are fewer; one more, which hides hops; and those from which on the largest
// micro-batch has a row less, up to four times the stages: of many rows, which arithmetic binds,
// smaller ones are on their way sooner.
std::vector<int32_t> MicroBatchCounts(int32_t stages, int32_t sequences);

// Of MicroBatchCounts the number that makes steps the shortest. More than one beyond the stages
// have to make them 5% shorter than fewer do, and the search ends where two in a row make them no
// shorter. step_of: a step's time with so many; none where it cannot be told.
int32_t BestMicroBatches(
    int32_t stages, int32_t sequences,
    absl::FunctionRef<std::optional<absl::Duration>(int32_t micro_batches)> step_of);

}  // namespace skein::plan
