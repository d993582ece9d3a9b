#include "topology/topology.h"

#include <cmath>
#include <set>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace skein::topology {
namespace {

absl::Status Error(const std::string& where, const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat(where, ": ", what));
}

absl::Status CheckAmount(const std::string& where, double amount) {
  if (amount >= 0 && std::isfinite(amount)) return absl::OkStatus();
  return Error(where, absl::StrCat(amount, " is no amount"));
}

absl::Status CheckDuration(const std::string& where, absl::Duration duration) {
  if (duration >= absl::ZeroDuration() && duration < absl::Hours(1)) return absl::OkStatus();
  return Error(where, absl::StrCat(absl::FormatDuration(duration), " is no time that it takes"));
}

// By working set, then by rows. Those that caches do not hold stand behind all others.
template <typename Rate>
absl::Status CheckOrder(const std::string& at, const Rate& before, const Rate& rate) {
  if (before.working_set_bytes == rate.working_set_bytes) {
    if (before.rows < rate.rows) return absl::OkStatus();
    return Error(at,
                 absl::StrCat(rate.rows, " rows are not more than the ", before.rows, " before"));
  }
  const bool ascends =
      before.working_set_bytes != 0 &&
      (rate.working_set_bytes == 0 || rate.working_set_bytes > before.working_set_bytes);
  if (ascends) return absl::OkStatus();
  return Error(at, absl::StrCat("a working set of ", rate.working_set_bytes,
                                " bytes, which is not more than ", before.working_set_bytes));
}

absl::Status CheckRates(const std::string& where, const DeviceRates& rates) {
  int64_t before = 0;
  for (size_t i = 0; i < rates.reads.size(); ++i) {
    const ReadRate& read = rates.reads[i];
    const std::string at = absl::StrCat(where, ".reads[", i, "]");
    if (read.working_set_bytes <= before) {
      return Error(at, absl::StrCat("a working set of ", read.working_set_bytes,
                                    " bytes, which is not more than ", before));
    }
    before = read.working_set_bytes;
    for (const double rate : {read.alone_bytes_per_s, read.together_bytes_per_s}) {
      SKEIN_RETURN_IF_ERROR(CheckAmount(at, rate));
      if (rate == 0) return Error(at, "a rate of 0 never ends");
    }
    SKEIN_RETURN_IF_ERROR(CheckAmount(at, read.behind_bytes_per_s));
    if (!(read.missed_again >= 0 && read.missed_again <= 1)) {
      return Error(at, absl::StrCat("missed_again is ", read.missed_again, ", which is no share"));
    }
  }
  for (size_t i = 0; i < rates.products.size(); ++i) {
    const ProductRate& product = rates.products[i];
    const std::string at = absl::StrCat(where, ".products[", i, "]");
    SKEIN_RETURN_IF_ERROR(CheckAmount(at, product.operations_per_s));
    if (product.operations_per_s == 0) return Error(at, "a rate of 0 never ends");
    SKEIN_RETURN_IF_ERROR(CheckAmount(at, static_cast<double>(product.working_set_bytes)));
    if (product.rows < 1) return Error(at, absl::StrCat(product.rows, " rows are none"));
    if (i > 0 && rates.products[i - 1].dtype == product.dtype) {
      SKEIN_RETURN_IF_ERROR(CheckOrder(at, rates.products[i - 1], product));
    }
  }
  int64_t rows = 0;
  for (size_t i = 0; i < rates.overheads.size(); ++i) {
    const Overhead& overhead = rates.overheads[i];
    const std::string at = absl::StrCat(where, ".overheads[", i, "]");
    if (overhead.rows <= rows) {
      return Error(at, absl::StrCat(overhead.rows, " rows are not more than ", rows));
    }
    rows = overhead.rows;
    SKEIN_RETURN_IF_ERROR(CheckDuration(at + ".step", overhead.step));
    SKEIN_RETURN_IF_ERROR(CheckDuration(at + ".layer", overhead.layer));
  }
  for (size_t i = 0; i < rates.attention.size(); ++i) {
    const AttentionRate& attention = rates.attention[i];
    const std::string at = absl::StrCat(where, ".attention[", i, "]");
    if (attention.rows < 1) return Error(at, absl::StrCat(attention.rows, " rows are none"));
    SKEIN_RETURN_IF_ERROR(CheckAmount(at, attention.bytes_per_s));
    if (attention.bytes_per_s == 0) return Error(at, "a rate of 0 never ends");
    SKEIN_RETURN_IF_ERROR(CheckAmount(at, attention.operations_per_s));
    SKEIN_RETURN_IF_ERROR(CheckAmount(at, static_cast<double>(attention.working_set_bytes)));
    if (i > 0) SKEIN_RETURN_IF_ERROR(CheckOrder(at, rates.attention[i - 1], attention));
  }
  SKEIN_RETURN_IF_ERROR(CheckAmount(where + ".passed_values_per_s", rates.passed_values_per_s));
  return CheckAmount(where + ".spread", rates.spread);
}

absl::Status CheckLink(const std::string& where, const LinkRate& link) {
  SKEIN_RETURN_IF_ERROR(CheckAmount(where + ".bytes_per_s", link.bytes_per_s));
  SKEIN_RETURN_IF_ERROR(CheckAmount(where + ".spread", link.spread));
  return CheckDuration(where + ".latency", link.latency);
}

absl::Status CheckSlowPairs(const std::string& where, const Interconnect& of) {
  const auto gpus = static_cast<int32_t>(of.gpus.size());
  std::pair<int32_t, int32_t> before = {-1, -1};
  for (size_t i = 0; i < of.slow_pairs.size(); ++i) {
    const SlowPair& pair = of.slow_pairs[i];
    const std::string at = absl::StrCat(where, ".slow_pairs[", i, "]");
    const std::pair<int32_t, int32_t> now = {pair.first, pair.second};
    if (pair.first < 0 || pair.first >= pair.second || pair.second >= gpus || now <= before) {
      return Error(at, absl::StrCat("GPUs ", pair.first, " and ", pair.second, " of ", gpus,
                                    ": pairs go up, the lower GPU first, each once"));
    }
    before = now;
    SKEIN_RETURN_IF_ERROR(CheckLink(at, pair.link));
    if (pair.link.bytes_per_s == 0) return Error(at, "it carries nothing");
  }
  return absl::OkStatus();
}

absl::Status CheckConnections(const std::string& where, const Interconnect& of) {
  const size_t devices = of.gpus.size() + of.nics.size();
  if (of.connections.size() != devices) {
    return Error(where, absl::StrCat("connections of ", of.connections.size(), " devices, where ",
                                     devices, " are"));
  }
  for (size_t i = 0; i < devices; ++i) {
    const std::string row = absl::StrCat(where, ".connections[", i, "]");
    if (of.connections[i].size() != devices) {
      return Error(row, absl::StrCat("it leads to ", of.connections[i].size(), " devices, where ",
                                     devices, " are"));
    }
    for (size_t j = 0; j < devices; ++j) {
      const Connection& connection = of.connections[i][j];
      const std::string at = absl::StrCat(row, "[", j, "]");
      if ((connection.path == Path::kSelf) != (i == j)) {
        return Error(at, "X stands for a device and itself, and for nothing else");
      }
      if ((connection.path == Path::kNvlink) != (connection.nvlinks > 0)) {
        return Error(at, absl::StrCat(connection.nvlinks, " NVLinks over ",
                                      std::string(PathName(connection.path))));
      }
      if (i > j && !(connection == of.connections[j][i])) {
        return Error(at, absl::StrCat("it is ", ToString(connection), ", and ",
                                      ToString(of.connections[j][i]), " the other way"));
      }
    }
  }
  return absl::OkStatus();
}

absl::Status CheckInterconnect(const std::string& where, const Interconnect& of) {
  if (of.gpus.size() > kMaxGpusOfHost || of.nics.size() > kMaxGpusOfHost) {
    return Error(where, absl::StrCat("more than ", kMaxGpusOfHost, " GPUs or NICs"));
  }
  for (size_t i = 0; i < of.gpus.size(); ++i) {
    const std::string at = absl::StrCat(where, ".gpus[", i, "]");
    SKEIN_RETURN_IF_ERROR(
        CheckAmount(at + ".memory_bytes", static_cast<double>(of.gpus[i].memory_bytes)));
    SKEIN_RETURN_IF_ERROR(CheckRates(at + ".rates", of.gpus[i].rates));
    SKEIN_RETURN_IF_ERROR(CheckLink(at + ".to_host", of.gpus[i].to_host));
  }
  for (size_t i = 0; i < of.nics.size(); ++i) {
    SKEIN_RETURN_IF_ERROR(
        CheckAmount(absl::StrCat(where, ".nics[", i, "].bytes_per_s"), of.nics[i].bytes_per_s));
  }
  SKEIN_RETURN_IF_ERROR(CheckSlowPairs(where, of));
  return CheckConnections(where, of);
}

absl::Status CheckExchange(const std::string& where, const ExchangeCurve& curve) {
  if (curve.ranks < 2 || curve.ranks > kMaxHosts) {
    return Error(where, absl::StrCat("an exchange of ", curve.ranks, " ranks"));
  }
  if (curve.ranks_per_host < 1 || curve.ranks % curve.ranks_per_host != 0 ||
      (!curve.across && curve.ranks_per_host > 1)) {
    return Error(where, absl::StrCat(curve.ranks, " ranks, ", curve.ranks_per_host, " of a host"));
  }
  if (curve.times.empty()) return Error(where, "no times");
  SKEIN_RETURN_IF_ERROR(CheckAmount(where + ".spread", curve.spread));
  int64_t before = -1;
  for (size_t i = 0; i < curve.times.size(); ++i) {
    const std::string at = absl::StrCat(where, ".times[", i, "]");
    if (curve.times[i].bytes <= before)
      return Error(at, "its bytes are not more than those before");
    before = curve.times[i].bytes;
    SKEIN_RETURN_IF_ERROR(CheckDuration(at, curve.times[i].time));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckHost(const std::string& where, const Host& host) {
  if (host.cores < 0 || host.cores > kMaxProcessors) {
    return Error(where, absl::StrCat(host.cores, " cores; at most ", kMaxProcessors, " can be"));
  }
  for (const int64_t amount :
       {int64_t{host.sockets}, host.memory_bytes, host.l2_bytes, host.l3_bytes, host.shm_bytes}) {
    SKEIN_RETURN_IF_ERROR(CheckAmount(where, static_cast<double>(amount)));
  }
  if (host.numa_nodes.size() > kMaxProcessors) return Error(where, "too many NUMA nodes");
  for (size_t i = 0; i < host.numa_nodes.size(); ++i) {
    SKEIN_RETURN_IF_ERROR(CheckAmount(absl::StrCat(where, ".numa_nodes[", i, "]"),
                                      static_cast<double>(host.numa_nodes[i].memory_bytes)));
  }
  SKEIN_RETURN_IF_ERROR(CheckInterconnect(where + ".interconnect", host.interconnect));
  SKEIN_RETURN_IF_ERROR(CheckInterconnect(where + ".whole", host.whole));
  SKEIN_RETURN_IF_ERROR(CheckRates(where + ".core_rates", host.core_rates));
  for (size_t i = 0; i < host.links.size(); ++i) {
    const std::string at = absl::StrCat(where, ".links[", i, "]");
    SKEIN_RETURN_IF_ERROR(CheckLink(at, host.links[i].second));
    if (i > 0 && host.links[i - 1].first >= host.links[i].first) {
      return Error(at, "paths go from the nearest to the farthest, each once");
    }
  }
  for (size_t i = 0; i < host.exchanges.size(); ++i) {
    SKEIN_RETURN_IF_ERROR(
        CheckExchange(absl::StrCat(where, ".exchanges[", i, "]"), host.exchanges[i]));
  }
  return absl::OkStatus();
}

bool AlikeButForName(const Host& a, const Host& b) {
  Host renamed = b;
  renamed.name = a.name;
  return a == renamed;
}

absl::Status CheckTopology(const Topology& topology) {
  if (topology.hosts.empty() || topology.hosts.size() > kMaxHosts) {
    return Error("hosts",
                 absl::StrCat(topology.hosts.size(), " of them; 1 to ", kMaxHosts, " can be"));
  }
  std::set<std::string> names;
  for (size_t i = 0; i < topology.hosts.size(); ++i) {
    const std::string at = absl::StrCat("hosts[", i, "]");
    SKEIN_RETURN_IF_ERROR(CheckHost(at, topology.hosts[i]));
    if (!names.insert(topology.hosts[i].name).second) {
      return Error(at, absl::StrCat("another host is called ", topology.hosts[i].name, ", too"));
    }
  }
  return CheckLink("fabric.link", topology.fabric.link);
}

}  // namespace skein::topology
