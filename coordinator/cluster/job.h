// One job: its ranks, its plan and its replicas.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/acknowledgements.h"
#include "base/expert_load.h"
#include "coordinator/cluster/hang.h"
#include "coordinator/cluster/job_model.h"
#include "coordinator/cluster/links.h"
#include "coordinator/cluster/prediction_watch.h"
#include "coordinator/cluster/recent_times.h"
#include "coordinator/cluster/token_rate.h"
#include "parallel/attach/messages.h"
#include "parallel/comm/rank_times.h"
#include "parallel/plan/plan.h"
#include "serving/output.h"
#include "topology/machine.h"

namespace skein::coordinator {

struct Rank {
  enum class State { kAttached, kLoading, kReady, kLost, kEnded };
  State state = State::kAttached;
  attach::Hello hello;
  attach::Ready ready;
  attach::Heartbeat heartbeat;  // the last one since all ranks have attached, without `progress`
  RecentTimes times;
  std::shared_ptr<RankLink> link;  // null: no stream
  absl::Time last_heard;
  Acknowledgements steps;  // that were sent to it
  std::string failure;     // what it said of its end; empty while it lives
  absl::Time failed_at;
};

struct Replica {
  ReplicaId id;
  serving::ReplicaLoad load;
  TokenRate rate;
  int64_t tokens_total = 0;
  PredictionWatch steps;
  StepPredictor predictor;
};

struct Job {
  enum class State { kWaiting, kLoading, kServing, kDraining, kLost, kEnded };
  State state = State::kWaiting;
  std::shared_ptr<const JobModel> model;
  std::string id;       // with its key: two jobs may claim one id
  std::string key;      // attach::Hello's
  std::string version;  // of its ranks' program
  int32_t protocol = 0;
  plan::LayoutRequest layout;
  int32_t size = 0;               // the number of ranks, as its ranks tell it
  std::map<int32_t, Rank> ranks;  // only those that have attached: a claimed size costs nothing
  // By rank, each as of its last heartbeat. Empty until all ranks have attached.
  std::vector<RankActivity> activities;
  topology::Machine machine;  // that the plan is for
  std::optional<plan::Plan> plan;
  std::vector<Replica> replicas;  // by RankPlan::replica
  std::string detail;             // why it is lost or has ended
  absl::Time over_since;          // when it became so
  absl::Time drain_until;         // of one that drains

  bool serves() const { return state == State::kServing || state == State::kDraining; }
  bool over() const { return state == State::kLost || state == State::kEnded; }
  // All of its ranks have attached, and a thread plans it.
  bool is_planned() const { return state == State::kLoading && !plan.has_value(); }
  bool AllRanksAre(Rank::State wanted) const {
    return static_cast<int32_t>(ranks.size()) == size &&
           std::all_of(ranks.begin(), ranks.end(),
                       [&](const auto& entry) { return entry.second.state == wanted; });
  }
};

const char* StateName(Rank::State state);  // "attached"
const char* StateName(Job::State state);   // "waiting for ranks"

// "rank 3 on node7 (pid 4711)"
std::string RankName(const attach::Hello& hello);

// Of a job that is planned.
bool HasGpus(const Job& job);

bool HasName(const JobModel& model, const std::string& name);
std::vector<ReplicaId> ReplicasOf(const Job& job);

// The rank that has failed first: others fail for its sake. Null where none has.
Rank* FirstToFail(Job& job);

// Two ranks that read the same slices must have read the same bytes. FailedPrecondition when
// `rank` of `job` and another ready rank of `other` (which may be `job`) did not: which, and what.
absl::Status CheckSlices(const Job& job, const Rank& rank, const Job& other);

// The cluster as people see it.
struct RankStatus {
  int32_t rank = 0;
  std::string host;
  int32_t pid = 0;
  std::string state;
  absl::Duration heartbeat_age;
  int64_t bytes_read = 0;
  // Where its time went since it was ready for steps, and of late; none before it has told.
  std::optional<comm::RankTimes> times = std::nullopt;
  std::optional<comm::RankTimes> recent_times = std::nullopt;
};

struct ReplicaStatus {
  int32_t replica = 0;
  serving::ReplicaLoad load;
  double tokens_per_second = 0;
  int64_t tokens_total = 0;
  std::optional<StepComparison> decodes;  // of steps that decode alone
  std::optional<StepComparison> prompts;  // of steps with prompts
};

struct JobStatus {
  std::string id;
  std::string version;
  int32_t protocol = 0;
  std::string model;  // its name
  std::string state;
  int32_t size = 0;
  std::optional<plan::Plan> plan;
  std::vector<RankStatus> ranks;  // that have attached
  std::vector<ReplicaStatus> replicas;
  std::string detail;
  std::optional<absl::Duration> over_for;  // since it was lost or ended
  std::optional<ExpertLoad> experts;       // of its ranks, the largest
};

JobStatus StatusOfJob(const Job& job, absl::Time now);

}  // namespace skein::coordinator
