#include "worker/engine/row_sampler.h"

#include <cstddef>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"

namespace skein::worker {

absl::Status RowSampler::Update(const StepOrder& order) {
  for (SequenceId id : order.ended) sequences_.erase(id);
  for (const SequenceStart& start : order.started) {
    Sequence sequence = {
        .prompt = start.prompt, .output = start.output, .mu = start.mu, .sampling = start.sampling};
    if (start.prompt_of != 0) {
      const auto parent = sequences_.find(start.prompt_of);
      if (parent == sequences_.end()) {
        return absl::InternalError(absl::StrCat("sequence ", start.id, " has the prompt of ",
                                                start.prompt_of, ", which was never started"));
      }
      sequence.prompt = parent->second.prompt;
    }
    sequences_[start.id] = std::move(sequence);
  }
  return absl::OkStatus();
}

SampledRow RowSampler::SampleRow(const ChunkOrder& chunk, absl::Span<const float> logits) {
  Sequence& sequence = sequences_.at(chunk.id);
  SampledRow row{.id = chunk.id};
  absl::StatusOr<kernels::SampledToken> token =
      kernels::Sample(logits, sequence.sampling, sequence.prompt, sequence.output,
                      sequence.output.size(), sequence.mu);
  if (token.ok()) {
    row.token = *std::move(token);
    sequence.mu = row.token.mu;
  } else {
    row.error = std::string(token.status().message());
  }
  // A sequence that failed may be in the next order already: any token serves there.
  sequence.output.push_back(row.token.id);
  return row;
}

PromptLogprobs RowSampler::LogprobsOfPrompt(const ChunkOrder& chunk, int64_t first_output,
                                            Logits logits) {
  const std::vector<int32_t>& prompt = sequences_.at(chunk.id).prompt;
  PromptLogprobs out{.id = chunk.id, .first = chunk.begin + 1};
  for (int64_t row = 0; row < chunk.rows(); ++row) {
    const int64_t next = chunk.begin + row + 1;
    if (next >= static_cast<int64_t>(prompt.size())) break;  // nothing follows the last token
    absl::StatusOr<kernels::SampledToken> token =
        kernels::LogprobsOf(logits(first_output + row), prompt[next], chunk.prompt_logprobs);
    if (!token.ok()) {
      out.error = std::string(token.status().message());
      break;
    }
    out.tokens.push_back(*std::move(token));
  }
  return out;
}

absl::Span<const int32_t> RowSampler::Sample(const std::vector<ChunkOrder>& chunks, Logits logits,
                                             kernels::Executable& executable, StepResult& result) {
  struct Task {
    const ChunkOrder* chunk;
    int64_t output_row;
  };
  std::vector<Task> tasks;
  int64_t output = 0;
  for (const ChunkOrder& chunk : chunks) {
    if (chunk.prompt_logprobs >= 0) {
      result.prompt_logprobs.push_back(LogprobsOfPrompt(chunk, output, logits));
    }
    output += chunk.outputs();
    if (!chunk.sample) continue;
    tasks.push_back({&chunk, output - 1});
    if (observer_) observer_(chunk.id, chunk.end() - 1, logits(output - 1));
  }
  // Every row is another sequence's.
  const size_t first = result.sampled.size();
  result.sampled.resize(first + tasks.size());
  executable.OnHost(static_cast<int64_t>(tasks.size()), [&](int64_t i) {
    result.sampled[first + i] = SampleRow(*tasks[i].chunk, logits(tasks[i].output_row));
  });
  tokens_.clear();
  for (size_t i = first; i < result.sampled.size(); ++i) {
    tokens_.push_back(result.sampled[i].token.id);
  }
  return tokens_;
}

}  // namespace skein::worker
