#include "parallel/planner/goal.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/units.h"
#include "parallel/planner/defaults.h"

namespace skein::plan {
namespace {

// Less is better.
using StandingSize = std::tuple<bool, int32_t, bool, int32_t, int32_t>;
StandingSize Size(const Standing& standing) {
  const Layout& layout = standing.layout;
  const bool leaves = standing.leaves_island;
  return {standing.idle_ranks > 0, layout.tp_size * layout.pp_size, leaves,
          leaves ? layout.tp_size : layout.pp_size, layout.dp_size};
}

}  // namespace

int64_t ConcurrencyOf(const Goal& goal, DeviceKind device) {
  return goal.workload.concurrency != 0 ? goal.workload.concurrency
                                        : DefaultsOf(device).max_num_seqs;
}

cost::Workload WorkloadOf(const Goal& goal, DeviceKind device, int64_t context_length) {
  cost::Workload workload = goal.workload;
  workload.concurrency = ConcurrencyOf(goal, device);
  if (workload.prompt_tokens + workload.output_tokens > context_length) {
    workload.prompt_tokens = std::max<int64_t>(1, context_length * 2 / 3);
    workload.output_tokens = std::max<int64_t>(1, context_length - workload.prompt_tokens);
  }
  return workload;
}

double Score(const Goal& goal, const cost::Workload& workload, const Standing& standing) {
  switch (goal.objective) {
    case Objective::kThroughput:
      return standing.output_tokens_per_s;
    case Objective::kLatency:
      return 1 / absl::ToDoubleSeconds(standing.AnswerTime(workload));
  }
  return 0;
}

bool WithinLimits(const Goal& goal, const Standing& standing) {
  return (!goal.ttft_limit || standing.cost.ttft <= *goal.ttft_limit) &&
         (!goal.tpot_limit || standing.cost.tpot <= *goal.tpot_limit);
}

int32_t MostSequences(int32_t all, absl::FunctionRef<bool(int32_t sequences)> keeps) {
  int32_t most = 0, too_many = all;
  while (most + 1 < too_many) {
    const int32_t middle = most + (too_many - most) / 2;
    (keeps(middle) ? most : too_many) = middle;
  }
  return most;
}

bool IsAlike(const Goal& goal, const cost::Workload& workload, const Standing& standing,
             const Standing& best) {
  return Score(goal, workload, standing) >= Score(goal, workload, best) * (1 - kAlike);
}

std::vector<size_t> RankStandings(const Goal& goal, const cost::Workload& workload,
                                  const std::vector<Standing>& standings) {
  struct Row {
    size_t place;
    bool within;
    double score;
    StandingSize size;
  };
  std::vector<Row> rows;
  for (size_t i = 0; i < standings.size(); ++i) {
    rows.push_back({i, WithinLimits(goal, standings[i]), Score(goal, workload, standings[i]),
                    Size(standings[i])});
  }
  std::sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) {
    return std::tuple(b.within, b.score, a.size) < std::tuple(a.within, a.score, b.size);
  });
  for (auto begin = rows.begin(); begin != rows.end();) {
    const auto end = std::find_if(begin, rows.end(), [&](const Row& row) {
      return row.within != begin->within || row.score < begin->score * (1 - kAlike);
    });
    std::sort(begin, end, [](const Row& a, const Row& b) { return a.size < b.size; });
    begin = end;
  }
  std::vector<size_t> places;
  for (const Row& row : rows) places.push_back(row.place);
  return places;
}

std::string WhyItIsBehind(const Goal& goal, const Standing& standing, const Standing& best) {
  if (!WithinLimits(goal, standing)) {
    const bool ttft = goal.ttft_limit && standing.cost.ttft > *goal.ttft_limit;
    return absl::StrCat(ttft ? "TTFT" : "TPOT", " is ",
                        FormatMilliseconds(ttft ? standing.cost.ttft : standing.cost.tpot),
                        ", beyond its limit");
  }
  const auto percent = [](double share) { return absl::StrFormat("%.0f%%", 100 * share); };
  if (standing.cost.exchange_share > best.cost.exchange_share + 0.1) {
    return absl::StrCat("exchanges take ", percent(standing.cost.exchange_share), " of a step");
  }
  if (standing.cost.bubble > best.cost.bubble + 0.1) {
    return absl::StrCat("stages idle ", percent(standing.cost.bubble), " of the time");
  }
  return "";
}

}  // namespace skein::plan
