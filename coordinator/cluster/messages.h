// What coordinator and ranks tell each other, as plain data: proto/cluster.proto without its types.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "parallel/comm/call.h"
#include "parallel/plan/plan.h"
#include "topology/machine.h"

namespace skein::coordinator {

// Far beyond any mpirun, far below what memory minds.
inline constexpr int32_t kMaxJobSize = 65536;

struct RankHello {
  std::string version;
  std::string job_id;
  int32_t rank = 0;
  int32_t job_size = 0;
  int32_t pid = 0;
  topology::Node node;
  topology::Device device;
  std::string secret_digest;   // of the job's secret
  plan::LayoutRequest layout;  // of the job; nothing asked: the coordinator's
};

struct RankReady {
  std::string slice_key;
  std::string slice_digest;
  int64_t bytes_read = 0;
  double load_seconds = 0;
  std::string model_path;  // where the rank's node has the model
};

// A call between ranks that one of them has entered and not left.
struct OperationInProgress {
  std::string group;  // "tp of replica 0, stage 1"
  comm::Operation operation = comm::Operation::kBarrier;
  int64_t number = 0;           // of the group's collectives, or of the pair's messages
  int32_t peer = -1;            // rank: a message's other end, a broadcast's root
  std::vector<int32_t> others;  // ranks that take part, without this one
  double seconds = 0;           // since it was entered
  double deadline_seconds = 0;  // after which it counts as hung
  double still_seconds = 0;     // since its thread entered it or last looked for the others
};

// The state of a rank, as its heartbeat tells it.
struct RankActivity {
  std::optional<OperationInProgress> operation;
  std::optional<int64_t> step;             // in hand; unset while the rank waits for an order
  std::map<std::string, int64_t> entered;  // by group: the last collective
  // Leaders: threads that schedule or wait, by name, and the seconds since each last said that it
  // lives.
  std::map<std::string, double> threads;
  uint64_t steps_taken = 0;  // of the messages with steps that were sent to it
  double age_seconds = 0;    // of the heartbeat
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
  std::vector<std::pair<int32_t, float>> logit_bias;
  int32_t min_tokens = 0;
  std::vector<int32_t> stop_ids;  // not drawn before min_tokens
  float typical_p = 1;
  float mirostat_tau = 0;  // 0: off
  float mirostat_eta = 0.1f;
  float dry_multiplier = 0;  // 0: off
  float dry_base = 1.75f;
  int32_t dry_allowed_length = 2;
  int32_t dry_last_n = -1;  // -1: the whole history
  std::vector<std::vector<int32_t>> dry_breakers;
};

// One answer of a request.
struct SampleStart {
  uint32_t index = 0;
  std::vector<int32_t> output;  // that was given before, by another replica
  std::optional<float> mu;      // mirostat's state after it
};

struct NewRequest {
  uint64_t id = 0;
  std::vector<int32_t> prompt;
  std::vector<SampleStart> samples = {{}};       // the answers that are not finished, at least one
  uint32_t max_tokens = 0;                       // of each whole answer
  std::vector<int32_t> eos_token_ids;            // end an answer: the model's, and the client's
  int32_t priority = 0;                          // higher goes first
  absl::Time deadline = absl::InfiniteFuture();  // earlier goes first
  absl::Duration waited;                         // since it arrived, until it was sent
  int32_t prompt_logprobs = -1;                  // -1: none
  SamplingParams sampling;
};

struct CancelledSample {
  uint64_t request_id = 0;
  uint32_t sample = 0;  // SampleStart::index

  friend bool operator==(const CancelledSample&, const CancelledSample&) = default;
};

// New work for a replica: everything since the last one. Requests come before cancellations.
struct StepInput {
  std::vector<NewRequest> requests;
  std::vector<uint64_t> cancelled;
  std::vector<CancelledSample> cancelled_samples;  // the request's other answers go on
};

struct TokenLogprob {
  int32_t id = 0;
  float logprob = 0;
};

struct OutputToken {
  int32_t id = 0;
  float logprob = 0;              // valid when logprobs were asked for
  std::vector<TokenLogprob> top;  // as many as were asked for
  float mu = 0;                   // mirostat's state after it
};

struct SequenceOutput {
  enum class Finish { kNotFinished, kEos, kMaxTokens, kCancelled, kFailed };
  uint64_t request_id = 0;
  uint32_t sample = 0;  // SampleStart::index; kCancelled is of all that was cancelled together
  std::vector<OutputToken> tokens;
  std::vector<OutputToken> prompt_logprobs;  // the next ones, from the prompt's second token on
  Finish finish = Finish::kNotFinished;
  std::string error;  // with kFailed
};

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
  // Since the replica's start.
  int64_t steps = 0;
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;  // of them, found in the prefix cache
  int64_t preemptions_swapped = 0;
  int64_t preemptions_recomputed = 0;
  double host_seconds = 0;  // of the scheduling thread's CPU, from what arrives to the next order
};

struct StepOutput {
  std::vector<SequenceOutput> sequences;
  ReplicaLoad load;
};

}  // namespace skein::coordinator
