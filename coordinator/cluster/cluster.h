// Follows jobs from their first rank's Hello to their end: which ranks are there, which are silent,
// what they run.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "base/strong_id.h"
#include "coordinator/cluster/decode_watch.h"
#include "coordinator/cluster/job.h"
#include "coordinator/cluster/links.h"
#include "parallel/attach/messages.h"
#include "parallel/attach/protocol.h"
#include "parallel/planner/planner.h"
#include "serving/output.h"
#include "topology/topology.h"

namespace skein::coordinator {

// A state machine without threads: it moves when a rank says something or when Tick is called, and
// knows the time from its clock. A job whose ranks have all said Hello is planned and loads; when
// every rank is ready its replicas serve. A rank that ends, fails, is silent or holds up the others
// loses its whole job, since the ranks of one mpirun live and die together; other jobs do not
// notice.
//
// Thread-safe. Links and the listener are called with the cluster's lock held (step outputs
// without), and must not call back.
class Cluster {
 public:
  using Planner = std::function<absl::StatusOr<plan::Planning>(
      const topology::Machine&, const plan::ModelFacts&, const plan::Constraints&)>;

  struct Options {
    std::string version;
    attach::ProtocolRange protocols = attach::kProtocols;
    plan::Constraints constraints;  // of every job
    absl::Duration heartbeat_timeout = absl::Seconds(3);
    // How long a leader's threads that schedule or wait may give no sign of life, and how long a
    // message to a leader may wait to be taken up.
    absl::Duration progress_timeout = absl::Seconds(5);
    Planner planner = plan::PlanJob;
  };

  // Given by the cluster; never used again.
  using JobNumber = StrongId<struct JobNumberTag>;

  // Names an attached rank.
  struct RankId {
    JobNumber job;
    int32_t rank = 0;
  };

  // Listener and clock outlive the cluster.
  Cluster(Options options, plan::ModelFacts model, ReplicaListener* listener, const Clock* clock);

  const std::string& version() const { return options_.version; }
  const attach::ProtocolRange& protocols() const { return options_.protocols; }

  // What a rank that says so may be asked to prove: the version of the protocol to speak with it.
  // FailedPrecondition: they have none in common; InvalidArgument: a rank out of range; Aborted:
  // the coordinator shuts down.
  absl::StatusOr<int32_t> CheckHello(const attach::Hello& hello) const;

  // A rank that has proved that it is of the job it claims. Besides CheckHello's errors
  // FailedPrecondition: another version of the program, size or layout than the job's other ranks
  // have, a job that is over; AlreadyExists: a rank that is there, which stays. On an error the
  // link is not kept.
  absl::StatusOr<RankId> Attach(const attach::Hello& hello, std::shared_ptr<RankLink> link);

  // Messages of an attached rank. Those of a job that is over are ignored; one out of turn loses
  // the job.
  void OnHeartbeat(RankId id, attach::Heartbeat heartbeat = {});
  void OnReady(RankId id, const attach::Ready& ready);
  void OnStep(RankId id, const serving::StepOutput& output);
  // The job is lost at a later Tick: where a rank dies, others fail too, and the dead one, whose
  // stream ends a moment sooner or later, is to be named.
  void OnFailure(RankId id, const absl::Status& status);
  // The rank's stream has ended, whatever the reason.
  void OnGone(RankId id, const absl::Status& status);

  // Finds ranks that are silent, or that hold up others beyond a deadline: call it some ten times
  // per heartbeat_timeout.
  void Tick();

  // Tells every rank to end; no rank may attach any more.
  void Shutdown(const std::string& reason, int exit_code);

  // Ranks that have a stream.
  int64_t attached_ranks() const;
  // Jobs that serve, then others, both in the order of their first Hello; of those that are over,
  // the last few, the last one first.
  std::vector<JobStatus> Status() const;
  // The status of one job, for a caller that knows its key. Nothing when no rank of it has
  // attached, or when it was over so long ago that it is forgotten.
  std::optional<JobStatus> Find(const std::string& job_id, const std::string& key) const;
  // The hosts of all jobs that have a plan and are not over, as their ranks told of them. NotFound:
  // there are none. FailedPrecondition: two jobs have GPUs of one host, and how these are connected
  // was not told.
  absl::StatusOr<topology::Topology> Hosts() const;

 private:
  absl::StatusOr<int32_t> CheckClaim(const attach::Hello& hello) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Returns the job of that id and key that is not over, or a new one.
  absl::StatusOr<JobNumber> FindOrAddJob(const attach::Hello& hello, int32_t protocol)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Returns the rank, and its job in `job`; null when the job is over.
  Rank* FindLive(RankId id, Job** job) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void PlanAndLoad(Job& job) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // By replica, of a job that is planned.
  std::vector<DecodeWatch::Predictor> DecodesOf(const Job& job) const;
  // Tells what steps take beside what was predicted.
  void CompareDecodes(Job& job) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Serve(Job& job) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Aborted, with the reason, for a leader that is stuck though its heartbeats come.
  absl::Status CheckMoves(const Job& job, Rank& rank, absl::Time now) const;
  void Lose(Job& job, Rank& culprit, const std::string& why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Ends the stream of a rank that fails when its job is over.
  void CloseOfOver(RankId id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Refuse(Job& job, const absl::Status& why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void EndJob(Job& job, Job::State state, const std::string& why)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ForgetOldJobs() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Options options_;
  const plan::ModelFacts model_;
  ReplicaListener* const listener_;
  const Clock* const clock_;

  mutable Mutex mutex_;
  std::map<JobNumber, Job> jobs_ ABSL_GUARDED_BY(mutex_);  // in the order of their first Hello
  JobNumber next_job_ ABSL_GUARDED_BY(mutex_){1};
  ReplicaId next_replica_ ABSL_GUARDED_BY(mutex_){1};
  absl::Time last_tick_ ABSL_GUARDED_BY(mutex_);
  bool shut_down_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace skein::coordinator
