// Draws the tokens of a Program's logits on the host.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/ops/batch.h"
#include "kernels/sampling/sampling.h"

namespace skein::kernels {

// Keeps what each slot's draws depend on. Not thread-safe.
class Sampler {
 public:
  explicit Sampler(int32_t slots) : slots_(slots) {}

  // InvalidArgument when a prompt is to be shared that is not there.
  absl::Status Update(const Batch& batch);

  // `logits`: of an output; `first_row`: the position of a sequence's first row. `for_each` calls
  // what it is given with every number below the first, on the threads that compute.
  struct Rows {
    absl::FunctionRef<absl::Span<const float>(int64_t output)> logits;
    absl::FunctionRef<int64_t(int64_t sequence)> first_row;
    absl::FunctionRef<void(int64_t, absl::FunctionRef<void(int64_t)>)> for_each;
  };
  void Sample(const Batch& batch, const Rows& rows, BatchResult& result);

 private:
  struct Slot {
    std::vector<int32_t> prompt;
    std::vector<int32_t> output;
    std::optional<float> mu;
    SamplingParams sampling;
  };

  SampledTokens Draw(int32_t slot, absl::Span<const float> logits);
  PromptLogprobs TellPrompt(const BatchSequence& sequence, int64_t first_row, int64_t first_output,
                            const Rows& rows) const;

  std::vector<Slot> slots_;
};

}  // namespace skein::kernels
