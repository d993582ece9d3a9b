#include "proto/convert/machines.h"

#include <array>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "base/dtype.h"
#include "base/printable.h"
#include "base/status_macros.h"
#include "base/status_util.h"
#include "base/units.h"
#include "topology/cpus.h"
#include "topology/interconnect.h"

namespace skein::convert {
namespace {

namespace v1 = topology::v1;
using topology::Path;

// The value of `values` that `name_of` calls `name`.
template <typename T, size_t n>
absl::StatusOr<T> Named(const std::array<T, n>& values, std::string_view (*name_of)(T),
                        const std::string& name, std::string_view where) {
  std::string known;
  for (const T value : values) {
    if (name_of(value) == name) return value;
    absl::StrAppend(&known, known.empty() ? "" : ", ", "'", std::string(name_of(value)), "'");
  }
  return absl::InvalidArgumentError(absl::StrCat(std::string(where), ": '", Printable(name),
                                                 "' is not known; there are: ", known));
}

constexpr std::array kPaths = {Path::kSelf,   Path::kNvlink, Path::kSwitch, Path::kSwitches,
                               Path::kBridge, Path::kNode,   Path::kSystem};
constexpr std::array kOrigins = {topology::Origin::kUnknown, topology::Origin::kModelled,
                                 topology::Origin::kMeasured};
constexpr std::array kNicKinds = {topology::NicKind::kUnknown, topology::NicKind::kEthernet,
                                  topology::NicKind::kInfiniBand};
constexpr std::array kExchanges = {topology::Exchange::kAllReduce, topology::Exchange::kAllGather,
                                   topology::Exchange::kSendReceive,
                                   topology::Exchange::kSendToAwake,
                                   topology::Exchange::kTokenReturn};

// Names go to terminals.
// Of several hosts, with room for the number that each gets behind it.
const size_t kMostShared = kMaxNameBytes - std::to_string(topology::kMaxHosts).size();

std::string Name(const std::string& text) { return Printable(text, kMaxNameBytes); }

absl::StatusOr<topology::Origin> ParseOrigin(const std::string& name, std::string_view where) {
  return Named(kOrigins, topology::OriginName, name, where);
}

// "NV18", "PIX".
absl::StatusOr<topology::Connection> ParseConnection(std::string_view text,
                                                     std::string_view where) {
  topology::Connection connection;
  std::string name(text);
  absl::string_view links(text.data(), text.size());
  if (absl::ConsumePrefix(&links, "NV") && !links.empty()) {
    if (!absl::SimpleAtoi(links, &connection.nvlinks)) connection.nvlinks = 0;
    name = connection.nvlinks > 0 ? "NV" : name;
  }
  SKEIN_ASSIGN_OR_RETURN(connection.path, Named(kPaths, topology::PathName, name, where));
  return connection;
}

// What a description may come to, in bytes of messages and of lists of processors: "0-8191" are
// many, and a host counts as often as it is repeated.
constexpr int64_t kMaxReadBytes = int64_t{64} << 20;

absl::Status Take(int64_t bytes, int64_t& left) {
  left -= bytes;
  if (left >= 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("this comes to more than ", FormatBytes(kMaxReadBytes), " of description"));
}

absl::StatusOr<topology::Cpus> ParseCpuList(const std::string& list, std::string_view where,
                                            int64_t& left) {
  topology::Cpus cpus = topology::ParseCpus(list);
  SKEIN_RETURN_IF_ERROR(Take(static_cast<int64_t>(cpus.size() * sizeof(cpus[0])), left));
  if (cpus.empty() && !list.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(std::string(where), ": '", Printable(list),
                                                   "' is no list of processors like 0-3,8"));
  }
  return cpus;
}

void Write(const topology::DeviceRates& rates, v1::DeviceRates& wire) {
  wire.set_origin(std::string(topology::OriginName(rates.origin)));
  for (const topology::ReadRate& read : rates.reads) {
    v1::DeviceRates::Read& to = *wire.add_reads();
    to.set_working_set_bytes(read.working_set_bytes);
    to.set_alone_bytes_per_s(read.alone_bytes_per_s);
    to.set_together_bytes_per_s(read.together_bytes_per_s);
    to.set_behind_bytes_per_s(read.behind_bytes_per_s);
    to.set_missed_again(read.missed_again);
  }
  for (const topology::ProductRate& product : rates.products) {
    v1::DeviceRates::Product& to = *wire.add_products();
    to.set_dtype(std::string(DTypeName(product.dtype)));
    to.set_rows(product.rows);
    to.set_working_set_bytes(product.working_set_bytes);
    to.set_operations_per_s(product.operations_per_s);
  }
  for (const topology::Overhead& overhead : rates.overheads) {
    v1::DeviceRates::Overhead& to = *wire.add_overheads();
    to.set_rows(overhead.rows);
    to.set_step_us(absl::ToDoubleMicroseconds(overhead.step));
    to.set_layer_us(absl::ToDoubleMicroseconds(overhead.layer));
  }
  for (const topology::AttentionRate& attention : rates.attention) {
    v1::DeviceRates::Attention& to = *wire.add_attention();
    to.set_rows(attention.rows);
    to.set_bytes_per_s(attention.bytes_per_s);
    to.set_operations_per_s(attention.operations_per_s);
    to.set_working_set_bytes(attention.working_set_bytes);
  }
  wire.set_spread(rates.spread);
  wire.set_passed_values_per_s(rates.passed_values_per_s);
}

absl::StatusOr<topology::DeviceRates> Read(const v1::DeviceRates& wire) {
  topology::DeviceRates rates;
  SKEIN_ASSIGN_OR_RETURN(rates.origin, ParseOrigin(wire.origin(), "origin"));
  for (const v1::DeviceRates::Read& read : wire.reads()) {
    rates.reads.push_back({read.working_set_bytes(), read.alone_bytes_per_s(),
                           read.together_bytes_per_s(), read.behind_bytes_per_s(),
                           read.missed_again()});
  }
  for (const v1::DeviceRates::Product& product : wire.products()) {
    const absl::StatusOr<DType> dtype = ParseWeightDType(product.dtype());
    if (!dtype.ok()) return Annotate(dtype.status(), "products");
    rates.products.push_back(
        {*dtype, product.working_set_bytes(), product.rows(), product.operations_per_s()});
  }
  for (const v1::DeviceRates::Overhead& overhead : wire.overheads()) {
    rates.overheads.push_back({overhead.rows(), absl::Microseconds(overhead.step_us()),
                               absl::Microseconds(overhead.layer_us())});
  }
  for (const v1::DeviceRates::Attention& attention : wire.attention()) {
    rates.attention.push_back({attention.rows(), attention.bytes_per_s(),
                               attention.operations_per_s(), attention.working_set_bytes()});
  }
  rates.spread = wire.spread();
  rates.passed_values_per_s = wire.passed_values_per_s();
  return rates;
}

void Write(const topology::LinkRate& link, v1::LinkRate& wire) {
  wire.set_origin(std::string(topology::OriginName(link.origin)));
  wire.set_latency_us(absl::ToDoubleMicroseconds(link.latency));
  wire.set_bytes_per_s(link.bytes_per_s);
  wire.set_spread(link.spread);
}

absl::StatusOr<topology::LinkRate> Read(const v1::LinkRate& wire) {
  topology::LinkRate link;
  SKEIN_ASSIGN_OR_RETURN(link.origin, ParseOrigin(wire.origin(), "origin"));
  link.latency = absl::Microseconds(wire.latency_us());
  link.bytes_per_s = wire.bytes_per_s();
  link.spread = wire.spread();
  return link;
}

void Write(const topology::Interconnect& of, v1::Interconnect& wire) {
  for (const topology::Gpu& gpu : of.gpus) {
    v1::Gpu& to = *wire.add_gpus();
    to.set_name(gpu.name);
    to.set_numa_node(gpu.numa_node);
    to.set_cpus(topology::FormatCpus(gpu.cpus));
    to.set_model(gpu.model);
    to.set_bus_id(gpu.bus_id);
    to.set_memory_bytes(gpu.memory_bytes);
    if (!(gpu.rates == topology::DeviceRates{})) Write(gpu.rates, *to.mutable_rates());
    if (!(gpu.to_host == topology::LinkRate{})) Write(gpu.to_host, *to.mutable_to_host());
  }
  for (const topology::Nic& nic : of.nics) {
    v1::Nic& to = *wire.add_nics();
    to.set_name(nic.name);
    to.set_device(nic.device);
    to.set_bus_id(nic.bus_id);
    to.set_kind(std::string(topology::NicKindName(nic.kind)));
    to.set_bytes_per_s(nic.bytes_per_s);
  }
  for (const std::vector<topology::Connection>& row : of.connections) {
    auto& to = *wire.add_connections()->mutable_to();
    for (const topology::Connection& connection : row) *to.Add() = topology::ToString(connection);
  }
  for (const std::vector<int>& island : topology::Islands(of)) {
    wire.add_islands()->mutable_gpus()->Add(island.begin(), island.end());
  }
  wire.set_nvswitches(of.nvswitches);
  for (const topology::SlowPair& pair : of.slow_pairs) {
    v1::Interconnect::SlowPair& to = *wire.add_slow_pairs();
    to.set_first(pair.first);
    to.set_second(pair.second);
    Write(pair.link, *to.mutable_link());
  }
}

absl::StatusOr<topology::Interconnect> Read(const v1::Interconnect& wire, int64_t& left) {
  topology::Interconnect of;
  for (int i = 0; i < wire.gpus_size(); ++i) {
    const v1::Gpu& gpu = wire.gpus(i);
    const std::string where = absl::StrCat("gpus[", i, "]");
    topology::Gpu to{.name = Name(gpu.name()),
                     .model = Name(gpu.model()),
                     .bus_id = Name(gpu.bus_id()),
                     .memory_bytes = gpu.memory_bytes(),
                     .numa_node = gpu.numa_node()};
    SKEIN_ASSIGN_OR_RETURN(to.cpus, ParseCpuList(gpu.cpus(), where, left));
    absl::StatusOr<topology::DeviceRates> rates = Read(gpu.rates());
    if (!rates.ok()) return Annotate(rates.status(), where);
    to.rates = *std::move(rates);
    absl::StatusOr<topology::LinkRate> to_host = Read(gpu.to_host());
    if (!to_host.ok()) return Annotate(to_host.status(), where);
    to.to_host = *to_host;
    of.gpus.push_back(std::move(to));
  }
  for (int i = 0; i < wire.nics_size(); ++i) {
    const v1::Nic& nic = wire.nics(i);
    topology::Nic to{
        .name = Name(nic.name()), .device = Name(nic.device()), .bus_id = Name(nic.bus_id())};
    SKEIN_ASSIGN_OR_RETURN(to.kind, Named(kNicKinds, topology::NicKindName, nic.kind(),
                                          absl::StrCat("nics[", i, "].kind")));
    to.bytes_per_s = nic.bytes_per_s();
    of.nics.push_back(std::move(to));
  }
  for (int i = 0; i < wire.connections_size(); ++i) {
    std::vector<topology::Connection>& row = of.connections.emplace_back();
    for (int j = 0; j < wire.connections(i).to_size(); ++j) {
      SKEIN_ASSIGN_OR_RETURN(row.emplace_back(),
                             ParseConnection(wire.connections(i).to(j),
                                             absl::StrCat("connections[", i, "][", j, "]")));
    }
  }
  of.nvswitches = wire.nvswitches();
  for (int i = 0; i < wire.slow_pairs_size(); ++i) {
    const v1::Interconnect::SlowPair& pair = wire.slow_pairs(i);
    absl::StatusOr<topology::LinkRate> link = Read(pair.link());
    if (!link.ok()) return Annotate(link.status(), absl::StrCat("slow_pairs[", i, "]"));
    of.slow_pairs.push_back({pair.first(), pair.second(), *link});
  }
  return of;
}

v1::Host ToProto(const topology::Host& host) {
  v1::Host wire;
  wire.set_name(host.name);
  wire.set_cpu(host.cpu);
  wire.set_sockets(host.sockets);
  wire.set_cores(host.cores);
  wire.set_memory_bytes(host.memory_bytes);
  wire.set_l2_bytes(host.l2_bytes);
  wire.set_l3_bytes(host.l3_bytes);
  wire.set_shm_bytes(host.shm_bytes);
  for (const topology::NumaNode& numa : host.numa_nodes) {
    v1::NumaNode& to = *wire.add_numa_nodes();
    to.set_cpus(topology::FormatCpus(numa.cpus));
    to.set_memory_bytes(numa.memory_bytes);
  }
  Write(host.interconnect, *wire.mutable_interconnect());
  if (!(host.whole == topology::Interconnect{})) Write(host.whole, *wire.mutable_whole());
  if (!(host.core_rates == topology::DeviceRates{})) {
    Write(host.core_rates, *wire.mutable_core_rates());
  }
  for (const auto& [path, link] : host.links) {
    v1::LinkRate& to = *wire.add_links();
    to.set_path(std::string(topology::PathName(path)));
    Write(link, to);
  }
  for (const topology::ExchangeCurve& curve : host.exchanges) {
    v1::ExchangeCurve& to = *wire.add_exchanges();
    to.set_exchange(std::string(topology::ExchangeName(curve.exchange)));
    to.set_ranks(curve.ranks);
    to.set_across(curve.across);
    to.set_spread(curve.spread);
    to.set_alone(curve.alone);
    if (curve.across) to.set_ranks_per_host(curve.ranks_per_host);
    for (const topology::ExchangeTime& time : curve.times) {
      v1::ExchangeCurve::Time& point = *to.add_times();
      point.set_bytes(time.bytes);
      point.set_us(absl::ToDoubleMicroseconds(time.time));
    }
  }
  return wire;
}

absl::Status ReadExchanges(const v1::Host& wire, topology::Host& host) {
  for (int i = 0; i < wire.exchanges_size(); ++i) {
    const v1::ExchangeCurve& from = wire.exchanges(i);
    topology::ExchangeCurve curve{.ranks = from.ranks(),
                                  .across = from.across(),
                                  .spread = from.spread(),
                                  .alone = from.alone(),
                                  .ranks_per_host = std::max(1, from.ranks_per_host())};
    SKEIN_ASSIGN_OR_RETURN(curve.exchange,
                           Named(kExchanges, topology::ExchangeName, from.exchange(),
                                 absl::StrCat("exchanges[", i, "].exchange")));
    for (const v1::ExchangeCurve::Time& time : from.times()) {
      curve.times.push_back({time.bytes(), absl::Microseconds(time.us())});
    }
    host.exchanges.push_back(std::move(curve));
  }
  return absl::OkStatus();
}

absl::StatusOr<topology::Host> FromProto(const v1::Host& wire, int64_t& left) {
  const size_t most = wire.count() > 0 ? kMostShared : kMaxNameBytes;
  topology::Host host{.name = Printable(wire.name(), most),
                      .cpu = Name(wire.cpu()),
                      .sockets = wire.sockets(),
                      .cores = wire.cores(),
                      .memory_bytes = wire.memory_bytes(),
                      .l2_bytes = wire.l2_bytes(),
                      .l3_bytes = wire.l3_bytes(),
                      .shm_bytes = wire.shm_bytes()};
  for (int i = 0; i < wire.numa_nodes_size(); ++i) {
    topology::NumaNode& numa = host.numa_nodes.emplace_back();
    SKEIN_ASSIGN_OR_RETURN(numa.cpus, ParseCpuList(wire.numa_nodes(i).cpus(),
                                                   absl::StrCat("numa_nodes[", i, "]"), left));
    numa.memory_bytes = wire.numa_nodes(i).memory_bytes();
  }
  SKEIN_ASSIGN_OR_RETURN(host.interconnect, Read(wire.interconnect(), left));
  SKEIN_ASSIGN_OR_RETURN(host.whole, Read(wire.whole(), left));
  SKEIN_ASSIGN_OR_RETURN(host.core_rates, Read(wire.core_rates()));
  for (int i = 0; i < wire.links_size(); ++i) {
    const std::string where = absl::StrCat("links[", i, "]");
    std::pair<Path, topology::LinkRate>& link = host.links.emplace_back();
    SKEIN_ASSIGN_OR_RETURN(link.first,
                           Named(kPaths, topology::PathName, wire.links(i).path(), where));
    absl::StatusOr<topology::LinkRate> rate = Read(wire.links(i));
    if (!rate.ok()) return Annotate(rate.status(), where);
    link.second = *rate;
  }
  SKEIN_RETURN_IF_ERROR(ReadExchanges(wire, host));
  return host;
}

// What the names of all hosts have in front of their numbers 0, 1, ...; empty where hosts differ in
// anything else.
std::string SharedName(const std::vector<topology::Host>& hosts) {
  if (hosts.size() < 2) return "";
  std::string shared = hosts.front().name;
  if (shared.empty() || shared.back() != '0') return "";
  shared.pop_back();
  if (shared.size() > kMostShared) return "";  // it would be cut as it is read
  for (size_t i = 0; i < hosts.size(); ++i) {
    const bool numbered = hosts[i].name == absl::StrCat(shared, i);
    if (!numbered || !topology::AlikeButForName(hosts.front(), hosts[i])) return "";
  }
  return shared;
}

}  // namespace

v1::Topology ToProto(const topology::Topology& topology) {
  v1::Topology wire;
  wire.set_name(topology.name);
  if (const std::string shared = SharedName(topology.hosts); !shared.empty()) {
    v1::Host& host = *wire.add_hosts() = ToProto(topology.hosts.front());
    host.set_name(shared);
    host.set_count(static_cast<int32_t>(topology.hosts.size()));
  } else {
    for (const topology::Host& host : topology.hosts) *wire.add_hosts() = ToProto(host);
  }
  if (!(topology.fabric == topology::Fabric{})) {
    wire.mutable_fabric()->set_name(topology.fabric.name);
    Write(topology.fabric.link, *wire.mutable_fabric()->mutable_link());
  }
  return wire;
}

absl::StatusOr<topology::Topology> FromProto(const v1::Topology& wire) {
  topology::Topology topology{.name = Printable(wire.name())};  // maybe a sentence
  int64_t left = kMaxReadBytes;
  for (int i = 0; i < wire.hosts_size(); ++i) {
    const std::string where = absl::StrCat("hosts[", i, "]");
    const int64_t before = left;
    SKEIN_RETURN_IF_ERROR(
        Annotate(Take(static_cast<int64_t>(wire.hosts(i).ByteSizeLong()), left), where));
    absl::StatusOr<topology::Host> host = FromProto(wire.hosts(i), left);
    if (!host.ok()) return Annotate(host.status(), where);
    SKEIN_RETURN_IF_ERROR(topology::CheckHost(where, *host));
    const int32_t count = wire.hosts(i).count();
    if (count < 0 || count > topology::kMaxHosts) {
      return absl::InvalidArgumentError(absl::StrCat(where, ".count: ", count, " hosts; at most ",
                                                     topology::kMaxHosts, " can be"));
    }
    if (count == 0) topology.hosts.push_back(*host);
    if (count > 1)
      SKEIN_RETURN_IF_ERROR(Annotate(Take((count - 1) * (before - left), left), where));
    const std::string shared = host->name;
    for (int32_t j = 0; j < count; ++j) {
      host->name = absl::StrCat(shared, j);
      topology.hosts.push_back(*host);
    }
    if (topology.hosts.size() > topology::kMaxHosts) break;  // CheckTopology refuses it
  }
  topology.fabric.name = Name(wire.fabric().name());
  absl::StatusOr<topology::LinkRate> link = Read(wire.fabric().link());
  if (!link.ok()) return Annotate(link.status(), "fabric");
  topology.fabric.link = *link;
  SKEIN_RETURN_IF_ERROR(topology::CheckTopology(topology));
  return topology;
}

}  // namespace skein::convert
