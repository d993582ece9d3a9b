// The two sides that the cluster talks to: ranks, and whoever gives work to replicas.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/strong_id.h"
#include "parallel/plan/plan.h"
#include "serving/output.h"
#include "serving/request.h"

namespace skein::coordinator {

// The way to one rank. Calls never block and never call back; they may come from any thread, with
// locks of the cluster or the dispatcher held. After the rank has gone they do nothing.
class RankLink {
 public:
  virtual ~RankLink() = default;
  virtual void SendPlan(const plan::Plan& plan) = 0;
  // Leaders only.
  virtual void SendUpdates(serving::RequestUpdates updates) = 0;
  // How many messages SendUpdates has begun so far: several calls may share one.
  virtual uint64_t messages_sent() const = 0;
  virtual void SendShutdown(const std::string& reason, int exit_code) = 0;
  // Ends the stream with `status` once what was sent before is out.
  virtual void Close(const absl::Status& status) = 0;
};

// Given by the cluster; never used again.
using ReplicaId = StrongId<struct ReplicaIdTag>;

// A replica that serves.
struct ReplicaInfo {
  ReplicaId id;
  std::string name;  // "replica 1 of job 5f0c", for messages
  int32_t max_num_seqs = 0;
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
  // They take no new request from now on; their Down follows.
  virtual void OnReplicasDraining(const std::vector<ReplicaId>& ids) = 0;
  // Requests that these have and that have not ended.
  virtual int64_t Outstanding(const std::vector<ReplicaId>& ids) const = 0;
  // All replicas of one job, which end together.
  virtual void OnReplicasDown(const std::vector<ReplicaId>& ids, const absl::Status& why) = 0;
  // An error, after which the rest of the output is dropped, means that the worker is broken or
  // lies; the cluster then ends its job.
  virtual absl::Status OnStepOutput(ReplicaId id, const serving::StepOutput& output) = 0;
};

}  // namespace skein::coordinator
