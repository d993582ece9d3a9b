#include "topology/doctor/exchanges.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/units.h"

namespace skein::topology {
namespace {

constexpr double kSlow = 0.5;  // of the best way: networks are noisy

constexpr char kMessages[] = "messages";
constexpr char kExchanges[] = "exchanges";

// Two hosts of one name have unlike boots.
using HostKey = std::pair<std::string, std::string>;
HostKey KeyOf(const RankFacts& rank) { return {rank.host, rank.boot}; }

struct Way {
  HostKey from;
  HostKey to;
  double bytes_per_s = 0;

  bool has(const HostKey& host) const { return from == host || to == host; }
};

}  // namespace

std::vector<Finding> FindSlowWays(absl::Span<const RankFacts> ranks) {
  std::vector<Way> ways;
  std::map<HostKey, double> best_of;  // of each host's ways
  double best = 0, latency_us = 0;
  for (const RankFacts& rank : ranks) {
    for (const WayFacts& told : rank.ways) {
      const auto to = std::find_if(ranks.begin(), ranks.end(),
                                   [&](const RankFacts& other) { return other.rank == told.rank; });
      if (to == ranks.end()) continue;
      const Way& way = ways.emplace_back(Way{KeyOf(rank), KeyOf(*to), told.bytes_per_s});
      for (const HostKey& host : {way.from, way.to}) {
        best_of[host] = std::max(best_of[host], told.bytes_per_s);
      }
      best = std::max(best, told.bytes_per_s);
      latency_us = std::max(latency_us, told.latency_us);
    }
  }
  std::vector<Finding> findings;
  if (ways.empty()) return findings;
  const auto warn = [&](std::string says) {
    findings.push_back({Level::kWarning, kMessages, std::move(says),
                        "look at cable, switch port and what else uses them (ethtool, iperf3): "
                        "all wait for the slowest link"});
  };
  std::set<HostKey> slow_hosts;
  for (const auto& [host, rate] : best_of) {
    if (rate >= kSlow * best) continue;
    slow_hosts.insert(host);
    warn(absl::StrCat(host.first, " exchanges ", FormatBytesPerSecond(rate),
                      " with other hosts, where they have ", FormatBytesPerSecond(best)));
  }
  double least = best;
  for (const Way& way : ways) {
    least = std::min(least, way.bytes_per_s);
    if (way.bytes_per_s >= kSlow * best ||
        std::any_of(slow_hosts.begin(), slow_hosts.end(),
                    [&](const HostKey& host) { return way.has(host); })) {
      continue;
    }
    warn(absl::StrCat(way.from.first, " and ", way.to.first, " exchange ",
                      FormatBytesPerSecond(way.bytes_per_s), ", where others have ",
                      FormatBytesPerSecond(best)));
  }
  if (!findings.empty()) return findings;
  return {{Level::kOk, kMessages,
           absl::StrFormat("hosts exchange %s at least, and answer within %.0f us",
                           FormatBytesPerSecond(least), latency_us),
           ""}};
}

std::vector<Finding> FindExchanges(absl::Span<const RankFacts> ranks) {
  std::vector<Finding> findings;
  const auto warn = [&](std::string says, std::string advice) {
    findings.push_back({Level::kWarning, kExchanges, std::move(says), std::move(advice)});
  };
  if (!ranks[0].no_nccl.empty()) {
    warn(absl::StrCat("GPUs exchange by way of the hosts' memory, which is slow: ",
                      ranks[0].no_nccl),
         "give each rank a GPU of its own; see that libnccl.so.2 is found, what it says "
         "(NCCL_DEBUG=INFO), and which interface it takes (NCCL_SOCKET_IFNAME)");
  }
  std::map<HostKey, int> ranks_of;
  for (const RankFacts& rank : ranks) {
    if (++ranks_of[KeyOf(rank)] > 1 || rank.no_peers.empty()) continue;
    warn(absl::StrCat(rank.host, ": no GPU writes into another one's memory: ", rank.no_peers),
         "see `nvidia-smi topo -p2p w`: small sums take NCCL, which is slower; containers need "
         "each other's processes and /dev/shm (docker run --ipc=host --pid=host)");
  }
  if (!findings.empty() || ranks[0].nccl_bytes_per_s == 0) return findings;
  const bool neighbours =
      std::any_of(ranks_of.begin(), ranks_of.end(), [](const auto& of) { return of.second > 1; });
  return {{Level::kOk, kExchanges,
           absl::StrCat("NCCL sums 64 MiB at ", FormatBytesPerSecond(ranks[0].nccl_bytes_per_s),
                        neighbours ? ", and GPUs of a host write into each other's memory" : ""),
           ""}};
}

}  // namespace skein::topology
