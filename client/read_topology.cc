#include "client/read_topology.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "base/file.h"
#include "base/flags/flags.h"
#include "base/status_macros.h"
#include "base/status_util.h"
#include "client/live_topology.h"
#include "client/probe_host.h"
#include "proto/convert/machines_json.h"
#include "topology/formats/hwloc_xml.h"
#include "topology/formats/nccl_xml.h"
#include "topology/formats/nvidia_smi.h"
#include "topology/host/detect.h"
#include "topology/interconnect.h"
#include "topology/presets/presets.h"

namespace skein::client {
namespace {

using topology::Topology;

absl::StatusOr<topology::Host> ParseHost(const std::string& text,
                                         const std::optional<int32_t>& nvlinks) {
  const absl::string_view begin = absl::StripLeadingAsciiWhitespace(text);
  const bool xml = !begin.empty() && begin.front() == '<';
  if (xml && absl::StrContains(text, "<topology")) {
    return topology::ParseHwlocXml(text, {.nvlinks = nvlinks});
  }
  if (!xml && nvlinks) {
    return absl::InvalidArgumentError(
        "--nvlinks: what `nvidia-smi topo -m` prints has them; it is for XML of NCCL or hwloc");
  }
  topology::Host host;
  SKEIN_ASSIGN_OR_RETURN(host.interconnect, xml ? topology::ParseNcclXml(text, {.nvlinks = nvlinks})
                                                : topology::ParseNvidiaSmi(text));
  return host;
}

absl::StatusOr<Topology> Parse(std::string text, const std::optional<int32_t>& nvlinks) {
  // What some editors put before all else.
  if (constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
      text.starts_with(kByteOrderMark)) {
    text.erase(0, kByteOrderMark.size());
  }
  const absl::string_view begin = absl::StripLeadingAsciiWhitespace(text);
  if (!begin.empty() && begin.front() == '{') {
    if (!nvlinks) return convert::TopologyFromJson(text);
    return absl::InvalidArgumentError(
        "--nvlinks: Skein's own JSON has them; it is for XML of NCCL or hwloc");
  }
  Topology topology;
  SKEIN_ASSIGN_OR_RETURN(topology.hosts.emplace_back(), ParseHost(text, nvlinks));
  return topology;
}

absl::StatusOr<Topology> ReadFile(const std::string& file, const std::optional<int32_t>& nvlinks) {
  absl::StatusOr<std::string> text = file == "-" ? ReadStandardInput(convert::kMaxTopologyBytes)
                                                 : ReadFileOrPipe(file, convert::kMaxTopologyBytes);
  if (!text.ok()) return text.status();
  absl::StatusOr<Topology> topology = Parse(*std::move(text), nvlinks);
  if (!topology.ok()) return Annotate(topology.status(), file == "-" ? "standard input" : file);
  return topology;
}

absl::StatusOr<Topology> ThisHost(const std::optional<std::string>& visible_devices) {
  Topology topology;
  SKEIN_ASSIGN_OR_RETURN(topology.hosts.emplace_back(),
                         topology::DetectHost({.visible_devices = visible_devices}));
  TakeKeptFigures(RanksToProbe(topology.hosts.front()), topology);
  return topology;
}

absl::StatusOr<Topology> Live(const TopologyFlags& flags, std::vector<topology::RankLabel>* ranks) {
  if (flags.fetched) return *flags.fetched;
  SKEIN_ASSIGN_OR_RETURN(LiveTopology live, FetchTopology(flags.coordinator));
  if (ranks != nullptr) *ranks = std::move(live.ranks);
  return std::move(live.topology);
}

// So many of the one host that a file tells of.
absl::Status Repeat(int32_t nodes, Topology& topology) {
  if (nodes == 1) return absl::OkStatus();
  if (topology.hosts.size() > 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("--nodes: the file tells of ", topology.hosts.size(), " hosts already"));
  }
  const topology::Host host = topology.hosts.front();
  topology.hosts.clear();
  for (int32_t i = 0; i < nodes; ++i) {
    topology.hosts.push_back(host);
    topology.hosts.back().name = absl::StrCat("node", i);
  }
  return absl::OkStatus();
}

}  // namespace

void DeclareTopologyFlags(CLI::App& command, TopologyFlags& flags) {
  command.add_option("--nodes", flags.nodes, "So many alike hosts")
      ->check(InRange(1, topology::kMaxHosts))
      ->capture_default_str();
  command
      .add_option(
          "--fabric", flags.fabric,
          absl::StrCat("What connects hosts: ", absl::StrJoin(topology::FabricNames(), ", "),
                       "; default: the preset's, or the file's"))
      ->check(NotEmpty());
  command
      .add_option(
          "--nvlinks", flags.nvlinks,
          "NVLinks between each two GPUs, where a file of NCCL or hwloc leaves them out; 0: "
          "there are none")
      ->check(InRange(0, 64));
  command
      .add_option("--like", flags.like,
                  "Take the figures that a file lacks (of GPUs, links, hosts) from this preset")
      ->check(NotEmpty());
}

absl::StatusOr<Topology> ReadTopology(const TopologyFlags& flags,
                                      std::vector<topology::RankLabel>* ranks) {
  if (topology::IsPreset(flags.source)) {
    if (!flags.like.empty()) {
      return absl::InvalidArgumentError("--like: a preset lacks nothing; it is for files");
    }
    if (flags.nvlinks) {
      return absl::InvalidArgumentError("--nvlinks: a preset has them; it is for files");
    }
    absl::StatusOr<Topology> preset = topology::MakePreset(flags.source, flags.nodes, flags.fabric);
    if (!preset.ok()) return Annotate(preset.status(), "--fabric");
    return preset;
  }
  if (flags.nvlinks && (flags.source.empty() || flags.source == kLive)) {
    return absl::InvalidArgumentError("--nvlinks: hosts tell of theirs; it is for files");
  }
  absl::StatusOr<Topology> read = flags.source.empty()    ? ThisHost(flags.visible_devices)
                                  : flags.source == kLive ? Live(flags, ranks)
                                                          : ReadFile(flags.source, flags.nvlinks);
  if (absl::IsNotFound(read.status()) && flags.source.find('/') == std::string::npos) {
    return absl::NotFoundError(absl::StrCat(std::string(read.status().message()),
                                            "; other than files there is ", SourceNames()));
  }
  SKEIN_RETURN_IF_ERROR(read.status());
  SKEIN_RETURN_IF_ERROR(Repeat(flags.nodes, *read));
  if (!flags.fabric.empty()) {
    absl::StatusOr<topology::Fabric> fabric = topology::MakeFabric(flags.fabric);
    if (!fabric.ok()) return Annotate(fabric.status(), "--fabric");
    read->fabric = *fabric;
  }
  if (!flags.like.empty()) {
    SKEIN_RETURN_IF_ERROR(Annotate(topology::CompleteLike(flags.like, *read), "--like"));
  }
  return read;
}

std::string SourceNames() {
  return absl::StrCat(
      "live: the hosts of the coordinator's jobs; or a preset: ",
      absl::StrJoin(topology::Presets(), ", ",
                    [](std::string* out, const auto& preset) { *out += preset.name; }));
}

}  // namespace skein::client
