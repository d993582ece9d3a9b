#include "worker/rank_groups.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace skein::worker {
namespace {

// Makes groups of ranks of a plan, whose calls heartbeats tell of.
class GroupMaker {
 public:
  GroupMaker(comm::MpiRuntime& mpi, const plan::Plan& plan, const plan::RankPlan& self,
             const RankGroupOptions& options)
      : mpi_(mpi), plan_(plan), self_(self), options_(options) {}

  // A call of all ranks, also of those that need no group. Ranks of one `color` form one, by stage
  // and shard; without a part, kNoReplica makes every color negative, which none has; `belongs`
  // holds for these in the eyes of each of them. Null where it does not hold for this rank.
  using Belongs = absl::FunctionRef<bool(const plan::RankPlan&)>;
  absl::StatusOr<std::unique_ptr<comm::Communicator>> Make(int color, const std::string& name,
                                                           Belongs belongs) {
    SKEIN_ASSIGN_OR_RETURN(std::unique_ptr<comm::Communicator> group,
                           mpi_.Split(belongs(self_) ? color : -1, Place(self_), name));
    if (group == nullptr || group->size() == 1) return nullptr;
    std::vector<const plan::RankPlan*> members;
    for (const plan::RankPlan& rank : plan_.ranks) {
      if (belongs(rank)) members.push_back(&rank);
    }
    std::sort(members.begin(), members.end(),
              [this](const auto* a, const auto* b) { return Place(*a) < Place(*b); });
    std::vector<int> ranks;
    for (const plan::RankPlan* const member : members) ranks.push_back(member->rank);
    group->Track(options_.tracker->AddGroup(name, std::move(ranks), group->rank()));
    if (options_.on_group) options_.on_group(*group);
    return group;
  }

 private:
  // In its replica.
  int Place(const plan::RankPlan& rank) const {
    return rank.pp_rank * plan_.layout.tp_size + rank.tp_rank;
  }

  comm::MpiRuntime& mpi_;
  const plan::Plan& plan_;
  const plan::RankPlan& self_;
  const RankGroupOptions& options_;
};

}  // namespace

absl::StatusOr<RankGroups> MakeRankGroups(comm::MpiRuntime& mpi, const plan::Plan& plan,
                                          const plan::RankPlan& self,
                                          const RankGroupOptions& options) {
  GroupMaker maker(mpi, plan, self, options);
  const plan::Layout& layout = plan.layout;
  const auto same_replica = [&](const plan::RankPlan& rank) {
    return rank.dp_rank == self.dp_rank;
  };
  const std::string of_replica = absl::StrCat(" of replica ", self.dp_rank);
  RankGroups groups;
  if (options.control) {
    SKEIN_ASSIGN_OR_RETURN(
        const std::unique_ptr<comm::Communicator> replica,
        maker.Make(self.dp_rank, absl::StrCat("replica ", self.dp_rank), same_replica));
    if (replica != nullptr) {
      replica->set_timeout(options.timeout);
      SKEIN_ASSIGN_OR_RETURN(groups.control, comm::MakeControlChannel(*replica, *options.control));
    }
  }
  SKEIN_ASSIGN_OR_RETURN(groups.tp,
                         maker.Make(self.dp_rank * layout.pp_size + self.pp_rank,
                                    absl::StrCat("tp", of_replica, ", stage ", self.pp_rank),
                                    [&](const plan::RankPlan& rank) {
                                      return same_replica(rank) && rank.pp_rank == self.pp_rank;
                                    }));
  for (int hop = 0; hop + 1 < layout.pp_size; ++hop) {
    SKEIN_ASSIGN_OR_RETURN(
        auto group, maker.Make(self.dp_rank * layout.tp_size + self.tp_rank,
                               absl::StrCat("hop ", hop, of_replica, ", shard ", self.tp_rank),
                               [&](const plan::RankPlan& rank) {
                                 return same_replica(rank) && rank.tp_rank == self.tp_rank &&
                                        (rank.pp_rank == hop || rank.pp_rank == hop + 1);
                               }));
    if (group != nullptr) (self.pp_rank == hop ? groups.next : groups.previous) = std::move(group);
  }
  if (layout.pp_size == 1) return groups;  // every shard draws for itself
  SKEIN_ASSIGN_OR_RETURN(
      groups.tokens,
      maker.Make(self.dp_rank, absl::StrCat("tokens", of_replica), [&](const plan::RankPlan& rank) {
        const bool reports = rank.pp_rank == layout.pp_size - 1 && rank.tp_rank == 0;
        return same_replica(rank) && (rank.pp_rank == 0 || reports);
      }));
  if (groups.tokens != nullptr && options.device == DeviceKind::kCuda) {
    groups.tokens->set_spin(kSpinForTokens);
  }
  return groups;
}

}  // namespace skein::worker
