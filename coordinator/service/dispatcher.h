// The queue of requests and the replicas that answer them.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "coordinator/cluster/links.h"
#include "coordinator/service/generation.h"
#include "coordinator/service/prefix_index.h"
#include "serving/queue_order.h"
#include "serving/request.h"

namespace skein::coordinator {

// Gives requests to replicas (ChooseReplica says which): among equal priorities the earlier
// deadline first, then the first to come. A request that no replica has room for waits here. When a
// replica is lost, its requests go back to the front of the queue, and another replica goes on with
// them from where they stand. A request that fits no replica waits for one, while requests behind
// it go to replicas that they fit.
//
// Thread-safe. Generations' on_ready is called with this class's lock held, so it must not call
// back into the dispatcher.
class Dispatcher final : public ReplicaListener {
 public:
  struct Options {
    int64_t max_queue = 256;  // requests that wait here at most
    int64_t max_retries = 3;  // of a request, in a row, between which no token came
    absl::Duration replica_wait =
        absl::Seconds(30);  // of requests that fit no replica that is left
    // Told, under the dispatcher's lock, whenever requests begin or cease to be taken.
    std::function<void(bool)> on_serving = [](bool) {};
  };
  struct Counts {
    int64_t queued = 0;
    int64_t running = 0;
    int64_t migrations = 0;  // how often an answer went on elsewhere in its middle

    Counts& operator+=(const Counts& other) {
      queued += other.queued;
      running += other.running;
      migrations += other.migrations;
      return *this;
    }
  };

  // The clock outlives the dispatcher.
  Dispatcher(Options options, const Clock* clock) : options_(std::move(options)), clock_(clock) {}

  // ReplicaListener: called by the cluster.
  void OnReplicaUp(const ReplicaInfo& replica) override;
  void OnReplicasDraining(const std::vector<ReplicaId>& ids) override;
  int64_t Outstanding(const std::vector<ReplicaId>& ids) const override;
  void OnReplicasDown(const std::vector<ReplicaId>& ids, const absl::Status& why) override;
  absl::Status OnStepOutput(ReplicaId id, const serving::StepOutput& output) override;

  // Queues the request or hands it to a replica. Unavailable: no replica serves, or the coordinator
  // drains, or each one that it fits does. FailedPrecondition: it fits no replica.
  // ResourceExhausted: the queue is full.
  absl::Status Admit(std::shared_ptr<Generation> generation);
  // Queues a request that an earlier process had admitted, ahead of new ones, whether or not a
  // replica serves yet: it waits `patience` longer for one than others that fit none.
  void Readmit(std::shared_ptr<Generation> generation, absl::Duration patience);
  // They leave the queue or their replicas at once, without an event; unknown ones are passed over.
  void Cancel(const std::vector<serving::RequestId>& request_ids);
  // Ends requests whose deadline has passed, and those that fitted no replica for replica_wait:
  // call it several times a second.
  void Tick();

  // From now on Admit refuses and says why, and nothing waits for a replica to come; what was
  // admitted goes on.
  void StartDrain(const std::string& why = "the coordinator is shutting down");
  // Ends every request with `status`.
  void FailAll(const absl::Status& status);

  Counts counts() const;
  bool serving() const;
  bool draining() const;

 private:
  struct Running {
    std::shared_ptr<Generation> generation;
    int64_t answers = 0;
    int64_t tokens = 0;  // to compute, at most
  };
  struct Replica {
    ReplicaInfo info;
    PrefixIndex prefixes;
    std::map<serving::RequestId, Running> requests;
    int64_t answers = 0;  // of all requests
    int64_t tokens = 0;
    bool draining = false;
  };
  struct Waiting {
    std::shared_ptr<Generation> generation;
    bool is_new = true;                            // it was not taken from a lost replica
    absl::Time stranded = absl::InfiniteFuture();  // since when it fits no replica
  };
  // Requests of a lost replica go first, then as the replicas' schedulers have it, then by id.
  struct Place {
    bool is_new = true;
    serving::QueueOrder order;
    serving::RequestId id;

    friend auto operator<=>(const Place&, const Place&) = default;
  };

  static Place PlaceOf(const Waiting& waiting, absl::Time now);
  static absl::Status CheckFits(const Generation& generation, const Replica& replica);
  static bool Takes(const Replica& replica, const Generation& generation);
  bool AnyTakes() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);  // of the replicas, new requests
  bool ServingLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Pump() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Replica* Choose(const Generation& generation, int64_t* cached)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Give(Replica& replica, int64_t cached, std::shared_ptr<Generation> generation)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void CancelLocked(const std::vector<serving::RequestId>& request_ids)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void EndLate(absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Remove(Replica& replica, serving::RequestId request_id)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool FitsAny(const Generation& generation) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The reason of every replica: "replica 0 of job 5f0c: its KV cache holds ...".
  std::string WhyNoneFits(const Generation& generation) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Called after replicas came or went: notes which requests fit no replica now, and which fit one
  // again. In a drain it ends the former, since no replica will come.
  void NoteStranded() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Options options_;
  const Clock* const clock_;
  mutable Mutex mutex_;
  bool draining_ ABSL_GUARDED_BY(mutex_) = false;
  std::string why_draining_ ABSL_GUARDED_BY(mutex_);
  std::map<serving::RequestId, Waiting> queue_ ABSL_GUARDED_BY(mutex_);
  std::map<ReplicaId, Replica> replicas_ ABSL_GUARDED_BY(mutex_);
  absl::Status last_loss_why_ ABSL_GUARDED_BY(mutex_);
  int64_t migrations_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace skein::coordinator
