// How long a model's decode steps take, the next order always at hand.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/bench/bench_model.h"

namespace skein::worker {

// Seconds of a step that decodes so many sequences, `samples` times: the mean of two, for there are
// two batches, which take turns. The first two steps are left out, on cores three. The sequences
// are at their begin, and each gets samples + 3 tokens. A call of all ranks of the model.
absl::StatusOr<std::vector<double>> TimeDecodes(BenchModel& model, int32_t sequences, int samples);

}  // namespace skein::worker
