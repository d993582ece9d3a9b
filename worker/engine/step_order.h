// The messages on the control channel: what the leader tells its replica's ranks to do in one step,
// and what comes back.
//
// Orders are carried out whole and one after the other. The next one is planned and sent while one
// runs, so it may build on tokens that only the ranks know, and reuse slots and pages that the one
// before still writes. Ranks know sequences by their slots, which the leader gives out.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/statusor.h"
#include "kernels/ops/batch.h"

namespace skein::worker {

// tokens[i] stands at the slot's i-th next position; kNewestToken stands for the one that its last
// sampling chunk gave. `draws`: the last row gives the next token.
struct ChunkOrder {
  int32_t slot = 0;
  absl::InlinedVector<int32_t, 4> tokens;  // a decode's take no memory of their own
  bool draws = false;
  int32_t prompt_logprobs = -1;  // kernels::BatchSequence's, as the next
  int32_t pooled = 0;

  int64_t rows() const { return static_cast<int64_t>(tokens.size()); }
  // Counts the last rows whose logits are wanted.
  int64_t outputs() const { return prompt_logprobs >= 0 ? rows() : (draws ? 1 : 0); }
};

// The lists take effect in this order.
struct StepOrder {
  int64_t step = 0;
  std::vector<kernels::SlotStart> starts;
  std::vector<kernels::PageCopy> copies;
  std::vector<kernels::SlotUpdate> updates;
  std::vector<std::vector<ChunkOrder>> micro_batches;
};

// The sampling rank sends it after every step, another rank only when it failed. Lists have a row
// per chunk that samples, tells of its prompt or pools, in the order's order.
struct StepResult {
  int64_t step = 0;
  absl::Status status;
  std::vector<kernels::SampledTokens> sampled;
  std::vector<kernels::PromptLogprobs> prompt_logprobs;
  std::vector<kernels::PooledRows> pooled;
};

// Every message begins with this byte.
enum class MessageKind : uint8_t {
  kOrder = 1,  // leader to follower
  kStop,       // leader to follower, nothing else: leave the loop once the orders are carried out
  kResult,     // follower to leader
};

std::string Encode(const StepOrder& order);
std::string Encode(const StepResult& result);
std::string EncodeStop();
// Internal when there is no such kind. The functions below answer Internal when the bytes are no
// such message.
absl::StatusOr<MessageKind> KindOf(std::string_view bytes);
absl::StatusOr<StepOrder> DecodeStepOrder(std::string_view bytes);
absl::StatusOr<StepResult> DecodeStepResult(std::string_view bytes);

}  // namespace skein::worker
