#include "worker/probe/mean_rates.h"

#include <algorithm>
#include <cstddef>
#include <vector>

#include "absl/time/time.h"

namespace skein::worker {
namespace {

using topology::DeviceRates;

// Makes `field` of each of `points` the mean of all ranks' points there.
template <typename Point>
void TakeMeanTime(absl::Span<const DeviceRates> ranks, std::vector<Point> DeviceRates::* points,
                  absl::Duration Point::* field, DeviceRates& mean) {
  for (size_t i = 0; i < (mean.*points).size(); ++i) {
    absl::Duration sum;
    for (const DeviceRates& rank : ranks) sum += (rank.*points)[i].*field;
    (mean.*points)[i].*field = sum / ranks.size();
  }
}

// The same of rates: the rate of the mean time. What takes no time has the rate 0.
template <typename Point>
void TakeMeanRate(absl::Span<const DeviceRates> ranks, std::vector<Point> DeviceRates::* points,
                  double Point::* field, DeviceRates& mean) {
  for (size_t i = 0; i < (mean.*points).size(); ++i) {
    double sum = 0;
    for (const DeviceRates& rank : ranks) {
      const double rate = (rank.*points)[i].*field;
      if (rate > 0) sum += 1 / rate;
    }
    (mean.*points)[i].*field = sum > 0 ? static_cast<double>(ranks.size()) / sum : 0;
  }
}

// Of what all ranks miss in a first pass over the set, the share that they miss in the next one.
void TakeMeanOfMissed(absl::Span<const DeviceRates> ranks, size_t set, topology::ReadRate& mean) {
  double missed = 0, again = 0;
  for (const DeviceRates& rank : ranks) {
    const topology::ReadRate& read = rank.reads[set];
    if (read.behind_bytes_per_s == 0) continue;
    const double first = 1 / read.behind_bytes_per_s - 1 / read.together_bytes_per_s;
    missed += first;
    again += first * read.missed_again;
  }
  if (missed > 0) mean.missed_again = again / missed;
}

bool HasAsManyPoints(const DeviceRates& a, const DeviceRates& b) {
  return a.reads.size() == b.reads.size() && a.products.size() == b.products.size() &&
         a.overheads.size() == b.overheads.size() && a.attention.size() == b.attention.size();
}

}  // namespace

DeviceRates MeanRates(absl::Span<const DeviceRates> all) {
  DeviceRates mean = all.front();
  // A rank that sees less free memory than the first may have measured fewer points.
  std::vector<DeviceRates> ranks;
  for (const DeviceRates& rank : all) {
    if (HasAsManyPoints(rank, mean)) ranks.push_back(rank);
  }
  TakeMeanRate(ranks, &DeviceRates::reads, &topology::ReadRate::together_bytes_per_s, mean);
  TakeMeanRate(ranks, &DeviceRates::reads, &topology::ReadRate::behind_bytes_per_s, mean);
  for (size_t i = 0; i < mean.reads.size(); ++i) TakeMeanOfMissed(ranks, i, mean.reads[i]);
  for (topology::ReadRate& read : mean.reads) {
    read.alone_bytes_per_s = std::max(read.alone_bytes_per_s, read.together_bytes_per_s);
  }
  TakeMeanRate(ranks, &DeviceRates::products, &topology::ProductRate::operations_per_s, mean);
  TakeMeanTime(ranks, &DeviceRates::overheads, &topology::Overhead::step, mean);
  TakeMeanTime(ranks, &DeviceRates::overheads, &topology::Overhead::layer, mean);
  TakeMeanRate(ranks, &DeviceRates::attention, &topology::AttentionRate::bytes_per_s, mean);
  TakeMeanRate(ranks, &DeviceRates::attention, &topology::AttentionRate::operations_per_s, mean);
  double passing = 0;  // seconds
  for (const DeviceRates& rank : ranks) {
    mean.spread = std::max(mean.spread, rank.spread);
    if (rank.passed_values_per_s > 0) passing += 1 / rank.passed_values_per_s;
  }
  mean.passed_values_per_s = passing > 0 ? static_cast<double>(ranks.size()) / passing : 0;
  return mean;
}

}  // namespace skein::worker
