#include "parallel/planner/micro_batches.h"

#include <algorithm>

#include "parallel/plan/plan.h"

namespace skein::plan {
namespace {

constexpr int32_t kMostOfAStage = 4;
constexpr double kShorter = 0.95;
constexpr int kTries = 2;

}  // namespace

std::vector<int32_t> MicroBatchCounts(int32_t stages, int32_t sequences) {
  std::vector<int32_t> counts = {std::min(stages, sequences)};
  if (stages == 1 || sequences <= stages) return counts;
  counts.push_back(stages + 1);
  for (int32_t rows = (sequences + stages - 1) / stages - 1; rows > 0; --rows) {
    const int32_t count = (sequences + rows - 1) / rows;
    if (count > std::min(kMostOfAStage * stages, kMaxWays)) break;
    if (count > counts.back()) counts.push_back(count);
  }
  return counts;
}

int32_t BestMicroBatches(
    int32_t stages, int32_t sequences,
    absl::FunctionRef<std::optional<absl::Duration>(int32_t micro_batches)> step_of) {
  const std::vector<int32_t> counts = MicroBatchCounts(stages, sequences);
  int32_t best = counts.front();
  absl::Duration shortest = absl::InfiniteDuration();
  int longer = 0;  // in a row
  for (const int32_t count : counts) {
    const std::optional<absl::Duration> step = step_of(count);
    if (!step) break;
    if (*step < (count > stages + 1 ? kShorter : 1) * shortest) {
      shortest = *step;
      best = count;
      longer = 0;
    } else if (++longer == kTries) {
      break;
    }
  }
  return best;
}

}  // namespace skein::plan
