// What tests of the search share.
#pragma once

#include <string>
#include <utility>

#include "gtest/gtest.h"
#include "model/config/model_config.h"
#include "parallel/planner/search.h"
#include "topology/topology.h"

namespace skein::plan {

inline SearchTask Task(int64_t concurrency, Objective objective = Objective::kThroughput) {
  SearchTask task;
  task.workload = {512, 256, concurrency};
  task.objective = objective;
  return task;
}

inline SearchResult Search(const topology::Topology& topology, const model::ModelConfig& model,
                           const SearchTask& task) {
  absl::StatusOr<SearchResult> result = SearchLayouts(topology, model, task);
  EXPECT_TRUE(result.ok()) << result.status();
  if (!result.ok() || result->choices.empty()) return {{Choice{}}, {}, ""};
  return *std::move(result);
}

inline std::string Best(const topology::Topology& topology, const model::ModelConfig& model,
                        const SearchTask& task) {
  return Search(topology, model, task).choices.front().layout.ToString();
}

}  // namespace skein::plan
