// Draws the tokens of a replica's sequences, on the sampling rank.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/ops/backend.h"
#include "kernels/sampling/sampling.h"
#include "worker/engine/step_order.h"

namespace skein::worker {

// Keeps what each sequence's draws depend on. Not thread-safe.
class RowSampler {
 public:
  // Sees the logits [vocabulary] of every sampled row; may be null.
  using Observer = std::function<void(SequenceId, int64_t position, absl::Span<const float>)>;

  explicit RowSampler(Observer observer) : observer_(std::move(observer)) {}

  // Takes in which sequences ended and started. Internal when a prompt is to be shared that is not
  // here.
  absl::Status Update(const StepOrder& order);

  // Samples the chunks that ask for it, on the executable's threads, and gives log probabilities of
  // prompts. `logits`: of an output row. Appends to `result`; the tokens, a row per sampling chunk,
  // are valid until the next call.
  using Logits = absl::FunctionRef<absl::Span<const float>(int64_t output_row)>;
  absl::Span<const int32_t> Sample(const std::vector<ChunkOrder>& chunks, Logits logits,
                                   kernels::Executable& executable, StepResult& result);

 private:
  struct Sequence {
    std::vector<int32_t> prompt;
    std::vector<int32_t> output;
    std::optional<float> mu;
    kernels::SamplingParams sampling;
  };

  SampledRow SampleRow(const ChunkOrder& chunk, absl::Span<const float> logits);
  PromptLogprobs LogprobsOfPrompt(const ChunkOrder& chunk, int64_t first_output, Logits logits);

  const Observer observer_;
  std::unordered_map<SequenceId, Sequence> sequences_;
  std::vector<int32_t> tokens_;
};

}  // namespace skein::worker
