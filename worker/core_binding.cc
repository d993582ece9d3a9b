#include "worker/core_binding.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "parallel/comm/gather_strings.h"
#include "topology/cpus.h"
#include "topology/host/cores.h"
#include "topology/host/host.h"
#include "topology/host/near_cpus.h"

namespace skein::worker {
namespace {

int PlaceIn(const std::set<int32_t>& all, int32_t one) {
  return static_cast<int>(std::distance(all.begin(), all.find(one)));
}

// As far as there are, whether or not others have as many.
std::set<int> ChooseCores(const plan::Plan& plan, absl::Span<const int> host_ranks,
                          const plan::RankPlan& self, int cores) {
  std::set<int32_t> replicas, stages, shards;  // of the host; of the replica; of the stage
  for (const int other : host_ranks) {
    const plan::RankPlan* const of = plan.Find(other);
    if (of == nullptr) continue;
    replicas.insert(of->dp_rank);
    if (of->dp_rank != self.dp_rank) continue;
    stages.insert(of->pp_rank);
    if (of->pp_rank == self.pp_rank) shards.insert(of->tp_rank);
  }
  // A slot has the cores of a stage's shards.
  const int size = static_cast<int>(shards.size());
  const int slots = std::max(1, cores / (size * self.threads));
  const int of_replica = std::max(1, slots / static_cast<int>(replicas.size()));
  // Neighbours share a core: two micro-batches meet there in two of four stages at most, and by
  // turns they may meet in each (docs/adr/0034).
  const int of_stage = PlaceIn(stages, self.pp_rank) * of_replica / static_cast<int>(stages.size());
  const int slot = (PlaceIn(replicas, self.dp_rank) * of_replica + of_stage) % slots;
  const int first = (slot * size + PlaceIn(shards, self.tp_rank)) * self.threads;
  std::set<int> chosen;
  for (int i = 0; i < std::min(self.threads, cores); ++i) chosen.insert((first + i) % cores);
  return chosen;
}

}  // namespace

std::vector<int> CoresOfRank(const plan::Plan& plan, absl::Span<const int> host_ranks, int rank,
                             int cores) {
  const plan::RankPlan* const self = plan.Find(rank);
  if (self == nullptr) return {};
  int threads = 0;
  std::vector<int> users(cores);
  for (const int other : host_ranks) {
    const plan::RankPlan* const of = plan.Find(other);
    if (of == nullptr) continue;
    threads += of->threads;
    for (const int core : ChooseCores(plan, host_ranks, *of, cores)) ++users[core];
  }
  if (threads <= cores) return {};
  const bool evenly = std::all_of(users.begin(), users.end(),
                                  [&](int of_core) { return of_core == users.front(); });
  const std::set<int> chosen = ChooseCores(plan, host_ranks, *self, cores);
  if (!evenly || static_cast<int>(chosen.size()) == cores) return {};
  return {chosen.begin(), chosen.end()};
}

absl::StatusOr<std::string> BindToCores(comm::MpiRuntime& mpi, const plan::Plan& plan) {
  const absl::StatusOr<std::vector<topology::Cpus>> cores = topology::AffinityCpus();
  const absl::StatusOr<topology::Node> node = topology::DescribeHost();
  std::string mine;
  if (cores.ok() && node.ok() && node->cores == static_cast<int32_t>(cores->size())) {
    mine = absl::StrJoin(*cores, ";", [](std::string* out, const topology::Cpus& core) {
      absl::StrAppend(out, topology::FormatCpus(core));
    });
  }
  SKEIN_ASSIGN_OR_RETURN(const std::vector<std::string> all,
                         comm::GatherStrings(mpi.world(), mine));
  SKEIN_RETURN_IF_ERROR(cores.status());
  SKEIN_RETURN_IF_ERROR(node.status());
  std::vector<int> host_ranks;
  for (int rank = 0; rank < mpi.size(); ++rank) {
    if (mpi.host_of(rank) != mpi.host_of(mpi.rank())) continue;
    if (all[rank].empty() || all[rank] != mine) return "";
    host_ranks.push_back(rank);
  }
  topology::Cpus cpus;
  for (const int core :
       CoresOfRank(plan, host_ranks, mpi.rank(), static_cast<int>(cores->size()))) {
    cpus.insert(cpus.end(), (*cores)[core].begin(), (*cores)[core].end());
  }
  if (cpus.empty()) return "";
  std::sort(cpus.begin(), cpus.end());
  SKEIN_RETURN_IF_ERROR(topology::BindThreads(cpus));
  return absl::StrCat("ranks share cores: threads are bound to processors ",
                      topology::FormatCpus(cpus));
}

}  // namespace skein::worker
