// The queue of requests and the replicas that answer them.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "base/mutex.h"
#include "coordinator/cluster/links.h"
#include "coordinator/service/generation.h"

namespace skein::coordinator {

// Gives requests to replicas, first come, first served: a replica holds at most twice as many as
// run at once (so that a free slot never waits for the coordinator), the rest wait here.
//
// Thread-safe. Generations' on_ready is called with this class's lock held, so it must not call
// back into the dispatcher.
class Dispatcher final : public ReplicaListener {
 public:
  struct Options {
    int64_t max_queue = 256;  // requests that wait here at most
    // Told, under the dispatcher's lock, whenever requests begin or cease to be taken.
    std::function<void(bool)> on_serving = [](bool) {};
  };
  struct Counts {
    int64_t queued = 0;
    int64_t running = 0;
  };

  explicit Dispatcher(Options options) : options_(std::move(options)) {}

  // ReplicaListener: called by the cluster.
  void OnReplicaUp(const ReplicaInfo& replica) override;
  // Its requests end with `why`; those in the queue, too, when it was the last one.
  void OnReplicaDown(uint64_t id, const absl::Status& why) override;
  void OnStepOutput(uint64_t id, const StepOutput& output) override;

  // Queues the request or hands it to a replica. Unavailable: no replica serves, or the coordinator
  // drains. ResourceExhausted: the queue is full.
  absl::Status Admit(std::shared_ptr<Generation> generation);
  // The client has gone: the request leaves the queue or its replica at once, without an event.
  void Cancel(uint64_t request_id);

  // From now on Admit refuses; what was admitted goes on.
  void StartDrain();
  // Ends every request with `status`.
  void FailAll(const absl::Status& status);

  Counts counts() const;
  bool serving() const;
  bool draining() const;

 private:
  struct Replica {
    ReplicaInfo info;
    std::map<uint64_t, std::shared_ptr<Generation>> requests;
    int64_t cost = 0;
  };

  bool ServingLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Pump() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Remove(Replica& replica, uint64_t request_id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void FailQueue(const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Options options_;
  mutable Mutex mutex_;
  bool draining_ ABSL_GUARDED_BY(mutex_) = false;
  std::deque<std::shared_ptr<Generation>> queue_ ABSL_GUARDED_BY(mutex_);
  std::map<uint64_t, Replica> replicas_ ABSL_GUARDED_BY(mutex_);  // by ReplicaInfo::id
};

}  // namespace skein::coordinator
