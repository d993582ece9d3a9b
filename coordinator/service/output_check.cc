#include "coordinator/service/output_check.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace skein::coordinator {
namespace {

using serving::Finish;

// Normalising rounds: the logarithm of a probability of 1 may be this far above 0.
constexpr float kMostLogprob = 1e-3f;

absl::Status Wrong(const std::string& what) { return absl::InvalidArgumentError(what); }

absl::Status CheckId(int32_t id, int32_t vocab_size) {
  if (id >= 0 && id < vocab_size) return absl::OkStatus();
  return Wrong(
      absl::StrCat("token ", static_cast<uint32_t>(id), " of a vocabulary of ", vocab_size));
}

// -inf is the log probability of what cannot be; NaN compares with nothing.
absl::Status CheckLogprob(float logprob) {
  if (logprob <= kMostLogprob) return absl::OkStatus();
  return Wrong(absl::StrCat("a log probability of ", logprob));
}

absl::Status CheckToken(const serving::SampledToken& token, bool has_logprob, int32_t vocab_size) {
  SKEIN_RETURN_IF_ERROR(CheckId(token.id, vocab_size));
  if (!has_logprob) return absl::OkStatus();
  SKEIN_RETURN_IF_ERROR(CheckLogprob(token.logprob));
  for (const serving::TokenLogprob& top : token.top_logprobs) {
    SKEIN_RETURN_IF_ERROR(CheckId(top.id, vocab_size));
    SKEIN_RETURN_IF_ERROR(CheckLogprob(top.logprob));
  }
  return absl::OkStatus();
}

bool Ends(std::optional<int32_t> token, const serving::Request& request) {
  const std::vector<int32_t>& ends = request.eos_token_ids;
  return token.has_value() && std::find(ends.begin(), ends.end(), *token) != ends.end();
}

absl::Status CheckFinish(Finish finish, const serving::Request& request, const AnswerState& after) {
  switch (finish) {
    case Finish::kNotFinished:
    case Finish::kFailed:
      return absl::OkStatus();
    case Finish::kEos:
      if (Ends(after.last_token, request)) return absl::OkStatus();
      return Wrong("an end by an end-of-sequence token, whose last token is none");
    case Finish::kMaxTokens:
      if (after.tokens == request.max_tokens) return absl::OkStatus();
      return Wrong(absl::StrCat("an end by the number of tokens after ", after.tokens, " of ",
                                request.max_tokens));
    case Finish::kCancelled:
      return Wrong("a cancellation that nobody asked for");
  }
  return Wrong("an end of no kind");
}

absl::Status CheckEmbedding(const serving::AnswerOutput& output, const serving::Request& request,
                            int64_t hidden_size) {
  const bool due = request.pooling != serving::Pooling::kNone &&
                   (output.finish == Finish::kEos || output.finish == Finish::kMaxTokens);
  if (std::ssize(output.embedding) != (due ? hidden_size : 0)) {
    return Wrong(absl::StrCat("an embedding of ", output.embedding.size(), " numbers, where ",
                              due ? hidden_size : 0, " are due"));
  }
  if (std::all_of(output.embedding.begin(), output.embedding.end(),
                  [](float number) { return std::isfinite(number); })) {
    return absl::OkStatus();
  }
  return Wrong("an embedding of numbers that are not finite");
}

}  // namespace

absl::Status CheckOutput(const serving::AnswerOutput& output, const serving::Request& request,
                         const AnswerState& answer, int32_t vocab_size, int64_t hidden_size) {
  if (output.cached_tokens < 0 || output.cached_tokens > std::ssize(request.prompt)) {
    return Wrong(absl::StrCat(output.cached_tokens, " cached tokens of a prompt of ",
                              request.prompt.size()));
  }
  AnswerState after = answer;
  for (const serving::SampledToken& token : output.tokens) {
    SKEIN_RETURN_IF_ERROR(CheckToken(token, request.sampling.logprobs >= 0, vocab_size));
    if (request.sampling.mirostat_tau > 0 && !std::isfinite(token.mu)) {
      return Wrong(absl::StrCat("a mirostat state of ", token.mu));
    }
    if (after.tokens == request.max_tokens) {
      return Wrong(absl::StrCat("more than the ", request.max_tokens, " tokens of the answer"));
    }
    if (Ends(after.last_token, request)) return Wrong("a token after the answer's last one");
    ++after.tokens;
    after.last_token = token.id;
  }
  for (const serving::SampledToken& token : output.prompt_logprobs) {
    if (request.prompt_logprobs < 0) return Wrong("log probabilities of a prompt, not asked for");
    SKEIN_RETURN_IF_ERROR(CheckToken(token, /*has_logprob=*/true, vocab_size));
  }
  SKEIN_RETURN_IF_ERROR(CheckEmbedding(output, request, hidden_size));
  return CheckFinish(output.finish, request, after);
}

}  // namespace skein::coordinator
