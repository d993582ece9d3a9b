#include "parallel/planner/micro_batches.h"

#include <algorithm>

namespace skein::plan {
namespace {

constexpr int32_t kMostOfAStage = 4;

}  // namespace

std::vector<int32_t> MicroBatchCounts(int32_t stages, int32_t sequences) {
  std::vector<int32_t> counts = {std::min(stages, sequences)};
  if (stages == 1 || sequences <= stages) return counts;
  counts.push_back(stages + 1);
  for (int32_t rows = (sequences + stages - 1) / stages - 1; rows > 0; --rows) {
    const int32_t count = (sequences + rows - 1) / rows;
    if (count > kMostOfAStage * stages) break;
    if (count > counts.back()) counts.push_back(count);
  }
  return counts;
}

}  // namespace skein::plan
