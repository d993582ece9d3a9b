#include "parallel/planner/layer_split.h"

namespace skein::plan {

// Giving each layer to the stage that ends first with it is optimal, since layers are alike.
std::vector<Range> SplitLayers(int64_t num_layers, absl::Span<const StageSpeed> stages) {
  std::vector<int64_t> layers;
  int64_t left = num_layers;
  for (const StageSpeed& stage : stages) {
    if (stage.max_layers < 1) return {};
    layers.push_back(1);
    --left;
  }
  if (left < 0) return {};
  for (; left > 0; --left) {
    size_t best = stages.size();
    absl::Duration soonest;
    for (size_t i = 0; i < stages.size(); ++i) {
      if (layers[i] == stages[i].max_layers) continue;
      const absl::Duration ends = stages[i].layer * (layers[i] + 1) + stages[i].beside;
      if (best == stages.size() || ends < soonest) {
        best = i;
        soonest = ends;
      }
    }
    if (best == stages.size()) return {};
    ++layers[best];
  }
  std::vector<Range> split;
  int64_t begin = 0;
  for (const int64_t count : layers) {
    split.push_back({begin, begin + count});
    begin += count;
  }
  return split;
}

}  // namespace skein::plan
