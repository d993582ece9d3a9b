// What steps and layers cost a GPU as such, by steps of three models.
#pragma once

#include <vector>

#include "topology/rates.h"
#include "worker/probe/shape_times.h"

namespace skein::worker {

// By the rows that all three were timed with. `deep` has twice as many layers as `shallow`, of the
// same shape: that tells a step as such, and a layer with its work. `narrow` has as much work as
// `shallow` in more layers, and takes longer by what those cost. No cost is less than none,
// whatever the noise.
std::vector<topology::Overhead> GpuOverheads(const ShapeTimes& shallow, const ShapeTimes& deep,
                                             const ShapeTimes& narrow);

}  // namespace skein::worker
