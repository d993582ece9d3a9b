// What coordinator and ranks tell each other, as plain data: proto/cluster.proto without its types.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "topology/machine.h"

namespace skein::coordinator {

struct RankHello {
  std::string version;
  std::string job_id;
  int32_t rank = 0;
  int32_t job_size = 0;
  int32_t pid = 0;
  topology::Node node;
};

struct RankReady {
  std::string slice_key;
  std::string slice_digest;
  int64_t bytes_read = 0;
  double load_seconds = 0;
};

// Resolved: every field has its value. Ranges are those of the public API.
struct SamplingParams {
  float repetition_penalty = 1;
  float presence_penalty = 0;
  float frequency_penalty = 0;
  float temperature = 1;
  int32_t top_k = 0;
  float top_p = 1;
  float min_p = 0;
  uint64_t seed = 0;
  int32_t logprobs = -1;  // -1: none
};

struct NewRequest {
  uint64_t id = 0;
  std::vector<int32_t> prompt;
  uint32_t max_tokens = 0;
  std::vector<int32_t> eos_token_ids;
  SamplingParams sampling;
};

// New work for a replica: everything since the last one. Requests come before cancellations.
struct StepInput {
  std::vector<NewRequest> requests;
  std::vector<uint64_t> cancelled;
};

struct TokenLogprob {
  int32_t id = 0;
  float logprob = 0;
};

struct OutputToken {
  int32_t id = 0;
  float logprob = 0;              // valid when logprobs were asked for
  std::vector<TokenLogprob> top;  // as many as were asked for
};

struct SequenceOutput {
  enum class Finish { kNotFinished, kEos, kMaxTokens, kCancelled, kFailed };
  uint64_t request_id = 0;
  std::vector<OutputToken> tokens;
  Finish finish = Finish::kNotFinished;
  std::string error;  // with kFailed
};

struct ReplicaLoad {
  int32_t running = 0;
  int32_t waiting = 0;
  int64_t free_pages = 0;
  int64_t total_pages = 0;
  int64_t steps = 0;
};

struct StepOutput {
  std::vector<SequenceOutput> sequences;
  ReplicaLoad load;
};

}  // namespace skein::coordinator
