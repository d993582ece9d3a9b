// The two sides that the cluster talks to: ranks, and whoever gives work to replicas.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "coordinator/cluster/messages.h"
#include "parallel/plan/plan.h"

namespace skein::coordinator {

// The way to one rank. Calls never block and never call back; they may come from any thread, with
// locks of the cluster or the dispatcher held. After the rank has gone they do nothing.
class RankLink {
 public:
  virtual ~RankLink() = default;
  virtual void SendPlan(const plan::Plan& plan) = 0;
  virtual void SendStep(StepInput input) = 0;
  // How many messages SendStep has begun so far: several steps may share one.
  virtual uint64_t steps_sent() const = 0;
  virtual void SendShutdown(const std::string& reason, int exit_code) = 0;
  // Ends the stream with `status` once what was sent before is out.
  virtual void Close(const absl::Status& status) = 0;
};

// A replica that serves.
struct ReplicaInfo {
  uint64_t id = 0;   // never used again
  std::string name;  // "replica 1 of job 5f0c", for messages
  int32_t max_sequences = 0;
  std::shared_ptr<RankLink> leader;
  int64_t page_size = 0;       // tokens
  int64_t pages = 0;           // of its KV cache
  int64_t context_length = 0;  // tokens of one sequence
};

// Told of replicas by the cluster. Up and Down come with the cluster's lock held, in order; step
// outputs come without it, in order for one replica, and possibly after its Down.
class ReplicaListener {
 public:
  virtual ~ReplicaListener() = default;
  virtual void OnReplicaUp(const ReplicaInfo& replica) = 0;
  // All replicas of one job, which end together.
  virtual void OnReplicasDown(const std::vector<uint64_t>& ids, const absl::Status& why) = 0;
  // An error, after which the rest of the output is dropped, means that the worker is broken or
  // lies; the cluster then ends its job.
  virtual absl::Status OnStepOutput(uint64_t id, const StepOutput& output) = 0;
};

}  // namespace skein::coordinator
