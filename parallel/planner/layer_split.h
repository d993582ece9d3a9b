// Splits layers over stages that may differ in speed and room. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/time/time.h"
#include "absl/types/span.h"
#include "base/range.h"

namespace skein::plan {

struct StageSpeed {
  absl::Duration layer;    // the time of one layer
  absl::Duration beside;   // of what it does beside layers, as the last one the output
  int64_t max_layers = 0;  // that its memory holds
};

// Layers for each stage, at least one, so that the slowest stage takes as little as can be. Stages
// that are as good get further layers from the first to the last. Empty where they do not fit.
std::vector<Range> SplitLayers(int64_t num_layers, absl::Span<const StageSpeed> stages);

}  // namespace skein::plan
