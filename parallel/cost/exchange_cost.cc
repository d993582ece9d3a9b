#include "parallel/cost/exchange_cost.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"

namespace skein::cost {
namespace {

using topology::Exchange;
using topology::Host;
using topology::LinkRate;
using topology::Path;

LinkRate LinkOfHost(const Host& host, const topology::Connection& connection) {
  for (const auto& [path, link] : host.links) {
    if (path != connection.path) continue;
    LinkRate all = link;
    if (path == Path::kNvlink) all.bytes_per_s *= connection.nvlinks;
    return all;
  }
  return {};
}

// What the nearest NIC of a site leaves of the fabric.
double NicBytesPerS(const topology::Topology& topology, const Site& site) {
  const double fabric_bytes_per_s = topology.fabric.link.bytes_per_s;
  const topology::Interconnect& of = topology.hosts[site.host].interconnect;
  if (site.gpu < 0 || of.nics.empty()) return fabric_bytes_per_s;
  double most = 0;
  for (const int nic : topology::NearestNics(of, site.gpu)) {
    most = std::max(most, of.nics[nic].bytes_per_s);
  }
  return most > 0 ? std::min(most, fabric_bytes_per_s) : fabric_bytes_per_s;
}

LinkRate LinkWithin(const Host& host, const Site& a, const Site& b) {
  if (a.gpu < 0 || b.gpu < 0) return LinkOfHost(host, {});
  const LinkRate* const own = topology::SlowLink(host.interconnect, a.gpu, b.gpu);
  return own != nullptr ? *own : LinkOfHost(host, host.interconnect.OfGpus(a.gpu, b.gpu));
}

LinkRate LinkAcross(const topology::Topology& topology, double nic_bytes_per_s,
                    double other_nic_bytes_per_s) {
  LinkRate link = topology.fabric.link;
  link.bytes_per_s = std::min(nic_bytes_per_s, other_nic_bytes_per_s);
  return link;
}

absl::Duration TimeOf(const LinkRate& link, double bytes) {
  return link.latency + absl::Seconds(bytes / link.bytes_per_s);
}

LinkRate Slower(LinkRate a, const LinkRate& b) {
  a.latency = std::max(a.latency, b.latency);
  a.bytes_per_s = std::min(a.bytes_per_s, b.bytes_per_s);
  return a;
}

const LinkRate& ToHost(const topology::Topology& topology, const Site& site) {
  return topology.hosts[site.host].interconnect.gpus[site.gpu].to_host;
}

// A curve between its points in proportion; beyond them by the rate of the last two.
absl::Duration Interpolate(const topology::ExchangeCurve& curve, int64_t bytes) {
  const auto& times = curve.times;
  const auto above = std::find_if(times.begin(), times.end(), [&](const topology::ExchangeTime& t) {
    return t.bytes >= bytes;
  });
  if (above == times.begin()) return times.front().time;
  if (times.size() == 1) return times.front().time;
  const auto upper = above == times.end() ? times.end() - 1 : above;
  const auto lower = upper - 1;
  const double part =
      static_cast<double>(bytes - lower->bytes) / static_cast<double>(upper->bytes - lower->bytes);
  return lower->time + part * (upper->time - lower->time);
}

bool OnOneHost(absl::Span<const Site> sites) {
  return std::all_of(sites.begin(), sites.end(),
                     [&](const Site& site) { return site.host == sites.front().host; });
}

// 0: unlike numbers.
int32_t RanksOfEachHost(absl::Span<const Site> sites) {
  std::map<int32_t, int32_t> of_hosts;
  for (const Site& site : sites) ++of_hosts[site.host];
  const int32_t first = of_hosts.begin()->second;
  return std::all_of(of_hosts.begin(), of_hosts.end(),
                     [&](const auto& of) { return of.second == first; })
             ? first
             : 0;
}

// By the curve of just so many ranks of one host, or of as many hosts that have as many each, or
// none. Ranks with cores of their own take what was measured of a group alone, where there is such
// a curve.
std::optional<absl::Duration> Measured(const topology::Topology& topology, Exchange exchange,
                                       absl::Span<const Site> sites, int64_t bytes,
                                       const CoreShare& share) {
  const bool across = !OnOneHost(sites);
  const int32_t of_each = across ? RanksOfEachHost(sites) : 1;
  const topology::ExchangeCurve* found = nullptr;
  for (const topology::ExchangeCurve& curve : topology.hosts[sites.front().host].exchanges) {
    if (curve.exchange == exchange && curve.across == across &&
        curve.ranks == static_cast<int32_t>(sites.size()) && curve.ranks_per_host == of_each &&
        (curve.alone ? share.of_a_core >= 1 : found == nullptr)) {
      found = &curve;
    }
  }
  if (found == nullptr) return std::nullopt;
  return Interpolate(*found, bytes);
}

// Links that bind a ring of sites: its slowest bandwidth and its longest latency.
class Rings {
 public:
  Rings(const topology::Topology& topology, absl::Span<const Site> sites) : size_(sites.size()) {
    links_.reserve(size_ * size_);
    std::vector<double> nics;  // found once for each site, which has links to all others
    for (const Site& site : sites) nics.push_back(NicBytesPerS(topology, site));
    for (size_t from = 0; from < size_; ++from) {
      const Host& host = topology.hosts[sites[from].host];
      for (size_t to = 0; to < size_; ++to) {
        links_.push_back(from == to ? LinkRate{}
                         : sites[from].host == sites[to].host
                             ? LinkWithin(host, sites[from], sites[to])
                             : LinkAcross(topology, nics[from], nics[to]));
      }
    }
  }

  LinkRate Best() {
    std::vector<double> rates;
    for (const LinkRate& link : links_) rates.push_back(link.bytes_per_s);
    std::sort(rates.begin(), rates.end(), std::greater<>());
    rates.erase(std::unique(rates.begin(), rates.end()), rates.end());
    ring_.resize(size_);
    std::iota(ring_.begin(), ring_.end(), size_t{0});
    for (const double rate : rates) {
      if (Bind().bytes_per_s >= rate) break;
      if (size_ <= kSearched && Extend({0}, rate)) break;
    }
    return Bind();
  }

 private:
  static constexpr size_t kSearched = 8;  // (n - 1)! rings at most

  const LinkRate& Of(size_t from, size_t to) const { return links_[from * size_ + to]; }

  LinkRate Bind() const {
    LinkRate slowest = Of(ring_[0], ring_[1]);
    for (size_t i = 1; i < size_; ++i) {
      slowest = Slower(slowest, Of(ring_[i], ring_[(i + 1) % size_]));
    }
    return slowest;
  }

  // Finds a ring of links of `rate` at least that begins with `path`.
  bool Extend(std::vector<size_t> path, double rate) {
    const size_t last = path.back();
    if (path.size() == size_) {
      if (Of(last, path.front()).bytes_per_s < rate) return false;
      ring_ = std::move(path);
      return true;
    }
    for (size_t next = 0; next < size_; ++next) {
      if (std::find(path.begin(), path.end(), next) != path.end()) continue;
      if (Of(last, next).bytes_per_s < rate) continue;
      path.push_back(next);
      if (Extend(path, rate)) return true;
      path.pop_back();
    }
    return false;
  }

  size_t size_;
  std::vector<LinkRate> links_;  // [size][size]
  std::vector<size_t> ring_;
};

// Each site to each other, where all reach each other's memory: those of single NVLinks have one to
// each, others share what one site sends. The slowest pair binds.
std::optional<absl::Duration> OneShotTime(const topology::Topology& topology,
                                          absl::Span<const Site> sites, int64_t bytes) {
  absl::Duration slowest;
  for (const Site& from : sites) {
    for (const Site& to : sites) {
      if (&from == &to) continue;
      double sent = static_cast<double>(bytes) * static_cast<double>(sites.size() - 1);
      if (from.host != to.host) return std::nullopt;
      if (from.gpu >= 0) {
        const topology::Interconnect& of = topology.hosts[from.host].interconnect;
        const Path path = of.OfGpus(from.gpu, to.gpu).path;
        if (path > Path::kSwitches) return std::nullopt;
        if (path == Path::kNvlink && of.nvswitches == 0) sent = static_cast<double>(bytes);
      }
      slowest = std::max(slowest, TimeOf(LinkBetween(topology, from, to), sent));
    }
  }
  return slowest;
}

absl::Duration AllReduceByLinks(const topology::Topology& topology, absl::Span<const Site> sites,
                                int64_t bytes) {
  const auto n = static_cast<double>(sites.size());
  const LinkRate slowest = Rings(topology, sites).Best();
  // Latency as of a tree there and back, which libraries take for what is small.
  const absl::Duration ring =
      slowest.latency * 2 * std::ceil(std::log2(n)) +
      absl::Seconds(2 * (n - 1) / n * static_cast<double>(bytes) / slowest.bytes_per_s);
  return std::min(ring, OneShotTime(topology, sites, bytes).value_or(ring));
}

absl::Duration AllGatherByLinks(const topology::Topology& topology, absl::Span<const Site> sites,
                                int64_t bytes) {
  const auto n = static_cast<double>(sites.size());
  const LinkRate slowest = Rings(topology, sites).Best();
  return slowest.latency * std::ceil(std::log2(n)) +
         absl::Seconds((n - 1) / n * static_cast<double>(bytes) / slowest.bytes_per_s);
}

// Of two GPUs each.
bool IsSameWay(const topology::Interconnect& of, std::pair<int32_t, int32_t> a,
               std::pair<int32_t, int32_t> b) {
  const LinkRate* const slow_a = topology::SlowLink(of, a.first, a.second);
  const LinkRate* const slow_b = topology::SlowLink(of, b.first, b.second);
  if ((slow_a == nullptr) != (slow_b == nullptr)) return false;
  return of.OfGpus(a.first, a.second) == of.OfGpus(b.first, b.second) &&
         (slow_a == nullptr || *slow_a == *slow_b);
}

// What GPUs of one host take, by their links, of what its first ones take, which were measured.
double ShareOfMeasured(
    const topology::Topology& topology, absl::Span<const Site> sites,
    absl::FunctionRef<absl::Duration(absl::Span<const Site> sites)> time_by_links) {
  const Site& front = sites.front();
  if (front.gpu < 0 || !OnOneHost(sites)) return 1;
  const topology::Interconnect& of = topology.hosts[front.host].interconnect;
  std::vector<Site> first;
  bool alike = true;
  for (size_t i = 0; i < sites.size(); ++i) {
    first.push_back({front.host, static_cast<int32_t>(i)});
    for (size_t j = 0; j < i; ++j) {
      alike = alike && IsSameWay(of, {sites[i].gpu, sites[j].gpu}, {first[i].gpu, first[j].gpu});
    }
  }
  return alike ? 1 : absl::FDivDuration(time_by_links(sites), time_by_links(first));
}

}  // namespace

LinkRate LinkBetween(const topology::Topology& topology, const Site& a, const Site& b) {
  if (a.host == b.host) return LinkWithin(topology.hosts[a.host], a, b);
  return LinkAcross(topology, NicBytesPerS(topology, a), NicBytesPerS(topology, b));
}

absl::Duration SendTime(const topology::Topology& topology, const Site& from, const Site& to,
                        int64_t bytes, Receiver receiver) {
  if (from == to && from.gpu >= 0) return absl::ZeroDuration();
  const Site both[] = {from, to};
  if (receiver == Receiver::kAwake) {
    const auto awake = Measured(topology, Exchange::kSendToAwake, both, bytes, {});
    if (awake) return *awake;
  }
  const auto measured = Measured(topology, Exchange::kSendReceive, both, bytes, {});
  return measured ? *measured : TimeOf(LinkBetween(topology, from, to), static_cast<double>(bytes));
}

absl::Duration TokenReturnTime(const topology::Topology& topology, const Site& last,
                               const Site& first, int64_t rows, Receiver receiver) {
  const int64_t bytes = rows * int64_t{sizeof(int32_t)};
  const Site both[] = {last, first};
  const auto measured = Measured(topology, Exchange::kTokenReturn, both, bytes, {});
  return measured ? *measured : SendTime(topology, last, first, bytes, receiver);
}

absl::Duration AllReduceTime(const topology::Topology& topology, absl::Span<const Site> sites,
                             int64_t bytes, const CoreShare& share) {
  if (sites.size() < 2) return absl::ZeroDuration();
  const auto by_links = [&](absl::Span<const Site> of) {
    return AllReduceByLinks(topology, of, bytes);
  };
  if (const auto measured = Measured(topology, Exchange::kAllReduce, sites, bytes, share)) {
    return *measured * ShareOfMeasured(topology, sites, by_links);
  }
  return by_links(sites);
}

absl::Duration HostSumTime(const topology::Topology& topology, absl::Span<const Site> sites,
                           int64_t bytes) {
  if (sites.size() < 2) return absl::ZeroDuration();
  const auto n = static_cast<double>(sites.size());
  LinkRate copy = ToHost(topology, sites.front());
  LinkRate message = copy;
  for (const Site& site : sites) {
    copy = Slower(copy, ToHost(topology, site));
    const bool across = site.host != sites.front().host;
    message = Slower(message,
                     across ? LinkBetween(topology, sites.front(), site) : ToHost(topology, site));
  }
  if (copy.bytes_per_s == 0) return AllReduceTime(topology, sites, bytes);
  return 2 * TimeOf(copy, static_cast<double>(bytes)) + 2 * message.latency +
         absl::Seconds(2 * (n - 1) / n * static_cast<double>(bytes) / message.bytes_per_s);
}

absl::Duration AllGatherTime(const topology::Topology& topology, absl::Span<const Site> sites,
                             int64_t bytes, const CoreShare& share) {
  if (sites.size() < 2) return absl::ZeroDuration();
  const auto by_links = [&](absl::Span<const Site> of) {
    return AllGatherByLinks(topology, of, bytes);
  };
  if (const auto measured = Measured(topology, Exchange::kAllGather, sites, bytes, share)) {
    return *measured * ShareOfMeasured(topology, sites, by_links);
  }
  return by_links(sites);
}

}  // namespace skein::cost
