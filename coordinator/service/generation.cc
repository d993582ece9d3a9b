#include "coordinator/service/generation.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"

namespace skein::coordinator {
namespace {

// Keep an event, log probabilities of 20 alternatives a token included, well below the 4 MiB that
// gRPC's clients take by default.
constexpr size_t kMaxEventTokens = 2048;
constexpr size_t kMaxEventTextBytes = 512 << 10;

bool IsContinuation(char byte) { return (static_cast<uint8_t>(byte) & 0xC0) == 0x80; }

NewRequest WithId(NewRequest request, uint64_t id) {
  request.id = id;
  return request;
}

}  // namespace

Generation::Generation(uint64_t id, std::string public_id, ValidRequest valid,
                       const ServedModel* model, const Clock* clock, std::function<void()> on_ready)
    : public_id_(std::move(public_id)),
      request_(WithId(std::move(valid.request), id)),
      model_(model),
      clock_(clock),
      on_ready_(std::move(on_ready)),
      arrived_(clock->Now()),
      text_(model->tokenizer.get(), valid.stops) {}

std::optional<Event> Generation::Next() {
  MutexLock lock(&mutex_);
  if (!accepted_taken_) {
    accepted_taken_ = true;
    return Accepted{public_id_, static_cast<uint32_t>(request_.prompt.size()),
                    request_.sampling.seed, request_.max_tokens};
  }
  if (!pending_.tokens.empty() || !pending_.text.empty()) return TakePending();
  return std::exchange(end_, std::nullopt);
}

Tokens Generation::TakePending() {
  if (pending_.tokens.size() <= kMaxEventTokens && pending_.text.size() <= kMaxEventTextBytes) {
    return std::exchange(pending_, {});
  }
  Tokens head;
  const size_t tokens = std::min(pending_.tokens.size(), kMaxEventTokens);
  const auto end = pending_.tokens.begin() + static_cast<ptrdiff_t>(tokens);
  head.tokens.assign(std::make_move_iterator(pending_.tokens.begin()),
                     std::make_move_iterator(end));
  pending_.tokens.erase(pending_.tokens.begin(), end);
  size_t bytes = std::min(pending_.text.size(), kMaxEventTextBytes);
  while (bytes < pending_.text.size() && IsContinuation(pending_.text[bytes])) --bytes;
  head.text = pending_.text.substr(0, bytes);
  pending_.text.erase(0, bytes);
  return head;
}

void Generation::OnDispatched() {
  MutexLock lock(&mutex_);
  dispatched_ = clock_->Now();
}

Generation::Progress Generation::OnOutput(const SequenceOutput& output) {
  Progress progress;
  {
    MutexLock lock(&mutex_);
    progress = OnOutputLocked(output);
  }
  on_ready_();
  return progress;
}

void Generation::Fail(const absl::Status& status) {
  {
    MutexLock lock(&mutex_);
    if (ended_) return;
    ended_ = true;
    end_ = status;
  }
  on_ready_();
}

Generation::Progress Generation::OnOutputLocked(const SequenceOutput& output) {
  using Finish = SequenceOutput::Finish;
  const Progress early =
      output.finish == Finish::kNotFinished ? Progress::kFinishedEarly : Progress::kFinished;
  if (ended_) return early;
  for (size_t i = 0; i < output.tokens.size(); ++i) {
    if (journal_.size() == request_.max_tokens) {
      ended_ = true;
      end_ = absl::InternalError(absl::StrCat("the replica sent more than the ",
                                              request_.max_tokens, " tokens it was asked for"));
      return early;
    }
    const bool is_eos = output.finish == Finish::kEos && i + 1 == output.tokens.size();
    Append(output.tokens[i], /*with_text=*/!is_eos);
    if (text_.stop() == nullptr) continue;
    End(Finished::Reason::kStop);
    return early;
  }
  switch (output.finish) {
    case Finish::kNotFinished:
      return Progress::kRunning;
    case Finish::kEos:
      End(Finished::Reason::kEos);
      break;
    case Finish::kMaxTokens:
      End(Finished::Reason::kMaxTokens);
      break;
    case Finish::kCancelled:
    case Finish::kFailed:
      ended_ = true;
      end_ = absl::InternalError(absl::StrCat(
          "the replica gave the request up: ",
          output.error.empty() ? std::string("it was cancelled there") : output.error));
      break;
  }
  return Progress::kFinished;
}

void Generation::Append(const OutputToken& token, bool with_text) {
  if (!first_token_.has_value()) first_token_ = clock_->Now();
  journal_.push_back(token.id);
  AnswerToken out{.id = token.id};
  if (request_.sampling.logprobs >= 0) {
    out.logprob = token.logprob;
    for (const TokenLogprob& top : token.top) {
      out.top.push_back(
          {top.id, top.logprob, model_->tokenizer->TokenBytes(top.id, /*skip_special=*/false)});
    }
  }
  pending_.tokens.push_back(std::move(out));
  if (with_text) pending_.text += text_.Push(token.id);
}

void Generation::End(Finished::Reason reason) {
  pending_.text += text_.Finish();
  const absl::Time now = clock_->Now();
  const auto seconds = [&](std::optional<absl::Time> time) {
    return absl::ToDoubleSeconds(time.value_or(now) - arrived_);
  };
  Finished finished;
  finished.reason = reason;
  if (reason == Finished::Reason::kStop) finished.stop = *text_.stop();
  finished.usage = {static_cast<uint32_t>(request_.prompt.size()),
                    static_cast<uint32_t>(journal_.size()), seconds(dispatched_),
                    seconds(first_token_), seconds(now)};
  ended_ = true;
  end_ = std::move(finished);
}

}  // namespace skein::coordinator
