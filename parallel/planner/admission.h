// Which of the judged layouts of a job may be taken. Pure.
#pragma once

#include <vector>

#include "absl/status/status.h"
#include "parallel/plan/plan.h"
#include "parallel/planner/candidate.h"
#include "parallel/planner/planner.h"
#include "parallel/planner/predict_plan.h"

namespace skein::plan {

// Refuses a layout that cannot be, or was not asked for, whatever else works: one with sums between
// nodes, or with slow ones, must be asked for.
absl::Status CheckCandidate(const Candidate& candidate, const LayoutRequest& request);

// Refuses layouts with sums between nodes where one that was asked for does without, and has work
// for half of the ranks at least.
void KeepSumsOnNodes(const Job& job, const LayoutRequest& request,
                     std::vector<Candidate>& candidates);

// Drops layouts that leave more ranks idle than one that works, unless they alone keep the goal's
// limits, or measurements tell beyond their own spread that they are worth it: what was started is
// used.
void UseRanks(const Job& job, const Constraints& constraints, const Evidence& evidence,
              std::vector<Candidate>& candidates);

}  // namespace skein::plan
