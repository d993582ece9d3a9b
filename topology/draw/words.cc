#include "topology/draw/words.h"

#include <array>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "base/units.h"

namespace skein::topology::draw {
namespace {

constexpr char kDot[] = " · ";

// Three digits that count, and no zeros behind the point.
std::string ThreeDigits(double value) {
  const int decimals = value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;
  std::string digits = absl::StrFormat("%.*f", decimals, value);
  if (decimals == 0) return digits;
  while (digits.back() == '0') digits.pop_back();
  if (digits.back() == '.') digits.pop_back();
  return digits;
}

template <size_t kCount>
std::string InUnits(double value, double base, const std::array<const char*, kCount>& units) {
  size_t unit = 0;
  while (unit + 1 < kCount && value >= base * 0.9995) {
    value /= base;
    ++unit;
  }
  return absl::StrCat(ThreeDigits(value), " ", units[unit]);
}

const LinkRate* RateOf(const Host& host, Path path) {
  for (const auto& [of, rate] : host.links) {
    if (of == path && rate.bytes_per_s > 0) return &rate;
  }
  return nullptr;
}

std::string LatencyWords(absl::Duration latency) {
  return absl::StrCat(ThreeDigits(absl::ToDoubleMicroseconds(latency)), " µs");
}

// "rates measured, links modelled"; the first one alone where they agree.
std::string OriginWords(const Host& host) {
  std::set<std::string> devices, links;
  const auto add = [](Origin origin, std::set<std::string>& to) {
    if (origin != Origin::kUnknown) to.insert(std::string(OriginName(origin)));
  };
  for (const Gpu& gpu : host.interconnect.gpus) add(gpu.rates.origin, devices);
  add(host.core_rates.origin, devices);
  for (const auto& [path, rate] : host.links) add(rate.origin, links);
  if (devices.empty() && links.empty()) return "";
  if (devices.empty() || links.empty() || devices == links) {
    return absl::StrCat("figures ", absl::StrJoin(devices.empty() ? links : devices, " and "));
  }
  return absl::StrCat("devices ", absl::StrJoin(devices, " and "), ", links ",
                      absl::StrJoin(links, " and "));
}

// The counts of NVLinks between two GPUs of a mesh that are joined, ascending.
std::set<int32_t> CountsOf(const Interconnect& of, const NvlinkMesh& mesh) {
  std::set<int32_t> counts;
  for (const int i : mesh.gpus) {
    for (const int j : mesh.gpus) {
      if (of.OfGpus(i, j).path == Path::kNvlink) counts.insert(of.OfGpus(i, j).nvlinks);
    }
  }
  return counts;
}

}  // namespace

std::string ShortBytes(int64_t bytes) {
  return InUnits<5>(static_cast<double>(bytes), 1024, {"B", "KiB", "MiB", "GiB", "TiB"});
}

std::string ShortRate(double bytes_per_s) {
  return InUnits<5>(bytes_per_s, 1000, {"B/s", "kB/s", "MB/s", "GB/s", "TB/s"});
}

std::string ShortModel(std::string_view model) {
  std::string name = absl::StrReplaceAll(absl::string_view(model.data(), model.size()),
                                         {{"(R)", ""}, {"(TM)", ""}, {"(tm)", ""}});
  absl::string_view rest = name;
  for (const char* maker : {"NVIDIA ", "AMD ", "Intel ", "Tesla ", "GeForce "}) {
    absl::ConsumePrefix(&rest, maker);
  }
  const size_t clock = rest.find(" @ ");  // "Xeon CPU @ 2.00GHz"
  return std::string(absl::StripSuffix(rest.substr(0, clock), " CPU"));
}

std::string RateOf(const Host& host, const Connection& connection) {
  const LinkRate* const rate = RateOf(host, connection.path);
  if (rate == nullptr) return "";
  const int32_t links = connection.path == Path::kNvlink ? connection.nvlinks : 1;
  return ShortRate(rate->bytes_per_s * links);
}

std::string ConnectionWords(const Host& host, const Connection& connection) {
  const std::string rate = RateOf(host, connection);
  return absl::StrCat(ToString(connection), rate.empty() ? "" : kDot, rate);
}

std::string_view PathWords(Path path) {
  switch (path) {
    case Path::kSelf:
      return "the same";
    case Path::kNvlink:
      return "NVLink";
    case Path::kSwitch:
      return "PCIe switch";
    case Path::kSwitches:
      return "PCIe switches";
    case Path::kBridge:
      return "host bridge";
    case Path::kNode:
      return "host bridges";
    case Path::kSystem:
      return "between NUMA nodes";
  }
  return "";
}

std::string MeshWords(const Host& host, const NvlinkMesh& mesh) {
  const Interconnect& of = host.interconnect;
  std::string words = "NVLink";
  if (of.nvswitches > 0) {
    words = "NVSwitch";
    if (NvlinkMeshesOf(of).size() == 1) absl::StrAppend(&words, " × ", of.nvswitches);
  }
  const std::set<int32_t> counts = CountsOf(of, mesh);
  if (counts.empty()) return words;
  const Connection least = {Path::kNvlink, *counts.begin()};
  const Connection most = {Path::kNvlink, *counts.rbegin()};
  absl::StrAppend(&words, kDot, ToString(least));
  if (!(least == most)) absl::StrAppend(&words, " to ", ToString(most));
  const LinkRate* const rate = RateOf(host, Path::kNvlink);
  if (rate == nullptr) return words;
  absl::StrAppend(&words, kDot);
  if (!(least == most)) absl::StrAppend(&words, RateOf(host, least), " to ");
  return absl::StrCat(words, RateOf(host, most), " each way");
}

std::string ReadWords(const DeviceRates& rates) {
  if (rates.reads.empty()) return "";
  return ShortRate(rates.reads.back().alone_bytes_per_s);
}

std::string NicWords(const Nic& nic) {
  std::vector<std::string> facts;
  if (nic.kind == NicKind::kEthernet) facts.push_back("Ethernet");
  if (nic.kind == NicKind::kInfiniBand) facts.push_back("InfiniBand");
  if (nic.bytes_per_s > 0) facts.push_back(ShortRate(nic.bytes_per_s));
  return absl::StrJoin(facts, kDot);
}

std::vector<std::string> NodeFacts(const Host& host, int32_t numa_node) {
  if (numa_node < 0) return {"NUMA node not told"};
  std::vector<std::string> facts = {absl::StrCat("NUMA ", numa_node)};
  if (numa_node >= static_cast<int32_t>(host.numa_nodes.size())) return facts;
  const NumaNode& node = host.numa_nodes[numa_node];
  if (node.memory_bytes > 0) facts.push_back(ShortBytes(node.memory_bytes));
  if (!node.cpus.empty()) facts.push_back(absl::StrCat("CPUs ", FormatCpus(node.cpus)));
  return facts;
}

std::string FabricWords(const Fabric& fabric) {
  std::vector<std::string> facts = {fabric.name.empty() ? "fabric" : fabric.name};
  if (fabric.link.bytes_per_s > 0) {
    facts.push_back(absl::StrCat(ShortRate(fabric.link.bytes_per_s), " a NIC each way"));
  }
  if (fabric.link.latency > absl::ZeroDuration()) {
    facts.push_back(LatencyWords(fabric.link.latency));
  }
  if (fabric.link.origin != Origin::kUnknown) {
    facts.push_back(std::string(OriginName(fabric.link.origin)));
  }
  return absl::StrJoin(facts, kDot);
}

std::vector<std::string> HostFacts(const Host& host) {
  std::vector<std::string> facts;
  if (!host.cpu.empty()) facts.push_back(ShortModel(host.cpu));
  if (host.sockets > 0) facts.push_back(FormatCount(host.sockets, "socket"));
  facts.push_back(FormatCount(host.cores, "core"));
  if (host.l2_bytes > 0) facts.push_back(absl::StrCat("L2 ", ShortBytes(host.l2_bytes), " a core"));
  if (host.l3_bytes > 0) facts.push_back(absl::StrCat("L3 ", ShortBytes(host.l3_bytes)));
  if (host.memory_bytes > 0) {
    facts.push_back(absl::StrCat(ShortBytes(host.memory_bytes), " of memory"));
  }
  if (!host.core_rates.reads.empty()) {
    const ReadRate& read = host.core_rates.reads.back();
    std::string words = absl::StrCat("a core reads ", ShortRate(read.alone_bytes_per_s));
    if (read.together_bytes_per_s != read.alone_bytes_per_s) {
      absl::StrAppend(&words, " alone, ", ShortRate(read.together_bytes_per_s), " with all");
    }
    facts.push_back(std::move(words));
  }
  return facts;
}

std::vector<std::string> WayFacts(const Host& host) {
  std::vector<std::string> facts;
  for (const auto& [path, rate] : host.links) {
    if (rate.bytes_per_s == 0) continue;
    std::string words;
    if (path == Path::kSelf) {
      words = absl::StrCat("between ranks on cores ", ShortRate(rate.bytes_per_s));
    } else if (path == Path::kNvlink) {
      words = absl::StrCat("NVLink ", ShortRate(rate.bytes_per_s), " a link");
    } else {
      words = absl::StrCat(std::string(PathName(path)), " ", ShortRate(rate.bytes_per_s));
    }
    if (rate.latency > absl::ZeroDuration()) {
      absl::StrAppend(&words, ", ", LatencyWords(rate.latency));
    }
    facts.push_back(std::move(words));
  }
  constexpr size_t kShown = 3;  // a bad card has as many as it has peers
  const std::vector<SlowPair>& slow = host.interconnect.slow_pairs;
  for (size_t i = 0; i < std::min(slow.size(), kShown); ++i) {
    const std::vector<Gpu>& gpus = host.interconnect.gpus;
    facts.push_back(absl::StrCat(gpus[slow[i].first].name, " and ", gpus[slow[i].second].name,
                                 " only ", ShortRate(slow[i].link.bytes_per_s), ", ",
                                 LatencyWords(slow[i].link.latency)));
  }
  if (slow.size() > kShown) {
    facts.push_back(FormatCount(static_cast<int64_t>(slow.size() - kShown), "more slow pair"));
  }
  if (std::string origin = OriginWords(host); !origin.empty()) facts.push_back(std::move(origin));
  return facts;
}

std::vector<std::string> TopologyFacts(const Topology& topology) {
  int64_t gpus = 0, gpu_bytes = 0, cores = 0, bytes = 0;
  std::set<std::string> models;
  for (const Host& host : topology.hosts) {
    gpus += static_cast<int64_t>(host.interconnect.gpus.size());
    for (const Gpu& gpu : host.interconnect.gpus) {
      gpu_bytes += gpu.memory_bytes;
      models.insert(ShortModel(gpu.model));
    }
    cores += host.cores;
    bytes += host.memory_bytes;
  }
  std::vector<std::string> facts = {
      FormatCount(static_cast<int64_t>(topology.hosts.size()), "host")};
  if (gpus > 0) {
    facts.push_back(FormatCount(gpus, "GPU"));
    if (models.size() == 1 && !models.begin()->empty()) facts.push_back(*models.begin());
    if (gpu_bytes > 0) facts.push_back(absl::StrCat(ShortBytes(gpu_bytes), " of GPU memory"));
  }
  facts.push_back(FormatCount(cores, "core"));
  if (bytes > 0) facts.push_back(absl::StrCat(ShortBytes(bytes), " of memory"));
  return facts;
}

std::vector<std::string> LeftOutFacts(const Topology& topology, const ShownHost& shown,
                                      int64_t ranks) {
  const std::vector<int>& hosts = shown.left_out;
  std::vector<std::string> facts = {
      absl::StrCat("… ", hosts.size(), " more", shown.left_out_alike ? ", alike" : "")};
  const std::string& first = topology.hosts[hosts.front()].name;
  facts.push_back(
      hosts.size() == 1 ? first : absl::StrCat(first, " to ", topology.hosts[hosts.back()].name));
  if (ranks > 0) facts.push_back(FormatCount(ranks, "rank"));
  return facts;
}

}  // namespace skein::topology::draw
