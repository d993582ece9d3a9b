#include "worker/probe/host_links.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <utility>
#include <vector>

#include "absl/time/time.h"

namespace skein::worker {
namespace {

using topology::LinkRate;
using topology::Path;

// Of a median pair. Pairs that are well differ by some percent, and in latency by more.
constexpr double kSlow = 0.7;
constexpr double kLate = 2;
constexpr absl::Duration kNoise = absl::Microseconds(3);

// A pair's way, for one of its NVLinks.
struct Way {
  const PairRate* pair = nullptr;
  LinkRate of_one;
};

// By bytes a second; `ways` are some.
LinkRate MedianOf(std::vector<Way> ways) {
  const auto median = ways.begin() + ways.size() / 2;
  std::nth_element(ways.begin(), median, ways.end(), [](const Way& a, const Way& b) {
    return a.of_one.bytes_per_s < b.of_one.bytes_per_s;
  });
  return median->of_one;
}

bool IsSlow(const LinkRate& link, const LinkRate& median) {
  return link.bytes_per_s < kSlow * median.bytes_per_s ||
         link.latency > kLate * median.latency + kNoise;
}

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
  for (const auto& [path, alike] : ways) {
    const LinkRate median = MedianOf(alike);
    LinkRate& link = host.links.emplace_back(path, median).second;
    for (const Way& way : alike) link.spread = std::max(link.spread, way.of_one.spread);
    if (of.gpus.empty()) continue;
    for (const Way& way : alike) {
      std::vector<Way> beside;  // others of its path, in its round
      std::copy_if(alike.begin(), alike.end(), std::back_inserter(beside), [&](const Way& other) {
        return other.pair->round == way.pair->round && other.pair != way.pair;
      });
      if (!IsSlow(way.of_one, median)) continue;
      if (!beside.empty() && !IsSlow(way.of_one, MedianOf(beside))) continue;
      const auto [first, second] = std::minmax(way.pair->first, way.pair->second);
      of.slow_pairs.push_back({first, second, way.pair->rate});
    }
  }
  std::sort(of.slow_pairs.begin(), of.slow_pairs.end(), [](const auto& a, const auto& b) {
    return std::pair(a.first, a.second) < std::pair(b.first, b.second);
  });
}

}  // namespace skein::worker
