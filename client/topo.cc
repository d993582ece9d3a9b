#include "client/topo.h"

#include <algorithm>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "base/dtype.h"
#include "base/file.h"
#include "base/flags/flags.h"
#include "base/list_item.h"
#include "base/status_macros.h"
#include "base/status_util.h"
#include "base/units.h"
#include "client/gpu_health.h"
#include "proto/convert/machines_json.h"
#include "topology/cpus.h"
#include "topology/draw/dot.h"
#include "topology/draw/svg.h"
#include "topology/host/detect.h"
#include "topology/interconnect.h"
#include "topology/rates.h"
#include "topology/topology.h"

namespace skein::client {
namespace {

using topology::Host;
using topology::Interconnect;

std::vector<std::string> NamesOf(const Interconnect& of, const std::vector<int>& gpus) {
  std::vector<std::string> names;
  for (const int gpu : gpus) names.push_back(of.gpus[gpu].name);
  return names;
}

std::string NameOf(const topology::Nic& nic) {
  const bool both = !nic.device.empty() && nic.device != nic.name;
  return both ? absl::StrCat(nic.name, " (", nic.device, ")") : nic.name;
}

void PrintMatrix(const Interconnect& of) {
  std::vector<std::string> names;
  for (const topology::Gpu& gpu : of.gpus) names.push_back(gpu.name);
  for (const topology::Nic& nic : of.nics) names.push_back(nic.name);
  size_t width = 4;
  for (const std::string& name : names) width = std::max(width, name.size());
  const auto cell = [width](const std::string& text) {
    return absl::StrFormat("  %-*s", static_cast<int>(width), text);
  };
  std::string header = cell("");
  for (const std::string& name : names) absl::StrAppend(&header, cell(name));
  absl::PrintF("%s\n", absl::StripTrailingAsciiWhitespace(header));
  for (size_t i = 0; i < of.gpus.size(); ++i) {
    std::string row = cell(names[i]);
    for (size_t j = 0; j < names.size(); ++j) {
      absl::StrAppend(&row, cell(i == j ? "-" : topology::ToString(of.connections[i][j])));
    }
    absl::PrintF("%s\n", absl::StripTrailingAsciiWhitespace(row));
  }
}

void PrintGpus(const Interconnect& of) {
  for (size_t i = 0; i < of.gpus.size(); ++i) {
    const topology::Gpu& gpu = of.gpus[i];
    std::vector<std::string> near;
    if (!gpu.cpus.empty()) near.push_back(absl::StrCat("cores ", topology::FormatCpus(gpu.cpus)));
    if (gpu.numa_node >= 0) near.push_back(absl::StrCat("NUMA node ", gpu.numa_node));
    std::vector<std::string> nics;
    for (const int nic : topology::NearestNics(of, static_cast<int>(i))) {
      nics.push_back(absl::StrCat(NameOf(of.nics[nic]), " over ",
                                  topology::ToString(of.OfGpuAndNic(static_cast<int>(i), nic))));
    }
    if (!nics.empty()) near.push_back(absl::StrJoin(nics, " and "));
    absl::PrintF("%s: %s\n", gpu.name, near.empty() ? "nothing told" : absl::StrJoin(near, ", "));
  }
}

void PrintInterconnect(const Interconnect& of) {
  absl::PrintF("%s, %s\n\n", FormatCount(static_cast<int64_t>(of.gpus.size()), "GPU"),
               FormatCount(static_cast<int64_t>(of.nics.size()), "NIC"));
  PrintMatrix(of);
  absl::PrintF(
      "\nNV#: # NVLinks. PIX, PXB: one or several PCIe switches. PHB: a PCIe host bridge.\n"
      "NODE: host bridges of a NUMA node. SYS: the link between NUMA nodes.\n\n");
  PrintGpus(of);
  std::vector<std::string> islands;
  for (const std::vector<int>& island : topology::Islands(of)) {
    islands.push_back(absl::StrJoin(NamesOf(of, island), " "));
  }
  absl::PrintF("\nNVLink connects each two of: %s\n", absl::StrJoin(islands, " | "));
}

// What a host has besides GPUs and NICs; nothing where nothing is told.
void PrintHost(const Host& host) {
  if (host.cores == 0) return;
  std::vector<std::string> has = {FormatCount(host.cores, "core")};
  if (host.sockets > 0) has.back() += absl::StrCat(" on ", FormatCount(host.sockets, "socket"));
  if (!host.cpu.empty()) has.push_back(host.cpu);
  has.push_back(FormatBytes(host.memory_bytes) + " of memory");
  if (!host.numa_nodes.empty()) {
    has.push_back(FormatCount(static_cast<int64_t>(host.numa_nodes.size()), "NUMA node"));
  }
  if (host.l2_bytes > 0) has.push_back(absl::StrCat("L2 ", FormatBytes(host.l2_bytes), " a core"));
  if (host.l3_bytes > 0) has.push_back(absl::StrCat("L3 ", FormatBytes(host.l3_bytes)));
  if (host.shm_bytes > 0) has.push_back(absl::StrCat("/dev/shm ", FormatBytes(host.shm_bytes)));
  absl::PrintF("%s: %s\n\n", host.name, absl::StrJoin(has, ", "));
}

std::string ShortTime(absl::Duration time) {
  return time < absl::Microseconds(999.5)
             ? absl::StrFormat("%.3g us", absl::ToDoubleMicroseconds(time))
             : FormatMilliseconds(time);
}

std::string RatesName(const topology::DeviceRates& rates) {
  const topology::ReadRate& read = rates.reads.back();
  std::string text = absl::StrCat("reads ", FormatBytesPerSecond(read.alone_bytes_per_s));
  if (read.together_bytes_per_s > 0 && read.together_bytes_per_s < 0.98 * read.alone_bytes_per_s) {
    absl::StrAppend(&text, " (", FormatBytesPerSecond(read.together_bytes_per_s),
                    " beside others)");
  }
  if (!rates.products.empty()) {
    const topology::ProductRate& most = *std::max_element(
        rates.products.begin(), rates.products.end(),
        [](const auto& a, const auto& b) { return a.operations_per_s < b.operations_per_s; });
    const bool tera = most.operations_per_s >= 1e12;
    absl::StrAppend(&text, absl::StrFormat(", multiplies %.4g %sFLOP/s in %s",
                                           most.operations_per_s / (tera ? 1e12 : 1e9),
                                           tera ? "T" : "G", std::string(DTypeName(most.dtype))));
  }
  if (!rates.overheads.empty()) {
    const topology::Overhead& least = rates.overheads.front();
    absl::StrAppend(&text, ",\n  and a step costs ", ShortTime(least.step), ", each of its layers ",
                    ShortTime(least.layer));
    if (const topology::Overhead& most = rates.overheads.back(); most.rows > least.rows) {
      absl::StrAppend(&text, ", or with ", most.rows, " rows ", ShortTime(most.step), " and ",
                      ShortTime(most.layer));
    }
  }
  if (!rates.attention.empty()) {
    const topology::AttentionRate& most = rates.attention.back();
    absl::StrAppend(&text, ",\n  contexts of ", FormatCount(most.rows, "sequence"), " are read at ",
                    FormatBytesPerSecond(most.bytes_per_s));
  }
  return absl::StrCat(text, " (", topology::OriginText(rates.origin, rates.spread), ")");
}

// "reads of 1.0 MiB 41.2 GB/s, of 4.0 MiB ...": caches give more.
std::string ReadsName(const topology::DeviceRates& rates) {
  std::vector<std::string> sets;
  for (const topology::ReadRate& of : rates.reads) {
    sets.push_back(absl::StrCat("of ", FormatBytes(of.working_set_bytes), " ",
                                FormatBytesPerSecond(of.alone_bytes_per_s)));
  }
  return absl::StrCat("reads ", absl::StrJoin(sets, ", "));
}

// Times by size, a line for each exchange and group.
void PrintExchanges(const Host& host) {
  if (host.exchanges.empty()) return;
  absl::PrintF("\nexchanges of ranks\n");
  for (const topology::ExchangeCurve& curve : host.exchanges) {
    std::vector<std::string> times;
    for (const topology::ExchangeTime& time : curve.times) {
      times.push_back(absl::StrCat(FormatBytes(time.bytes), " ", ShortTime(time.time)));
    }
    std::string group = absl::StrCat(curve.ranks, curve.alone ? " ranks alone" : " ranks");
    if (curve.across) {
      const int32_t each = curve.ranks_per_host;
      group = absl::StrCat(curve.ranks / each, " hosts",
                           each > 1 ? absl::StrCat(" of ", each, " ranks") : "");
    }
    absl::PrintF("  %-13s  %s: %s (%s)\n", std::string(topology::ExchangeName(curve.exchange)),
                 group, absl::StrJoin(times, ", "),
                 topology::OriginText(topology::Origin::kMeasured, curve.spread));
  }
}

// Of this host, as it is found.
void PrintHealth(const std::optional<std::string>& visible_devices) {
  const absl::StatusOr<topology::DetectedHost> detected =
      topology::DetectHostAndHealth({.visible_devices = visible_devices});
  if (!detected.ok()) return;  // the driver answered a moment ago
  for (size_t i = 0; i < detected->health.size(); ++i) {
    if (i == 0) absl::PrintF("\n");
    for (const std::string& line :
         DescribeHealth(detected->host.interconnect.gpus[i], detected->health[i])) {
      absl::PrintF("%s\n", line);
    }
  }
}

std::string NameOf(topology::Path path) {
  if (path == topology::Path::kSelf) return "between two cores";
  return path == topology::Path::kNvlink ? "an NVLink" : std::string(PathName(path));
}

// Alike GPUs are shown once.
void PrintGpuRates(const std::vector<topology::Gpu>& gpus) {
  for (size_t i = 0; i < gpus.size();) {
    const topology::Gpu& gpu = gpus[i];
    size_t end = i + 1;
    while (end < gpus.size() && gpus[end].model == gpu.model &&
           gpus[end].memory_bytes == gpu.memory_bytes && gpus[end].rates == gpu.rates) {
      ++end;
    }
    if (!gpu.rates.reads.empty()) {
      absl::PrintF("%s%s: %s, %s\n  %s\n", gpu.name,
                   end > i + 1 ? absl::StrCat(" to ", gpus[end - 1].name) : "", gpu.model,
                   FormatBytes(gpu.memory_bytes), RatesName(gpu.rates));
      if (gpu.to_host.bytes_per_s > 0) {
        absl::PrintF("  copies to its host and back: %s, %s (%s)\n",
                     FormatBytesPerSecond(gpu.to_host.bytes_per_s), ShortTime(gpu.to_host.latency),
                     topology::OriginText(gpu.to_host.origin, gpu.to_host.spread));
      }
    }
    i = end;
  }
}

void PrintRates(const Host& host) {
  PrintGpuRates(host.interconnect.gpus);
  if (!host.core_rates.reads.empty()) {
    absl::PrintF("a core %s\n", RatesName(host.core_rates));
    if (host.core_rates.reads.size() > 1) absl::PrintF("%s", ListItem(ReadsName(host.core_rates)));
  }
  for (const auto& [path, link] : host.links) {
    if (link.bytes_per_s == 0) continue;
    absl::PrintF("%s: %s each way, %s (%s)\n", NameOf(path), FormatBytesPerSecond(link.bytes_per_s),
                 ShortTime(link.latency), topology::OriginText(link.origin, link.spread));
  }
  for (const auto& [first, second, link] : host.interconnect.slow_pairs) {
    const auto& gpus = host.interconnect.gpus;
    absl::PrintF("%s and %s: only %s each way, %s (%s)\n", gpus[first].name, gpus[second].name,
                 FormatBytesPerSecond(link.bytes_per_s), ShortTime(link.latency),
                 topology::OriginText(link.origin, link.spread));
  }
}

// Alike hosts are shown once.
void Print(const topology::Topology& topology) {
  for (size_t i = 0; i < topology.hosts.size();) {
    const Host& host = topology.hosts[i];
    size_t end = i + 1;
    while (end < topology.hosts.size() && AlikeButForName(host, topology.hosts[end])) ++end;
    if (topology.hosts.size() > 1) {
      absl::PrintF(
          "%s%s%s\n", i > 0 ? "\n" : "", host.name,
          end > i + 1 ? absl::StrCat(" to ", topology.hosts[end - 1].name, ", alike") : "");
    }
    PrintHost(host);
    if (!host.interconnect.gpus.empty()) PrintInterconnect(host.interconnect);
    PrintRates(host);
    PrintExchanges(host);
    i = end;
  }
  const topology::LinkRate& link = topology.fabric.link;
  if (link.bytes_per_s > 0) {
    const std::string& name = topology.fabric.name;
    absl::PrintF("\nbetween hosts: %s%s%s from NIC to NIC, %s (%s)\n", name,
                 name.empty() ? "" : ", ", FormatBytesPerSecond(link.bytes_per_s),
                 ShortTime(link.latency), topology::OriginText(link.origin, link.spread));
  }
}

absl::Status Draw(const TopoFlags& flags, const topology::Topology& topology,
                  const std::vector<topology::RankLabel>& ranks) {
  if (!flags.svg_file.empty()) {
    SKEIN_RETURN_IF_ERROR(
        Annotate(WriteFile(flags.svg_file, topology::TopologySvg(topology, ranks)), "--svg"));
  }
  if (flags.dot_file.empty()) return absl::OkStatus();
  return Annotate(WriteFile(flags.dot_file, topology::TopologyDot(topology, ranks)), "--dot");
}

}  // namespace

void DeclareTopo(CLI::App& command, TopoFlags& flags) {
  command
      .add_option("machines", flags.topology.source,
                  absl::StrCat("A file: Skein's JSON, XML of NCCL or of hwloc, or what `nvidia-smi "
                               "topo -m` printed; -: standard input, as in `nvidia-smi topo -m | "
                               "skein topo -`. Or ",
                               SourceNames(), ". Default: this host, as it is found"))
      ->check(NotEmpty());
  DeclareTopologyFlags(command, flags.topology);
  DeclareProbeFlags(command, flags.probe);
  // They are of machines that cannot be measured from here.
  for (const char* name : {"machines", "--nodes", "--fabric", "--nvlinks", "--like"}) {
    command.get_option("--probe")->excludes(command.get_option(name));
  }
  command
      .add_option("--svg", flags.svg_file,
                  "Draw them into this SVG file, too; live: with the ranks of the jobs")
      ->check(NotEmpty());
  command.add_option("--dot", flags.dot_file, "Write them for Graphviz into this file, too")
      ->check(NotEmpty());
  command.add_flag("--json", flags.json, "Print JSON, which `skein plan --topology` reads");
}

int Topo(const TopoFlags& flags) {
  const std::optional<std::string>& visible = flags.topology.visible_devices;
  std::vector<topology::RankLabel> ranks;
  const absl::StatusOr<topology::Topology> read =
      flags.probe.probe ? ProbeHost(flags.probe, visible) : ReadTopology(flags.topology, &ranks);
  if (!read.ok()) {
    absl::FPrintF(stderr, "skein: %s\n", std::string(read.status().message()));
    return kExitError;
  }
  if (const absl::Status drawn = Draw(flags, *read, ranks); !drawn.ok()) {
    absl::FPrintF(stderr, "skein: %s\n", std::string(drawn.message()));
    return kExitError;
  }
  if (flags.json) {
    absl::PrintF("%s\n", convert::TopologyToJson(*read));
  } else {
    Print(*read);
    if (flags.topology.source.empty()) PrintHealth(visible);
  }
  return kExitOk;
}

}  // namespace skein::client
