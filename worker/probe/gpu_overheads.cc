#include "worker/probe/gpu_overheads.h"

#include <algorithm>

#include "absl/time/time.h"

namespace skein::worker {

std::vector<topology::Overhead> GpuOverheads(const ShapeTimes& shallow, const ShapeTimes& deep,
                                             const ShapeTimes& narrow) {
  const auto more = static_cast<double>(narrow.steps.shape.layers - shallow.steps.shape.layers);
  std::vector<topology::Overhead> overheads;
  for (size_t i = 0; i < shallow.points.size(); ++i) {
    const double seconds = shallow.points[i].seconds;
    const double layers = deep.points[i].seconds - seconds;  // as many as the shallow one has
    const double layer = (narrow.points[i].seconds - seconds) / more;
    overheads.push_back({.rows = shallow.points[i].rows,
                         .step = absl::Seconds(std::max(0.0, seconds - layers)),
                         .layer = absl::Seconds(std::max(0.0, layer))});
  }
  return overheads;
}

}  // namespace skein::worker
