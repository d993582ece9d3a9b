#include "parallel/planner/judge_layouts.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <set>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/units.h"
#include "kernels/ops/sizes.h"
#include "parallel/plan/shard.h"
#include "parallel/planner/goal.h"
#include "parallel/planner/job_placement.h"
#include "parallel/planner/pipeline_depths.h"
#include "parallel/planner/placer.h"
#include "parallel/planner/predict_plan.h"
#include "parallel/planner/replica_search.h"

namespace skein::plan {
namespace {

// Whether ranks may idle. Who says all three parts, or two of which the third follows, has counted
// them.
bool MayIdle(const Job& job, const LayoutRequest& request) {
  const int32_t given = int32_t{request.tp_size.has_value()} +
                        int32_t{request.pp_size.has_value()} + int32_t{request.dp_size.has_value()};
  return given < 2 || (given == 2 && job.ranks() % request.ranks() != 0);
}

// Judges layouts of all ranks of a job, and of some.
class LayoutJudge {
 public:
  LayoutJudge(const Job& job, const LayoutRequest& request)
      : job_(job),
        request_(request),
        may_idle_(MayIdle(job, request)),
        placer_(job.topology),
        splits_({.topology = job.topology,
                 .model = job.model,
                 .workload = job.workload,
                 .device = job.device,
                 .context_length = job.context_length,
                 .max_num_seqs = job.max_num_seqs,
                 .max_micro_batch_rows = std::max(job.micro_batch_rows, job.max_num_seqs),
                 .activations = kernels::ActivationDType(job.device, job.model.dtype),
                 .kv_dtype = job.kv_dtype,
                 .deterministic = job.deterministic,
                 .ep_size = request.ep_size.value_or(1)}) {}

  JudgedLayouts All() {
    const int32_t ranks = job_.ranks();
    for (int32_t tp_size = 1; tp_size <= ranks; ++tp_size) {
      fewest_ = 0;
      for (int32_t pp_size = 1; pp_size <= ranks / tp_size; ++pp_size) {
        const bool whole = ranks % (tp_size * pp_size) == 0;
        if (whole || MaySome(tp_size, pp_size)) Judge(tp_size, pp_size, whole);
      }
    }
    std::string pruned;
    if (deeper_) absl::StrAppend(&pruned, " with at most ", kFewStages, " stages");
    if (between_) absl::StrAppend(&pruned, deeper_ ? " and" : "", " with 1, 2, 4, ... replicas");
    if (!pruned.empty()) {
      pruned = absl::StrCat("Layouts that leave ranks idle were looked at", pruned, " alone.");
    }
    return {std::move(candidates_), std::move(pruned)};
  }

 private:
  // Experts are split apart only where it is asked for.
  int32_t ep_size() const { return request_.ep_size.value_or(1); }

  bool MaySome(int32_t tp_size, int32_t pp_size) {
    const bool could = may_idle_ && CheckTensorParallel(job_.model, tp_size, ep_size()).ok() &&
                       CheckPipelineParallel(job_.model, pp_size).ok() &&
                       request_.tp_size.value_or(tp_size) == tp_size &&
                       request_.pp_size.value_or(pp_size) == pp_size;
    const bool few = request_.pp_size || pp_size <= kFewStages;
    deeper_ |= could && !few && tp_size * pp_size < job_.ranks();
    return could && few;
  }

  void Judge(int32_t tp_size, int32_t pp_size, bool whole) {
    std::vector<ReplicaRanks> placed;  // of what cannot be, no places are looked for
    if (CheckTensorParallel(job_.model, tp_size, ep_size()).ok()) {
      placed = PlaceJob(job_.machine, placer_, tp_size, pp_size);
    }
    const auto most = static_cast<int32_t>(placed.size());
    const int32_t all = whole ? job_.ranks() / (tp_size * pp_size) : 0;
    if (whole) {
      // Where stages cannot all be on a node each, they are in the order of ranks.
      std::vector<int32_t> ranks(job_.ranks());
      std::iota(ranks.begin(), ranks.end(), 0);
      if (most == all) ranks = RanksOfReplicas(job_.machine, placed, all);
      const Layout layout = {tp_size, pp_size, all, ep_size()};
      if (fewest_ > 0 && pp_size > MostStages(fewest_) && !request_.pp_size && !request_.dp_size) {
        LeaveOut(layout, std::move(ranks));
      } else {
        Add(layout, std::move(ranks));
        if (fewest_ == 0 && candidates_.back().refusal.ok()) fewest_ = pp_size;
      }
    }
    if (!MaySome(tp_size, pp_size)) return;
    std::set<int32_t> some = {most};
    if (request_.dp_size) {
      some = {*request_.dp_size};
    } else if (job_.device == DeviceKind::kCpu) {
      // Fewer replicas than there can be pay where they share cores.
      for (int32_t dp_size = 1; dp_size < most; dp_size *= 2) some.insert(dp_size);
      between_ |= static_cast<int32_t>(some.size()) < most;
    }
    for (const int32_t dp_size : some) {
      if (dp_size < 1 || dp_size > most || dp_size == all) continue;
      Add({tp_size, pp_size, dp_size, ep_size()}, RanksOfReplicas(job_.machine, placed, dp_size));
    }
  }

  void Add(const Layout& layout, std::vector<int32_t> ranks) {
    candidates_.push_back(JudgeLayout(job_, layout, std::move(ranks), splits_));
    KeepTpot(candidates_.back());
  }

  void LeaveOut(const Layout& layout, std::vector<int32_t> ranks) {
    Candidate& candidate = candidates_.emplace_back();
    candidate.layout = layout;
    candidate.ranks = std::move(ranks);
    candidate.refusal = CheckPipelineParallel(job_.model, layout.pp_size);
    if (!candidate.refusal.ok()) return;
    candidate.refusal = absl::FailedPreconditionError(absl::StrCat(
        "it was not looked at: ", FormatCount(fewest_, "stage"), fewest_ == 1 ? " holds" : " hold",
        " the model, and more than ", MostStages(fewest_), " seldom pay"));
  }

  void KeepTpot(Candidate& candidate) {
    if (!candidate.refusal.ok() || !job_.tpot_limit ||
        candidate.standing.cost.tpot <= *job_.tpot_limit) {
      return;
    }
    const int32_t all = ReplicaOfPlan(job_.machine, job_.topology, job_.model, candidate.plan,
                                      /*dp_rank=*/0, job_.workload)
                            .sequences;
    // Fewer sequences may have another split, or another number of micro-batches.
    Job fewer = job_;
    Candidate kept;
    const int32_t most = MostSequences(all, [&](int32_t sequences) {
      fewer.max_num_seqs = sequences;
      Candidate judged = JudgeLayout(fewer, candidate.layout, candidate.ranks, splits_);
      if (!judged.refusal.ok() || judged.standing.cost.tpot > *job_.tpot_limit) return false;
      kept = std::move(judged);
      return true;
    });
    if (most == 0) return;
    kept.limit_reason =
        absl::StrCat("A replica runs ", FormatCount(most, "sequence"), " at once, not ", all,
                     ", which would take ", FormatMilliseconds(candidate.standing.cost.tpot),
                     " a token: the limit is ", FormatMilliseconds(*job_.tpot_limit), ".");
    candidate = std::move(kept);
  }

  const Job& job_;
  const LayoutRequest& request_;
  const bool may_idle_;
  Placer placer_;
  ReplicaSearch splits_;
  std::vector<Candidate> candidates_;
  int32_t fewest_ = 0;    // stages of these shards that hold the model; 0: none yet
  bool deeper_ = false;   // pipelines were left out
  bool between_ = false;  // numbers of replicas were
};

}  // namespace

JudgedLayouts JudgeLayouts(const Job& job, const LayoutRequest& request) {
  return LayoutJudge(job, request).All();
}

}  // namespace skein::plan
