#include "worker/engine/replica_limits.h"

#include <iterator>
#include <vector>

#include "absl/strings/str_cat.h"
#include "parallel/plan/held_pages.h"

namespace skein::worker {

absl::Status CheckRequest(const serving::Request& request, const ReplicaLimits& limits) {
  if (request.prompt.empty()) return absl::InvalidArgumentError("the prompt has no tokens");
  const auto answers = static_cast<int64_t>(request.answers.size());
  if (answers < 1 || answers > limits.max_num_seqs) {
    return absl::InvalidArgumentError(absl::StrCat(answers, " answers: not in [1, ",
                                                   limits.max_num_seqs,
                                                   "], the sequences that run at once"));
  }
  std::vector<const std::vector<int32_t>*> lists = {&request.prompt};
  for (const serving::AnswerStart& answer : request.answers) {
    lists.push_back(&answer.output);
    if (std::ssize(answer.output) >= request.max_tokens) {
      return absl::InvalidArgumentError(absl::StrCat("max_tokens is ", request.max_tokens, ", and ",
                                                     answer.output.size(), " were given already"));
    }
  }
  for (const auto* tokens : lists) {
    for (int32_t token : *tokens) {
      if (token < 0 || token >= limits.vocab_size) {
        return absl::InvalidArgumentError(absl::StrCat(
            "token id ", token, " is outside of the vocabulary of ", limits.vocab_size));
      }
    }
  }
  const bool pools = request.pooling != serving::Pooling::kNone;
  if (pools && (answers != 1 || request.max_tokens != 1)) {
    return absl::InvalidArgumentError("an embedding goes with one answer of one token");
  }
  const int64_t longest = static_cast<int64_t>(request.prompt.size()) + request.max_tokens;
  if (longest > limits.context_length) {
    return absl::InvalidArgumentError(
        absl::StrCat("a prompt of ", request.prompt.size(), " tokens and an answer of ",
                     request.max_tokens, " exceed the context of ", limits.context_length));
  }
  const SchedulerLimits& scheduler = limits.scheduler;
  int64_t held = plan::MostHeldPages(longest, scheduler.window, scheduler.max_num_batched_tokens,
                                     scheduler.page_size);
  // Behind a window an answer's first write may copy a page while all others are held.
  if (scheduler.window > 0 && answers > 1) ++held;
  if (held > limits.pages) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the KV cache has ", limits.pages, " pages of ", scheduler.page_size,
                     " tokens, and the request of ", longest, " tokens may need ", held));
  }
  return absl::OkStatus();
}

}  // namespace skein::worker
