// The requests of a load test, made before it begins. Pure; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "parallel/planner/lengths.h"

namespace skein::client {

struct Workload {
  int64_t requests = 0;
  std::vector<plan::Lengths> lengths;  // at least one; taken in turn, again and again
  int64_t shared_prefix = 0;           // tokens that all prompts begin with
  double rate_per_s = 0;               // arrivals as a Poisson process; 0: all are there at once
  uint64_t seed = 0;
  // The model's.
  std::string model;  // its name
  int64_t vocabulary = 0;
  int64_t context_length = 0;
};

struct PlannedRequest {
  std::string model;
  std::vector<uint32_t> prompt;
  int64_t answer_tokens = 0;
  absl::Duration at;  // since the start
};

// Token ids are drawn evenly, the shared prefix depends on the seed alone, and `stream` tells apart
// the suffixes and arrivals of several workloads of one seed (those of a warm-up). The same on all
// machines. InvalidArgument names the lengths that cannot be and why.
absl::StatusOr<std::vector<PlannedRequest>> PlanRequests(const Workload& workload, uint64_t stream);

}  // namespace skein::client
