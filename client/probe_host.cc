#include "client/probe_host.h"

#include <algorithm>
#include <cstdlib>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/cache_folder.h"
#include "base/flags/flags.h"
#include "base/status_macros.h"
#include "base/status_util.h"
#include "client/find_worker.h"
#include "client/mpirun.h"
#include "parallel/plan/plan.h"
#include "proto/convert/figure_files.h"
#include "proto/convert/machines_json.h"
#include "topology/figures/figures.h"
#include "topology/figures/figures_key.h"
#include "topology/host/detect.h"

namespace skein::client {

void DeclareProbeFlags(CLI::App& command, ProbeFlags& flags) {
  CLI::Option* const probe = command.add_flag(
      "--probe", flags.probe,
      "Measure this host first, which takes some seconds: what its devices and the ways between "
      "them do, by the code that serves. It takes mpirun, and the settings of scripts/env.sh. "
      "What was measured is kept for jobs of as many ranks on this host alone, for `skein plan` "
      "where these are on cores, and for `skein topo` where nothing else is asked for");
  command
      .add_option("--np", flags.ranks,
                  "Measure with so many ranks; default: one a GPU, or else 2, on cores")
      ->check(InRange(1, plan::kMaxWays))
      ->needs(probe);
  command.add_option("--worker", flags.worker, "The worker program; default: beside this one")
      ->check(NotEmpty())
      ->needs(probe);
}

absl::StatusOr<topology::Topology> ProbeHost(const ProbeFlags& flags,
                                             const std::optional<std::string>& visible_devices) {
  SKEIN_ASSIGN_OR_RETURN(const std::string worker, FindWorker(flags.worker));
  int32_t ranks = flags.ranks.value_or(0);
  if (ranks == 0) {
    SKEIN_ASSIGN_OR_RETURN(const topology::Host host,
                           topology::DetectHost({.visible_devices = visible_devices}));
    ranks = RanksToProbe(host);
  }
  const absl::StatusOr<std::string> json = OutputOfMpirun(RanksOf(ranks, "", {worker, "probe"}));
  if (!json.ok()) return Annotate(json.status(), "this host was not measured");
  absl::StatusOr<topology::Topology> topology = convert::TopologyFromJson(*json);
  if (!topology.ok()) {
    return Annotate(topology.status(), absl::StrCat("what ", worker, " probe printed"));
  }
  return topology;
}

int32_t RanksToProbe(const topology::Host& host) {
  const auto gpus = static_cast<int32_t>(host.interconnect.gpus.size());
  return gpus > 0 ? gpus : std::clamp(host.cores, 1, 2);
}

bool TakeKeptFigures(int32_t ranks, topology::Topology& topology) {
  const std::string folder = CacheFolder(std::getenv("XDG_CACHE_HOME"), std::getenv("HOME"));
  if (folder.empty()) return false;
  const std::optional<topology::Topology> kept = convert::ReadKept(
      folder, topology::FiguresKey(topology::FiguresOfThisHost(topology.hosts.front(), ranks)));
  return kept.has_value() && topology::TakeFigures(*kept, topology).ok();
}

}  // namespace skein::client
