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
#include "coordinator/cluster/job.h"
#include "coordinator/cluster/links.h"
#include "coordinator/cluster/prediction_watch.h"
#include "coordinator/cluster/rank_places.h"
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
// notice. Each job serves one of the models.
//
// Thread-safe. Links and listeners are called with the cluster's lock held (step outputs
// without), and must not call back.
class Cluster {
 public:
  using Planner = std::function<absl::StatusOr<plan::Planning>(
      const topology::Machine&, const plan::ModelFacts&, const plan::Constraints&)>;

  struct Options {
    std::string version;
    attach::ProtocolRange protocols = attach::kProtocols;
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

  // The clock outlives the cluster, which has no model yet.
  Cluster(Options options, const Clock* clock);

  // Jobs may serve it from now on. Its names are no other model's.
  void AddModel(JobModel model);
  // No job may come to it any more; its jobs' ranks are told to end with this exit code. `name` is
  // the first one.
  void RemoveModel(const std::string& name, const std::string& reason, int exit_code);
  // Of a model, that are not over.
  int64_t jobs_of(const std::string& name) const;

  const std::string& version() const { return options_.version; }
  const attach::ProtocolRange& protocols() const { return options_.protocols; }

  // What a rank that says so may be asked to prove: the version of the protocol to speak with it.
  // FailedPrecondition: they have none in common; InvalidArgument: a rank out of range; Aborted:
  // the coordinator shuts down.
  absl::StatusOr<int32_t> CheckHello(const attach::Hello& hello) const;

  // A rank that has proved that it is of the job it claims. Besides CheckHello's errors
  // NotFound: a model that is not served; FailedPrecondition: another version of the program, size
  // or layout than the job's other ranks have, a job that is over; AlreadyExists: a rank that is
  // there, which stays. On an error the link is not kept.
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

  // Finds ranks that are silent, or that hold up others beyond a deadline, and compares what steps
  // take with what was predicted: call it some ten times per heartbeat_timeout, from one thread.
  void Tick();

  // The job takes no new requests. Once those that it has have ended, or after the timeout, its
  // ranks are told to end with exit code 0, and other replicas of its model go on with the rest.
  // What it has, and whether it is the last one that serves its model, comes back. NotFound: no
  // job of this id lives; FailedPrecondition: two do. Again: only the timeout is new.
  struct Draining {
    std::string model;
    int64_t requests = 0;
    bool last_of_model = false;
  };
  absl::StatusOr<Draining> DrainJob(const std::string& job_id, absl::Duration timeout);

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
  // The hosts of all jobs that have a plan and are not over, as their ranks told of them, and where
  // the ranks with a part in these plans are. NotFound: there are none. FailedPrecondition: two
  // jobs have GPUs of one host, and how these are connected was not told.
  absl::StatusOr<LiveHosts> Hosts() const;
  // An SVG of the job's machines with its ranks; see PictureOf. NotFound: no job of this id has a
  // plan and is not over.
  absl::StatusOr<std::string> Picture(const std::string& job_id) const;

 private:
  absl::StatusOr<int32_t> CheckClaim(const attach::Hello& hello) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // By its name, or, where it says none, the one with the fewest jobs.
  absl::StatusOr<std::shared_ptr<const JobModel>> ChooseModel(const attach::Hello& hello) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  int64_t JobsOf(const JobModel& model) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Returns the job of that id and key that is not over, or a new one.
  absl::StatusOr<JobNumber> FindOrAddJob(const attach::Hello& hello, int32_t protocol)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Returns the rank, and its job in `job`; null when the job is over.
  Rank* FindLive(RankId id, Job** job) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Large jobs take seconds to plan: the lock is not held meanwhile.
  void PlanAndLoad(JobNumber number) ABSL_LOCKS_EXCLUDED(mutex_);
  // By replica, of a job that is planned.
  static std::vector<StepPredictor> PredictorsOf(const Job& job);
  // Tells what steps take beside what was predicted. Predictions take their time: the lock is not
  // held meanwhile.
  void CompareSteps() ABSL_LOCKS_EXCLUDED(mutex_);
  void FindLost() ABSL_LOCKS_EXCLUDED(mutex_);
  void Serve(Job& job) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Aborted, with the reason, for a leader that is stuck though its heartbeats come.
  absl::Status CheckMoves(const Job& job, Rank& rank, absl::Time now) const;
  void Lose(Job& job, Rank& culprit, const std::string& why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Ends the stream of a rank that fails when its job is over.
  void CloseOfOver(RankId id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Refuse(Job& job, const absl::Status& why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Once nothing is left to do, or its time is over.
  void EndIfDrained(Job& job, absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Ends a job that failed nowhere, and tells its ranks.
  void EndWell(Job& job, const std::string& why, int exit_code)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void EndJob(Job& job, Job::State state, const std::string& why)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ForgetOldJobs() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Options options_;
  const Clock* const clock_;

  mutable Mutex mutex_;
  std::vector<std::shared_ptr<const JobModel>> models_ ABSL_GUARDED_BY(mutex_);
  std::map<JobNumber, Job> jobs_ ABSL_GUARDED_BY(mutex_);  // in the order of their first Hello
  JobNumber next_job_ ABSL_GUARDED_BY(mutex_){1};
  ReplicaId next_replica_ ABSL_GUARDED_BY(mutex_){1};
  absl::Time last_tick_ ABSL_GUARDED_BY(mutex_);
  absl::Time last_comparison_;  // Tick's own
  bool shut_down_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace skein::coordinator
