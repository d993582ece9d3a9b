#include "coordinator/cluster/join_hosts.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "topology/presets/presets.h"

namespace skein::coordinator {

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
        return absl::FailedPreconditionError(
            absl::StrCat("several jobs have GPUs of ", host.name,
                         ", and none has told how those are connected: ask that host (skein topo "
                         "--probe --json)"));
      }
    }
  }
  if (all.hosts.empty()) return absl::NotFoundError("no job is there whose hosts could be told of");
  topology::AssumeFigures(all);
  return all;
}

}  // namespace skein::coordinator
