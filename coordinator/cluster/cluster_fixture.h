// A cluster with jobs of ranks that a test attaches by hand, and a clock that it moves.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "coordinator/cluster/cluster.h"
#include "gtest/gtest.h"

namespace skein::coordinator {

// What a rank was told.
class FakeLink final : public RankLink {
 public:
  void SendPlan(const plan::Plan& plan) override { plans.push_back(plan); }
  void SendUpdates(serving::RequestUpdates) override { ++steps; }
  uint64_t messages_sent() const override { return steps; }
  void SendShutdown(const std::string& reason, int exit_code) override {
    shutdowns.push_back(absl::StrCat(exit_code, ": ", reason));
  }
  void Close(const absl::Status& status) override { closed.push_back(status); }

  std::vector<plan::Plan> plans;
  uint64_t steps = 0;
  std::vector<std::string> shutdowns;
  std::vector<absl::Status> closed;
};

class FakeListener final : public ReplicaListener {
 public:
  void OnReplicaUp(const ReplicaInfo& replica) override { up[replica.id] = replica; }
  void OnReplicasDown(const std::vector<ReplicaId>& ids, const absl::Status& why) override {
    for (const ReplicaId id : ids) {
      up.erase(id);
      down.push_back(why);
    }
  }
  void OnReplicasDraining(const std::vector<ReplicaId>& ids) override {
    draining.insert(draining.end(), ids.begin(), ids.end());
  }
  int64_t Outstanding(const std::vector<ReplicaId>&) const override { return outstanding; }
  absl::Status OnStepOutput(ReplicaId id, const serving::StepOutput& output) override {
    outputs.emplace_back(id, output.answers.size());
    return accepts;
  }

  absl::Status accepts;  // what comes
  int64_t outstanding = 0;
  std::vector<ReplicaId> draining;

  std::map<ReplicaId, ReplicaInfo> up;
  std::vector<absl::Status> down;
  std::vector<std::pair<ReplicaId, size_t>> outputs;
};

// tp=2 and as many replicas as the ranks give; odd jobs cannot be planned.
inline absl::StatusOr<plan::Planning> PlanPairs(const topology::Machine& machine,
                                                const plan::ModelFacts& model,
                                                const plan::Constraints&) {
  const auto ranks = static_cast<int32_t>(machine.devices.size());
  if (ranks % 2 != 0) return absl::FailedPreconditionError("odd jobs are not planned here");
  plan::Plan plan;
  plan.model_name = model.name;
  plan.model_path = model.path;
  plan.layout = {.tp_size = 2, .pp_size = 1, .dp_size = ranks / 2};
  plan.max_num_seqs = 4;
  plan.pages = 9;
  plan.swap_pages = 5;
  for (int32_t rank = 0; rank < ranks; ++rank) {
    plan.ranks.push_back({.rank = rank, .dp_rank = rank / 2, .tp_rank = rank % 2});
  }
  return plan::Planning{.plans = {plan}};
}

class ClusterTest : public ::testing::Test {
 protected:
  ClusterTest() { AddModel(cluster_, {.name = "bard", .path = "checkpoints/bard"}, listener_); }

  // The listener outlives the cluster.
  static void AddModel(Cluster& cluster, const plan::ModelFacts& facts, FakeListener& listener,
                       const std::vector<std::string>& aliases = {}) {
    cluster.AddModel({.facts = facts,
                      .aliases = aliases,
                      .constraints = {},
                      .listener = {std::shared_ptr<void>(), &listener}});
  }

  struct TestRank {
    std::shared_ptr<FakeLink> link = std::make_shared<FakeLink>();
    absl::StatusOr<Cluster::RankId> id;
  };

  static attach::Hello Hello(const std::string& job, int32_t rank, int32_t size) {
    return {.version = "1",
            .protocols = attach::kProtocols,
            .job_id = job,
            .rank = rank,
            .job_size = size,
            .pid = 100 + rank,
            .node = {.host = absl::StrCat("node", rank), .cores = 4, .memory_bytes = 1 << 30}};
  }

  TestRank Attach(const attach::Hello& hello) {
    TestRank rank;
    rank.id = cluster_.Attach(hello, rank.link);
    return rank;
  }

  std::vector<TestRank> AttachJob(const std::string& job, int32_t size) {
    std::vector<TestRank> ranks;
    for (int32_t i = 0; i < size; ++i) ranks.push_back(Attach(Hello(job, i, size)));
    return ranks;
  }

  // Slices are equal where shards are.
  std::vector<TestRank> ServeJob(const std::string& job, int32_t size) {
    std::vector<TestRank> ranks = AttachJob(job, size);
    for (int32_t i = 0; i < size; ++i) {
      cluster_.OnReady(*ranks[i].id, {.slice_key = absl::StrCat("shard", i % 2),
                                      .slice_digest = absl::StrCat("d", i % 2),
                                      .model_path = "/models/bard"});
    }
    return ranks;
  }

  // Half a second at a time, as a ticker does; `alive` send heartbeats.
  void Pass(int half_seconds, const std::vector<Cluster::RankId>& alive) {
    for (int i = 0; i < half_seconds; ++i) {
      clock_.Advance(absl::Milliseconds(500));
      for (const Cluster::RankId id : alive) cluster_.OnHeartbeat(id);
      cluster_.Tick();
    }
  }

  std::string StateOf(const std::string& job) const {
    for (const JobStatus& status : cluster_.Status()) {
      if (status.id == job) return status.state;
    }
    return "unknown";
  }

  SimulatedClock clock_;
  FakeListener listener_;
  Cluster cluster_{{.version = "1", .planner = PlanPairs}, &clock_};
};

}  // namespace skein::coordinator
