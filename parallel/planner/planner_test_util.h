// Machines and models that the planner's tests plan for, and what holds for every plan.
#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "base/test_util.h"
#include "gtest/gtest.h"
#include "model/config/test_models.h"
#include "parallel/planner/planner.h"
#include "topology/machine.h"

namespace skein::plan {

inline constexpr int64_t kGiB = int64_t{1} << 30;

inline ModelFacts Bard() { return {"bard", "/models/bard", "1d", model::Bard()}; }
inline ModelFacts Llama8B() { return {"llama3-8b", "/models/llama3-8b", "8b", model::Llama8B()}; }

// `ranks` ranks on each node, in the order of the nodes.
inline topology::Machine Machine(std::vector<std::pair<topology::Node, int32_t>> nodes) {
  topology::Machine machine;
  for (const auto& [node, ranks] : nodes) {
    const auto index = static_cast<int32_t>(machine.nodes.size());
    machine.nodes.push_back(node);
    for (int32_t i = 0; i < ranks; ++i) machine.devices.push_back({{}, index});
  }
  return machine;
}

inline topology::Machine OneNode(int32_t cores, int64_t memory_bytes, int32_t ranks) {
  return Machine({{{"alpha", cores, memory_bytes}, ranks}});
}

// With figures of its cores, on which ranks exchange messages after `latency`.
inline topology::Machine WithLatency(topology::Machine machine, absl::Duration latency) {
  machine.topology.hosts.resize(machine.nodes.size());
  for (topology::Host& host : machine.topology.hosts) {
    host.core_rates.reads = {{int64_t{1} << 40, 10e9, 10e9}};
    host.core_rates.products = {{DType::kBF16, 0, 1, 1e12}};
    host.links = {{topology::Path::kSelf, {.latency = latency, .bytes_per_s = 1e12}}};
  }
  return machine;
}

inline std::string Reasons(const Plan& plan) {
  std::string text;
  for (const std::string& reason : plan.reasons) text += reason + "\n";
  return text;
}

// A plan is sound: workers accept it, and its layouts and the rejected ones are all there are.
inline void ExpectSound(const Planning& planning, const ModelFacts& model, size_t ranks) {
  for (const Plan& plan : planning.plans) {
    SKEIN_EXPECT_OK(ValidatePlan(plan, model.config));
    EXPECT_EQ(plan.ranks.size(), ranks);
    EXPECT_EQ(plan.model_name, model.name);
    EXPECT_EQ(plan.model_path, model.path);
    EXPECT_EQ(plan.model_identity, model.identity);
    const int32_t stages = plan.layout.pp_size;
    EXPECT_GE(plan.micro_batches, std::min(stages, plan.max_num_seqs));
    EXPECT_LE(plan.micro_batches, stages == 1 ? 1 : std::min(4 * stages, plan.max_num_seqs));
    EXPECT_EQ(plan.max_num_batched_tokens, std::max(256 * plan.layout.pp_size, plan.max_num_seqs));
  }
  size_t layouts = 0;
  for (size_t tp = 1; tp <= ranks; ++tp) {
    for (size_t pp = 1; pp * tp <= ranks; ++pp) layouts += ranks % (tp * pp) == 0;
  }
  EXPECT_EQ(planning.rejected.size(), layouts - 1);
  for (const RejectedLayout& rejected : planning.rejected) {
    EXPECT_NE(rejected.layout, planning.plans[0].layout);
    EXPECT_FALSE(rejected.reason.empty()) << rejected.layout.ToString();
  }
}

// Activations for up to 100 sequences and the allowance for a process, of a rank of the 8B, are
// below.
inline constexpr int64_t kSlackBytes = int64_t{256} << 20;

// That the ranks, all on one node, take what may be taken, and no more.
inline void ExpectFilled(const Plan& plan, int64_t usable_bytes) {
  int64_t bytes = 0;
  for (const RankPlan& rank : plan.ranks) bytes += rank.weight_bytes + rank.kv_bytes;
  EXPECT_LE(bytes, usable_bytes);
  EXPECT_GT(bytes, usable_bytes - plan.layout.ranks() * kSlackBytes);
}

}  // namespace skein::plan
