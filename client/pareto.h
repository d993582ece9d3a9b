// What machines can give at most: tokens for each stream against tokens of each device.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "model/config/model_config.h"
#include "parallel/planner/search.h"
#include "topology/topology.h"

namespace skein::client {

// A layout at a load.
struct OperatingPoint {
  std::string layout;              // "tp=2,pp=1,dp=4"
  int64_t concurrency = 0;         // requests at once
  double tokens_per_s_stream = 0;  // of each request, while it decodes: 1 / TPOT
  double tokens_per_s_device = 0;  // of all requests, by the devices that are used

  friend bool operator==(const OperatingPoint&, const OperatingPoint&) = default;
};

// All layouts of the task that are within its limits, at 1, 2, 4, ... requests at once, up to 4
// times the task's, which is told, and 64 at least. Takes as long as so many searches.
// SearchLayouts' errors.
absl::StatusOr<std::vector<OperatingPoint>> OperatingPoints(const topology::Topology& topology,
                                                            const model::ModelConfig& model,
                                                            const plan::SearchTask& task);

// Those that no other one beats or equals in both rates, by tokens for a stream, the most first.
std::vector<OperatingPoint> ParetoFront(std::vector<OperatingPoint> points);

// The points, and their front as a line, a label where its layout changes. Stand-alone, light or
// dark as the viewer asks.
std::string ParetoSvg(const std::vector<OperatingPoint>& points, std::string_view title);

}  // namespace skein::client
