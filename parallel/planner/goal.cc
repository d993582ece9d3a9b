#include "parallel/planner/goal.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
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

bool IsAlike(double score, double best) { return score >= best * (1 - kAlike); }

// What decides between two that count as equal, the first that differs of Size.
std::string WhyItIsLarger(const Standing& standing, const Standing& best) {
  const Layout& layout = standing.layout;
  const auto has = [](const char* whose, int32_t count, const char* what, int32_t fewer) {
    return absl::StrCat(whose, FormatCount(count, what), ", not ", fewer);
  };
  const int32_t ranks = layout.tp_size * layout.pp_size;
  const int32_t fewest = best.layout.tp_size * best.layout.pp_size;
  if ((standing.idle_ranks > 0) != (best.idle_ranks > 0)) {
    return absl::StrCat("it leaves ", FormatCount(standing.idle_ranks, "rank"), " idle");
  }
  if (ranks != fewest) return has("its replicas have ", ranks, "rank", fewest);
  if (standing.leaves_island != best.leaves_island) return "NVLink does not connect its shards";
  if (layout.tp_size == best.layout.tp_size) {
    return has("it has ", layout.dp_size, "replica", best.layout.dp_size);
  }
  return standing.leaves_island ? has("it has ", layout.tp_size, "shard", best.layout.tp_size)
                                : has("it has ", layout.pp_size, "stage", best.layout.pp_size);
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
      return row.within != begin->within || !IsAlike(row.score, begin->score);
    });
    std::sort(begin, end, [](const Row& a, const Row& b) { return a.size < b.size; });
    begin = end;
  }
  std::vector<size_t> places;
  for (const Row& row : rows) places.push_back(row.place);
  return places;
}

std::string RankedBy(const Goal& goal, const Standing& best) {
  std::string text =
      goal.objective == Objective::kLatency ? "the time of an answer" : "tokens a second";
  std::vector<std::string> limits;
  const auto add = [&](const char* what, const std::optional<absl::Duration>& limit) {
    if (limit) limits.push_back(absl::StrCat(what, " of at most ", absl::FormatDuration(*limit)));
  };
  add("TTFT", goal.ttft_limit);
  add("TPOT", goal.tpot_limit);
  if (limits.empty()) return text;
  return absl::StrCat(text, ", with ", absl::StrJoin(limits, " and "),
                      WithinLimits(goal, best) ? "" : ", which the best does not keep");
}

std::string WhyItIsBehind(const Goal& goal, const cost::Workload& workload,
                          const Standing& standing, const Standing& best) {
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
  if (IsAlike(Score(goal, workload, standing), Score(goal, workload, best)) &&
      Size(standing) > Size(best)) {
    return absl::StrCat("as good within ", percent(kAlike), ", and ",
                        WhyItIsLarger(standing, best));
  }
  return "";
}

}  // namespace skein::plan
