// What a plan is to be good at, and for which load.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/time/time.h"
#include "base/device_kind.h"
#include "parallel/cost/replica_cost.h"
#include "parallel/plan/plan.h"

namespace skein::plan {

enum class Objective : uint8_t {
  kThroughput,  // output tokens a second, of all replicas
  kLatency,     // the time of one answer, from its request to its last token
};

struct Goal {
  cost::Workload workload = {.concurrency = 0};  // 0: DefaultsOf's
  Objective objective = Objective::kThroughput;
  // Layouts beyond these lose to all within. Fewer sequences at once may keep the one on TPOT.
  std::optional<absl::Duration> ttft_limit;
  std::optional<absl::Duration> tpot_limit;

  friend bool operator==(const Goal&, const Goal&) = default;
};

// The goal's requests at once, or as many as a replica runs by default where nobody says.
int64_t ConcurrencyOf(const Goal& goal, DeviceKind device);

// The load that a plan is made for: the goal's, and no longer than a context.
cost::Workload WorkloadOf(const Goal& goal, DeviceKind device, int64_t context_length);

// What a layout would do, by which it is ranked.
struct Standing {
  Layout layout;
  // Of the slowest replica; tokens of all. Where replicas differ, requests are spread evenly.
  cost::ReplicaCost cost;
  double output_tokens_per_s = 0;
  int32_t idle_ranks = 0;      // of a job, that it does without
  bool leaves_island = false;  // NVLink does not connect each two shards of some stage

  absl::Duration AnswerTime(const cost::Workload& workload) const {
    return cost.ttft + cost.tpot * static_cast<double>(workload.output_tokens - 1);
  }
};

// By the objective alone; more is better.
double Score(const Goal& goal, const cost::Workload& workload, const Standing& standing);

bool WithinLimits(const Goal& goal, const Standing& standing);

// The most sequences, fewer than `all`, that keep a limit which fewer keep more easily; 0: none do.
int32_t MostSequences(int32_t all, absl::FunctionRef<bool(int32_t sequences)> keeps);

// Layouts within this of each other count as equal. First among such are those that leave no rank
// of a job idle, then the one with the smallest replicas, then one whose shards NVLink connects, by
// fewer stages; of others that with fewer shards. So plans do not flap with measurements.
inline constexpr double kAlike = 0.05;

// The places of `standings`, best first.
std::vector<size_t> RankStandings(const Goal& goal, const cost::Workload& workload,
                                  const std::vector<Standing>& standings);

// "tokens a second, with TPOT of at most 50ms": the objective and the limits; and that no layout
// keeps these where `best`, the first of all, does not.
std::string RankedBy(const Goal& goal, const Standing& best);

// "exchanges take 40% of a step": what a layout that is not the best suffers from, by what it
// differs in the most plainly; empty where nothing of this kind tells.
std::string WhyItIsBehind(const Goal& goal, const cost::Workload& workload,
                          const Standing& standing, const Standing& best);

}  // namespace skein::plan
