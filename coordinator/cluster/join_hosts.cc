#include "coordinator/cluster/join_hosts.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "topology/interconnect.h"
#include "topology/pci_address.h"
#include "topology/presets/presets.h"

namespace skein::coordinator {
namespace {

using topology::Host;
using topology::Interconnect;

// Where a GPU is among all of its host; -1: nobody has told.
int PlaceOf(const topology::Gpu& gpu, const Interconnect& whole) {
  const std::string address = topology::PciAddress(gpu.bus_id);
  for (size_t i = 0; i < whole.gpus.size(); ++i) {
    if (!address.empty() && topology::PciAddress(whole.gpus[i].bus_id) == address) {
      return static_cast<int>(i);
    }
  }
  return -1;
}

// A job that has all of a host's GPUs tells of them alone.
Interconnect Whole(const Host& a, const Host& b) {
  Interconnect most;
  for (const Host* const host : {&a, &b}) {
    for (const Interconnect* const of : {&host->whole, &host->interconnect}) {
      if (of->gpus.size() > most.gpus.size()) most = *of;
    }
  }
  return most;
}

// Adds the GPUs that another job has of the same host, connected as the whole host is.
absl::Status AddGpus(const Host& from, Host& host) {
  const Interconnect whole = Whole(host, from);
  Interconnect joined = {.nics = whole.nics, .nvswitches = whole.nvswitches};
  std::vector<size_t> places;
  const Host* const both[] = {&host, &from};
  for (const Host* const of : both) {
    for (const topology::Gpu& gpu : of->interconnect.gpus) {
      const int place = PlaceOf(gpu, whole);
      if (place < 0) {
        return absl::FailedPreconditionError(
            absl::StrCat("several jobs have GPUs of ", host.name,
                         ", and none has told how those are connected: ask that host (skein topo "
                         "--probe --json)"));
      }
      const auto at = static_cast<size_t>(place);
      if (std::find(places.begin(), places.end(), at) != places.end()) continue;  // both have it
      places.push_back(at);
      joined.gpus.push_back(gpu);
      joined.gpus.back().name = absl::StrCat("GPU", joined.gpus.size() - 1);
    }
  }
  for (size_t nic = 0; nic < whole.nics.size(); ++nic) places.push_back(whole.gpus.size() + nic);
  for (const size_t a : places) {
    std::vector<topology::Connection>& row = joined.connections.emplace_back();
    for (const size_t b : places) row.push_back(whole.connections[a][b]);
  }
  for (const Host* const of : both) topology::TakeSlowPairs(of->interconnect, joined);
  host.interconnect = std::move(joined);
  // What either has measured: of ways, which are assumed else, and of groups.
  for (const auto& [path, link] : from.links) {
    const auto there = std::find_if(host.links.begin(), host.links.end(),
                                    [path = path](const auto& of) { return of.first >= path; });
    const bool known = there != host.links.end() && there->first == path;
    if (!known) {
      host.links.insert(there, {path, link});
    } else if (link.origin == topology::Origin::kMeasured &&
               there->second.origin != topology::Origin::kMeasured) {
      there->second = link;
    }
  }
  for (const topology::ExchangeCurve& curve : from.exchanges) {
    const auto alike = [&](const topology::ExchangeCurve& other) {
      return other.exchange == curve.exchange && other.ranks == curve.ranks &&
             other.across == curve.across && other.alone == curve.alone &&
             other.ranks_per_host == curve.ranks_per_host;
    };
    if (std::none_of(host.exchanges.begin(), host.exchanges.end(), alike)) {
      host.exchanges.push_back(curve);
    }
  }
  return absl::OkStatus();
}

}  // namespace

JoinedPlace PlaceInJoined(const topology::Topology& joined, const topology::Host& of_job,
                          int32_t gpu) {
  const auto host = std::find_if(joined.hosts.begin(), joined.hosts.end(),
                                 [&](const Host& other) { return other.name == of_job.name; });
  JoinedPlace place = {static_cast<int32_t>(host - joined.hosts.begin()), -1};
  if (gpu < 0) return place;
  place.gpu = PlaceOf(of_job.interconnect.gpus[gpu], host->interconnect);
  // Without addresses no other job has GPUs there.
  if (place.gpu < 0 && host->interconnect.gpus.size() == of_job.interconnect.gpus.size()) {
    place.gpu = gpu;
  }
  return place;
}

absl::StatusOr<topology::Topology> JoinHosts(std::vector<topology::Topology> of_jobs) {
  topology::Topology all;
  for (topology::Topology& of_job : of_jobs) {
    const topology::LinkRate& link = of_job.fabric.link;
    const topology::LinkRate& slowest = all.fabric.link;
    if (of_job.hosts.size() > 1 &&
        (slowest.bytes_per_s == 0 || link.bytes_per_s < slowest.bytes_per_s)) {
      all.fabric = of_job.fabric;
    }
    for (topology::Host& host : of_job.hosts) {
      const auto there = std::find_if(all.hosts.begin(), all.hosts.end(),
                                      [&](const auto& other) { return other.name == host.name; });
      if (there == all.hosts.end()) {
        all.hosts.push_back(std::move(host));
      } else if (there->interconnect.gpus.empty()) {
        if (!host.interconnect.gpus.empty()) *there = std::move(host);
      } else if (!host.interconnect.gpus.empty()) {
        SKEIN_RETURN_IF_ERROR(AddGpus(host, *there));
      }
    }
  }
  for (topology::Host& host : all.hosts) host.whole = {};
  if (all.hosts.empty()) return absl::NotFoundError("no job is there whose hosts could be told of");
  topology::AssumeFigures(all);
  return all;
}

}  // namespace skein::coordinator
