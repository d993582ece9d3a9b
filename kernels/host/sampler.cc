#include "kernels/host/sampler.h"

#include <cstddef>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"

namespace skein::kernels {

absl::Status Sampler::Update(const Batch& batch) {
  for (const SlotStart& start : batch.starts) {
    Slot slot = {
        .prompt = start.prompt, .output = start.output, .mu = start.mu, .sampling = start.sampling};
    if (start.prompt_of >= 0) slot.prompt = slots_[start.prompt_of].prompt;
    if (start.prompt_of >= 0 && slot.prompt.empty()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "slot ", start.slot, " has the prompt of slot ", start.prompt_of, ", which has none"));
    }
    slots_[start.slot] = std::move(slot);
  }
  return absl::OkStatus();
}

SampledTokens Sampler::Draw(int32_t slot, absl::Span<const float> logits) {
  Slot& state = slots_[slot];
  SampledTokens drawn{.slot = slot};
  absl::StatusOr<SampledToken> token = kernels::Sample(logits, state.sampling, state.prompt,
                                                       state.output, state.output.size(), state.mu);
  if (token.ok()) {
    state.mu = token->mu;
    state.output.push_back(token->id);
    drawn.tokens.push_back(*std::move(token));
  } else {
    drawn.error = std::string(token.status().message());
    state.output.push_back(0);  // it may be in the next batch already: any token serves there
  }
  return drawn;
}

PromptLogprobs Sampler::TellPrompt(const BatchSequence& sequence, int64_t first_row,
                                   int64_t first_output, const Rows& rows) const {
  const std::vector<int32_t>& prompt = slots_[sequence.slot].prompt;
  PromptLogprobs out{.slot = sequence.slot, .first = first_row + 1};
  for (int64_t row = 0; row < sequence.rows; ++row) {
    const int64_t next = first_row + row + 1;
    if (next >= static_cast<int64_t>(prompt.size())) break;  // nothing follows the last token
    absl::StatusOr<SampledToken> token =
        LogprobsOf(rows.logits(first_output + row), prompt[next], sequence.prompt_logprobs);
    if (!token.ok()) {
      out.error = std::string(token.status().message());
      break;
    }
    out.tokens.push_back(*std::move(token));
  }
  return out;
}

void Sampler::Sample(const Batch& batch, const Rows& rows, BatchResult& result) {
  struct Task {
    int32_t slot;
    int64_t output;
  };
  std::vector<Task> tasks;
  result.sampled.clear();
  result.prompt_logprobs.clear();
  int64_t output = 0;
  for (size_t i = 0; i < batch.sequences.size(); ++i) {
    const BatchSequence& sequence = batch.sequences[i];
    if (sequence.prompt_logprobs >= 0) {
      const int64_t first_row = rows.first_row(static_cast<int64_t>(i));
      result.prompt_logprobs.push_back(TellPrompt(sequence, first_row, output, rows));
    }
    output += sequence.outputs;
    if (sequence.sample) tasks.push_back({sequence.slot, output - 1});
  }
  result.sampled.resize(tasks.size());
  rows.for_each(static_cast<int64_t>(tasks.size()), [&](int64_t i) {
    result.sampled[i] = Draw(tasks[i].slot, rows.logits(tasks[i].output));
  });
}

}  // namespace skein::kernels
