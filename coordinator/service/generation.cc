#include "coordinator/service/generation.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace skein::coordinator {
namespace {

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
  absl::MutexLock lock(&mutex_);
  if (!accepted_taken_) {
    accepted_taken_ = true;
    return Accepted{public_id_, static_cast<uint32_t>(request_.prompt.size()),
                    request_.sampling.seed, request_.max_tokens};
  }
  if (!pending_.tokens.empty() || !pending_.text.empty()) return std::exchange(pending_, {});
  return std::exchange(end_, std::nullopt);
}

void Generation::OnDispatched() {
  absl::MutexLock lock(&mutex_);
  dispatched_ = clock_->Now();
}

Generation::Progress Generation::OnOutput(const SequenceOutput& output) {
  Progress progress;
  {
    absl::MutexLock lock(&mutex_);
    progress = OnOutputLocked(output);
  }
  on_ready_();
  return progress;
}

void Generation::Fail(const absl::Status& status) {
  {
    absl::MutexLock lock(&mutex_);
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
