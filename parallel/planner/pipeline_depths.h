// How deep the pipelines are that are looked at.
#pragma once

#include <algorithm>
#include <cstdint>

namespace skein::plan {

// So few stages are always looked at.
inline constexpr int32_t kFewStages = 8;
// Pipelines of so many times the stages that memory asks for are not: a stage more adds hops and
// orders, and reads no weight less often.
inline constexpr int32_t kDeeper = 4;

// The most stages that are looked at where `fewest` hold the model.
inline int32_t MostStages(int32_t fewest) { return std::max(kFewStages, kDeeper * fewest); }

}  // namespace skein::plan
