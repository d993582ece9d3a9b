#include "parallel/planner/host_kinds.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/units.h"
#include "topology/interconnect.h"
#include "topology/rates.h"

namespace skein::plan {
namespace {

using topology::DeviceRates;
using topology::ExchangeCurve;
using topology::Gpu;
using topology::Host;
using topology::LinkRate;

constexpr size_t kFewHosts = 16;
constexpr double kRates = 0.1;
constexpr double kTimes = 0.3;
constexpr absl::Duration kShort = absl::Nanoseconds(500);  // whatever its share

bool Within(double a, double b, double share) {
  return std::abs(a - b) <= share * std::max(std::abs(a), std::abs(b));
}
bool RatesAgree(double a, double b) { return Within(a, b, kRates); }
bool BytesAgree(int64_t a, int64_t b) {
  return RatesAgree(static_cast<double>(a), static_cast<double>(b));
}
bool TimesAgree(absl::Duration a, absl::Duration b) {
  return absl::AbsDuration(a - b) <= kShort ||
         Within(absl::ToDoubleSeconds(a), absl::ToDoubleSeconds(b), kTimes);
}

template <typename T, typename Agree>
bool Each(const std::vector<T>& a, const std::vector<T>& b, Agree agree) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), agree);
}

bool LinksAgree(const LinkRate& a, const LinkRate& b) {
  return a.origin == b.origin && TimesAgree(a.latency, b.latency) &&
         RatesAgree(a.bytes_per_s, b.bytes_per_s);
}

bool FiguresAgree(const DeviceRates& a, const DeviceRates& b) {
  return a.origin == b.origin && RatesAgree(a.passed_values_per_s, b.passed_values_per_s) &&
         Each(a.reads, b.reads,
              [](const auto& x, const auto& y) {
                return BytesAgree(x.working_set_bytes, y.working_set_bytes) &&
                       RatesAgree(x.alone_bytes_per_s, y.alone_bytes_per_s) &&
                       RatesAgree(x.together_bytes_per_s, y.together_bytes_per_s) &&
                       RatesAgree(x.behind_bytes_per_s, y.behind_bytes_per_s) &&
                       std::abs(x.missed_again - y.missed_again) <= kRates;
              }) &&
         Each(a.products, b.products,
              [](const auto& x, const auto& y) {
                return x.dtype == y.dtype && x.rows == y.rows &&
                       BytesAgree(x.working_set_bytes, y.working_set_bytes) &&
                       RatesAgree(x.operations_per_s, y.operations_per_s);
              }) &&
         Each(a.overheads, b.overheads,
              [](const auto& x, const auto& y) {
                return x.rows == y.rows && TimesAgree(x.step, y.step) &&
                       TimesAgree(x.layer, y.layer);
              }) &&
         Each(a.attention, b.attention, [](const auto& x, const auto& y) {
           return x.rows == y.rows && BytesAgree(x.working_set_bytes, y.working_set_bytes) &&
                  RatesAgree(x.bytes_per_s, y.bytes_per_s) &&
                  RatesAgree(x.operations_per_s, y.operations_per_s);
         });
}

bool CurvesAgree(const ExchangeCurve& a, const ExchangeCurve& b) {
  return a.exchange == b.exchange && a.ranks == b.ranks && a.across == b.across &&
         a.alone == b.alone && a.ranks_per_host == b.ranks_per_host &&
         Each(a.times, b.times, [](const auto& x, const auto& y) {
           return x.bytes == y.bytes && TimesAgree(x.time, y.time);
         });
}

bool HostsAgree(const Host& a, const Host& b) {
  return a.cpu == b.cpu && a.sockets == b.sockets && a.cores == b.cores &&
         BytesAgree(a.memory_bytes, b.memory_bytes) &&
         a.interconnect.connections == b.interconnect.connections &&
         a.interconnect.nvswitches == b.interconnect.nvswitches &&
         Each(a.interconnect.slow_pairs, b.interconnect.slow_pairs,
              [](const auto& x, const auto& y) {
                return x.first == y.first && x.second == y.second && LinksAgree(x.link, y.link);
              }) &&
         Each(a.interconnect.gpus, b.interconnect.gpus,
              [](const Gpu& x, const Gpu& y) {
                return x.model == y.model && BytesAgree(x.memory_bytes, y.memory_bytes) &&
                       FiguresAgree(x.rates, y.rates) && LinksAgree(x.to_host, y.to_host);
              }) &&
         Each(a.interconnect.nics, b.interconnect.nics,
              [](const auto& x, const auto& y) {
                return x.kind == y.kind && x.bytes_per_s == y.bytes_per_s;
              }) &&
         FiguresAgree(a.core_rates, b.core_rates) &&
         Each(a.links, b.links,
              [](const auto& x, const auto& y) {
                return x.first == y.first && LinksAgree(x.second, y.second);
              }) &&
         Each(a.exchanges, b.exchanges, CurvesAgree);
}

}  // namespace

HostKinds::HostKinds(const topology::Topology& topology) {
  const std::vector<Host>& hosts = topology.hosts;
  std::vector<int32_t> firsts;  // of each kind
  for (int32_t host = 0; host < static_cast<int32_t>(hosts.size()); ++host) {
    const auto alike = [&](int32_t first) {
      return topology::AlikeButForName(hosts[first], hosts[host]);
    };
    auto first = std::find_if(firsts.begin(), firsts.end(), alike);
    if (first == firsts.end()) first = firsts.insert(firsts.end(), host);
    kinds_.push_back(*first);
  }
}

std::string HostKinds::KeyOf(absl::Span<const Group> stages) const {
  std::string key;
  std::map<int32_t, size_t> order;
  for (const Group& group : stages) {
    for (const cost::Site& site : group) {
      const size_t place = order.emplace(site.host, order.size()).first->second;
      absl::StrAppend(&key, place, ":", kinds_[site.host], ".", site.gpu, ",");
    }
    key += '|';
  }
  return key;
}

std::string FoldedText(int hosts) {
  return absl::StrCat(FormatCount(hosts, "host"),
                      " counted as others that are built alike, with figures that measurements "
                      "cannot tell apart.");
}

int FoldAlikeHosts(topology::Topology& topology) {
  std::vector<Host>& hosts = topology.hosts;
  if (hosts.size() <= kFewHosts) return 0;
  std::vector<size_t> firsts;
  std::vector<size_t> kinds;  // by host
  for (size_t at = 0; at < hosts.size(); ++at) {
    auto first = std::find_if(firsts.begin(), firsts.end(),
                              [&](size_t of) { return HostsAgree(hosts[of], hosts[at]); });
    if (first == firsts.end()) first = firsts.insert(firsts.end(), at);
    kinds.push_back(*first);
  }
  // What may be taken on each of a kind is what may be taken on all.
  for (size_t at = 0; at < hosts.size(); ++at) {
    Host& kind = hosts[kinds[at]];
    kind.memory_bytes = std::min(kind.memory_bytes, hosts[at].memory_bytes);
    for (size_t gpu = 0; gpu < kind.interconnect.gpus.size(); ++gpu) {
      int64_t& bytes = kind.interconnect.gpus[gpu].memory_bytes;
      bytes = std::min(bytes, hosts[at].interconnect.gpus[gpu].memory_bytes);
    }
  }
  int folded = 0;
  for (size_t at = 0; at < hosts.size(); ++at) {
    if (kinds[at] == at || topology::AlikeButForName(hosts[kinds[at]], hosts[at])) continue;
    std::string name = std::move(hosts[at].name);
    hosts[at] = hosts[kinds[at]];
    hosts[at].name = std::move(name);
    ++folded;
  }
  return folded;
}

}  // namespace skein::plan
