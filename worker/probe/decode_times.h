// How long a model's decode steps take, the next order always at hand.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/bench/bench_model.h"

namespace skein::worker {

// Seconds of a step that decodes so many sequences, `samples` times: the mean of `turns`, two where
// steps are as short as what the two batches, which take turns, differ by. The first `turns` steps
// are left out, on cores one more. The sequences are at their begin, and each gets samples + turns
// + 1 tokens. A call of all ranks of the model.
absl::StatusOr<std::vector<double>> TimeDecodes(BenchModel& model, int32_t sequences, int samples,
                                                int turns = 2);

}  // namespace skein::worker
