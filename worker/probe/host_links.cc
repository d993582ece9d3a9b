#include "worker/probe/host_links.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "absl/time/time.h"

namespace skein::worker {
namespace {

using topology::LinkRate;
using topology::Path;

// Of the median pair of its path. Pairs that are well differ by some percent, and in latency by
// more.
constexpr double kSlow = 0.75;
constexpr double kLate = 2;

// A pair's way, for one of its NVLinks.
struct Way {
  const PairRate* pair = nullptr;
  LinkRate of_one;
};

}  // namespace

LinkRate LinkOfMessages(const topology::ExchangeCurve& curve) {
  const topology::ExchangeTime& most = curve.times.back();
  const topology::ExchangeTime& fewer = curve.times[curve.times.size() - 2];
  const absl::Duration longer = std::max(most.time - fewer.time, absl::Nanoseconds(1));
  return {topology::Origin::kMeasured, curve.times.front().time,
          static_cast<double>(most.bytes - fewer.bytes) / absl::ToDoubleSeconds(longer),
          curve.spread};
}

void SetLinks(absl::Span<const PairRate> pairs, topology::Host& host) {
  topology::Interconnect& of = host.interconnect;
  std::map<Path, std::vector<Way>> ways;
  for (const PairRate& pair : pairs) {
    topology::Connection connection;
    if (!of.gpus.empty()) connection = of.OfGpus(pair.first, pair.second);
    Way& way = ways[connection.path].emplace_back(Way{&pair, pair.rate});
    if (connection.path == Path::kNvlink) way.of_one.bytes_per_s /= connection.nvlinks;
  }
  for (auto& [path, alike] : ways) {
    const auto median = alike.begin() + alike.size() / 2;
    std::nth_element(alike.begin(), median, alike.end(), [](const Way& a, const Way& b) {
      return a.of_one.bytes_per_s < b.of_one.bytes_per_s;
    });
    LinkRate link = median->of_one;
    for (const Way& way : alike) link.spread = std::max(link.spread, way.of_one.spread);
    host.links.emplace_back(path, link);
    for (const Way& way : alike) {
      if (way.of_one.bytes_per_s >= kSlow * link.bytes_per_s &&
          way.of_one.latency <= kLate * link.latency) {
        continue;
      }
      const auto [first, second] = std::minmax(way.pair->first, way.pair->second);
      of.slow_pairs.push_back({first, second, way.pair->rate});
    }
  }
  std::sort(of.slow_pairs.begin(), of.slow_pairs.end(), [](const auto& a, const auto& b) {
    return std::pair(a.first, a.second) < std::pair(b.first, b.second);
  });
}

}  // namespace skein::worker
