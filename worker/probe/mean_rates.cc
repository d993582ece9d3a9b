#include "worker/probe/mean_rates.h"

#include <algorithm>
#include <cstddef>
#include <vector>

#include "absl/time/time.h"

namespace skein::worker {
namespace {

using topology::DeviceRates;

// Makes `field` of each of `points` the mean of all ranks' points there.
template <typename Point, typename Number>
void TakeMean(absl::Span<const DeviceRates> ranks, std::vector<Point> DeviceRates::* points,
              Number Point::* field, DeviceRates& mean) {
  for (size_t i = 0; i < (mean.*points).size(); ++i) {
    Number sum{};
    for (const DeviceRates& rank : ranks) sum += (rank.*points)[i].*field;
    (mean.*points)[i].*field = sum / ranks.size();
  }
}

}  // namespace

DeviceRates MeanRates(absl::Span<const DeviceRates> ranks) {
  DeviceRates mean = ranks.front();
  TakeMean(ranks, &DeviceRates::reads, &topology::ReadRate::together_bytes_per_s, mean);
  for (topology::ReadRate& read : mean.reads) {
    read.alone_bytes_per_s = std::max(read.alone_bytes_per_s, read.together_bytes_per_s);
  }
  TakeMean(ranks, &DeviceRates::products, &topology::ProductRate::operations_per_s, mean);
  TakeMean(ranks, &DeviceRates::overheads, &topology::Overhead::step, mean);
  TakeMean(ranks, &DeviceRates::overheads, &topology::Overhead::layer, mean);
  TakeMean(ranks, &DeviceRates::attention, &topology::AttentionRate::bytes_per_s, mean);
  TakeMean(ranks, &DeviceRates::attention, &topology::AttentionRate::operations_per_s, mean);
  for (const DeviceRates& rank : ranks) mean.spread = std::max(mean.spread, rank.spread);
  return mean;
}

}  // namespace skein::worker
