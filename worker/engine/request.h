// What goes into a replica and what comes out of it, as plain data.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "kernels/sampling/sampling.h"

namespace skein::worker {

using RequestId = uint64_t;

// One answer to a request's prompt.
struct SampleStart {
  int32_t index = 0;  // tells the answers of a request apart, in their random draws, too
  // Tokens of the answer that were given before, on another replica; they are not given again.
  std::vector<int32_t> output;
  std::optional<float> mu;  // mirostat's state after them
};

struct GenerationRequest {
  RequestId id = 0;
  std::vector<int32_t> prompt;                   // at least one token
  std::vector<SampleStart> samples = {{}};       // at least one; they share the prompt's pages
  int64_t max_tokens = 0;                        // of each whole answer, `output` included
  std::vector<int32_t> eos_token_ids;            // end an answer
  int32_t priority = 0;                          // higher goes first
  absl::Time deadline = absl::InfiniteFuture();  // earlier goes first
  absl::Duration waited;                         // before it came here, also in other replicas
  int32_t prompt_logprobs = -1;      // n >= 0: of each prompt token, and of the n most likely ones
  kernels::SamplingParams sampling;  // `sample` is each answer's index
};

enum class Finish : uint8_t {
  kNotFinished,
  kEos,        // the last token is one of eos_token_ids
  kMaxTokens,  // max_tokens were given
  kCancelled,  // the whole request, or this answer of it alone
  kFailed,     // this answer
};

struct SequenceOutput {
  RequestId id = 0;
  int32_t sample = 0;  // SampleStart::index
  std::vector<kernels::SampledToken> tokens;
  std::vector<kernels::SampledToken> prompt_logprobs;  // the next ones, from the second token on
  Finish finish = Finish::kNotFinished;
  std::string error;  // with kFailed
};

// The state of a replica; counters run since its start.
struct ReplicaLoad {
  int32_t running = 0;
  int32_t waiting = 0;
  int64_t total_pages = 0;
  int64_t free_pages = 0;    // neither used nor cached
  int64_t used_pages = 0;    // by running sequences
  int64_t shared_pages = 0;  // of them, by two or more
  int64_t cached_pages = 0;  // kept for later prompts, used or not
  int64_t total_swap_pages = 0;
  int64_t free_swap_pages = 0;
  int64_t steps = 0;
  int64_t prompt_tokens = 0;  // of admitted sequences
  int64_t cached_tokens = 0;  // of them, found in the prefix cache
  int64_t preemptions_swapped = 0;
  int64_t preemptions_recomputed = 0;
  absl::Duration host_time;  // of the scheduling thread's CPU, from results to the next order
};

// What one step gave, for all sequences that it moved.
struct StepReport {
  uint64_t epoch = 0;  // Inbox::Contents::epoch of the requests
  std::vector<SequenceOutput> sequences;
  ReplicaLoad load;
};

}  // namespace skein::worker
