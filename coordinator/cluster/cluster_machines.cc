// What a cluster tells of its machines.
#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "coordinator/cluster/cluster.h"
#include "coordinator/cluster/job.h"
#include "coordinator/cluster/join_hosts.h"
#include "coordinator/cluster/picture.h"
#include "coordinator/cluster/rank_places.h"
#include "parallel/plan/plan.h"
#include "topology/machine.h"
#include "topology/topology.h"

namespace skein::coordinator {

absl::StatusOr<LiveHosts> Cluster::Hosts() const {
  MutexLock lock(&mutex_);
  std::vector<const Job*> jobs;
  std::vector<topology::Topology> of_jobs;
  for (const auto& [number, job] : jobs_) {
    if (job.over() || !job.plan) continue;
    jobs.push_back(&job);
    of_jobs.push_back(topology::TopologyOf(job.machine));
  }
  LiveHosts live;
  SKEIN_ASSIGN_OR_RETURN(live.topology, JoinHosts(of_jobs));
  for (size_t i = 0; i < jobs.size(); ++i) {
    for (const RankPlace& place : PlacesOfRanks(jobs[i]->machine, *jobs[i]->plan)) {
      const JoinedPlace at = PlaceInJoined(live.topology, of_jobs[i].hosts[place.host], place.gpu);
      if (place.gpu >= 0 && at.gpu < 0) continue;  // nobody knows where
      live.ranks.push_back({jobs[i]->id, {place.rank, place.replica, at.host, at.gpu}});
    }
  }
  return live;
}

absl::StatusOr<std::string> Cluster::Picture(const std::string& job_id) const {
  std::optional<std::pair<topology::Machine, plan::Plan>> of;  // drawn without the lock
  {
    MutexLock lock(&mutex_);
    for (const auto& [number, job] : jobs_) {
      if (job.id == job_id && !job.over() && job.plan) of.emplace(job.machine, *job.plan);
    }
  }
  if (of.has_value()) return PictureOf(of->first, of->second);
  return absl::NotFoundError(absl::StrCat("no job '", job_id, "' has a plan and is not over"));
}

}  // namespace skein::coordinator
