// The layouts of a job that are worth a look, each judged. Pure.
#pragma once

#include <string>
#include <vector>

#include "parallel/plan/plan.h"
#include "parallel/planner/candidate.h"

namespace skein::plan {

// Layouts of all ranks, also such as are not asked for, which then say what else works; and, where
// the request leaves it open, of some ranks, while the others idle. On ranks that are near each
// other (job_placement.h), or in their order where nodes have no such groups.
struct JudgedLayouts {
  std::vector<Candidate> candidates;
  std::string pruned;  // a sentence on layouts that were not looked at, or none
};
JudgedLayouts JudgeLayouts(const Job& job, const LayoutRequest& request);

}  // namespace skein::plan
