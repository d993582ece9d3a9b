// What goes into a replica and what comes out of it, as plain data.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/ops/sampling.h"

namespace skein::worker {

using RequestId = uint64_t;  // also the id of its sequence

struct GenerationRequest {
  RequestId id = 0;
  std::vector<int32_t> prompt;  // at least one token
  // Tokens of the answer that were given before, on another replica; they are not given again.
  std::vector<int32_t> output;
  int64_t max_tokens = 0;  // of the whole answer, `output` included
  std::vector<int32_t> eos_token_ids;
  kernels::SamplingParams sampling;
};

enum class Finish : uint8_t {
  kNotFinished,
  kEos,        // the last token is one of eos_token_ids
  kMaxTokens,  // max_tokens were given
  kCancelled,
  kFailed,
};

struct SequenceOutput {
  RequestId id = 0;
  std::vector<kernels::SampledToken> tokens;
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

// What one step gave, for all sequences that it moved.
struct StepReport {
  std::vector<SequenceOutput> sequences;
  ReplicaLoad load;
};

}  // namespace skein::worker
