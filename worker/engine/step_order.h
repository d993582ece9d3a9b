// What the leader tells its replica's ranks to do in one step, and what comes back: the messages
// on the control channel.
//
// Orders are carried out whole and one after the other. The next one is planned and sent while one
// runs, so it may build on tokens that only the ranks know, and reuse pages that the one before
// still writes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/sampling/sampling.h"
#include "worker/engine/request.h"
#include "worker/scheduler/schedule.h"

namespace skein::worker {

// A sequence's first step; the sampling rank keeps what it needs to draw its tokens.
struct SequenceStart {
  SequenceId id = 0;
  std::vector<int32_t> prompt;
  SequenceId prompt_of = 0;  // not 0: the prompt is this sequence's, which starts before it
  std::vector<int32_t> output;
  std::optional<float> mu;  // SampleStart::mu
  kernels::SamplingParams sampling;
};

// The sequence's pages from `first` on are these; those before stay.
struct PageTableUpdate {
  SequenceId id = 0;
  int64_t first = 0;
  std::vector<int32_t> pages;
};

struct PageCopy {
  enum class Kind : uint8_t { kWithin, kSwapOut, kSwapIn };  // the cache; to, from the swap pool
  Kind kind = Kind::kWithin;
  int32_t from = 0;
  int32_t to = 0;

  friend bool operator==(const PageCopy&, const PageCopy&) = default;
};

// In ChunkOrder::tokens: the token that the sequence's last sampling chunk gave.
inline constexpr int32_t kSampledToken = -1;

// tokens[i] stands at position begin + i. `sample`: the last row gives the next token.
struct ChunkOrder {
  SequenceId id = 0;
  int64_t begin = 0;
  std::vector<int32_t> tokens;
  bool sample = false;
  // n >= 0: of every row, the log probability of the prompt's next token and of the n most likely
  // ones. The chunk ends no later than the prompt.
  int32_t prompt_logprobs = -1;

  int64_t rows() const { return static_cast<int64_t>(tokens.size()); }
  int64_t end() const { return begin + rows(); }
  // Rows, the last ones, whose logits are wanted.
  int64_t outputs() const { return prompt_logprobs >= 0 ? rows() : (sample ? 1 : 0); }
};

// The parts take effect in this order; copies one after the other.
struct StepOrder {
  int64_t step = 0;
  std::vector<SequenceId> ended;
  std::vector<SequenceStart> started;
  std::vector<PageCopy> copies;
  std::vector<PageTableUpdate> tables;
  std::vector<std::vector<ChunkOrder>> micro_batches;
};

struct SampledRow {
  SequenceId id = 0;
  kernels::SampledToken token;
  std::string error;  // not empty: this sequence failed, `token` is void
};

// tokens[i] stands at position first + i of the prompt.
struct PromptLogprobs {
  SequenceId id = 0;
  int64_t first = 0;
  std::vector<kernels::SampledToken> tokens;
  std::string error;  // not empty: the request failed, `tokens` is void
};

// From the sampling rank after every step; from another rank only when it failed.
struct StepResult {
  int64_t step = 0;
  absl::Status status;
  std::vector<SampledRow> sampled;  // a row per sampling chunk, in the order's order
  std::vector<PromptLogprobs> prompt_logprobs;
};

// The first byte of a message.
enum class MessageKind : uint8_t {
  kOrder = 1,  // leader to follower
  kStop,       // leader to follower, nothing else: leave the loop once the orders are carried out
  kResult,     // follower to leader
};

std::string Encode(const StepOrder& order);
std::string Encode(const StepResult& result);
std::string EncodeStop();
// Internal when there is no such kind, and, below, when the bytes are no such message.
absl::StatusOr<MessageKind> KindOf(std::string_view bytes);
absl::StatusOr<StepOrder> DecodeStepOrder(std::string_view bytes);
absl::StatusOr<StepResult> DecodeStepResult(std::string_view bytes);

}  // namespace skein::worker
