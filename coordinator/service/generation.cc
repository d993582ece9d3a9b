#include "coordinator/service/generation.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "coordinator/service/output_check.h"
#include "coordinator/service/response_id.h"

namespace skein::coordinator {
namespace {

// Keep an event, log probabilities of 20 alternatives a token included, well below the 4 MiB that
// gRPC's clients take by default.
constexpr size_t kMaxEventTokens = 2048;
constexpr size_t kMaxEventTextBytes = 512 << 10;

bool IsContinuation(char byte) { return (static_cast<uint8_t>(byte) & 0xC0) == 0x80; }

serving::Request WithId(serving::Request request, serving::RequestId id) {
  request.id = id;
  return request;
}

std::vector<AnswerToken> TakeTokens(std::vector<AnswerToken>& tokens) {
  if (tokens.size() <= kMaxEventTokens) return std::exchange(tokens, {});
  const auto end = tokens.begin() + static_cast<ptrdiff_t>(kMaxEventTokens);
  std::vector<AnswerToken> head(std::make_move_iterator(tokens.begin()),
                                std::make_move_iterator(end));
  tokens.erase(tokens.begin(), end);
  return head;
}

AnswerToken ForClient(const serving::SampledToken& token, bool with_logprobs) {
  if (!with_logprobs) return {.id = token.id};
  return {.id = token.id, .logprob = token.logprob, .top_logprobs = token.top_logprobs};
}

RequestObserver::AnswerEnd EndOf(Finished::Reason reason) {
  switch (reason) {
    case Finished::Reason::kEos:
      return RequestObserver::AnswerEnd::kEos;
    case Finished::Reason::kStop:
      return RequestObserver::AnswerEnd::kStop;
    case Finished::Reason::kMaxTokens:
      break;
  }
  return RequestObserver::AnswerEnd::kMaxTokens;
}

// Whole characters.
std::string TakeText(std::string& text) {
  if (text.size() <= kMaxEventTextBytes) return std::exchange(text, {});
  size_t bytes = kMaxEventTextBytes;
  while (IsContinuation(text[bytes])) --bytes;
  std::string head = text.substr(0, bytes);
  text.erase(0, bytes);
  return head;
}

LogFields FieldsOf(const std::string& request_id, const CallRecord* record) {
  LogFields fields = {{"request_id", LoggedId(request_id)}};
  if (record == nullptr) return fields;
  fields.insert(fields.end(), record->fields().begin(), record->fields().end());
  return fields;
}

// Of length 1; zeros stay.
std::vector<float> Normalized(std::vector<float> values) {
  double squares = 0;
  for (const float value : values) squares += double{value} * double{value};
  if (squares == 0) return values;
  for (float& value : values) value = static_cast<float>(value / std::sqrt(squares));
  return values;
}

}  // namespace

Generation::Generation(serving::RequestId id, std::string public_id, ValidRequest valid,
                       const ServedModel* model, const Clock* clock, OnReady on_ready,
                       RequestObserver* observer)
    : public_id_(std::move(public_id)),
      request_(WithId(std::move(valid.request), id)),
      normalized_(valid.normalized),
      model_(model),
      clock_(clock),
      on_ready_(std::move(on_ready)),
      observer_(observer),
      arrived_(clock->Now()),
      record_(CallRecord::Current()),
      log_fields_(FieldsOf(public_id_, record_.get())),
      open_(request_.answers.size()) {
  for (const serving::AnswerStart& start : request_.answers) {
    answers_.push_back({.journal = {},
                        .mu = {},
                        .cached_tokens = 0,
                        .text = {model->tokenizer.get(), valid.stops},
                        .pending = {.answer = start.index},
                        .finished = {},
                        .first_token = {},
                        .last_token = {}});
  }
}

// ---- Events ----

std::optional<Event> Generation::Next() {
  MutexLock lock(&mutex_);
  if (!accepted_taken_) {
    accepted_taken_ = true;
    return Accepted{public_id_, static_cast<uint32_t>(request_.prompt.size()),
                    request_.sampling.seed, static_cast<uint32_t>(request_.max_tokens),
                    static_cast<uint32_t>(request_.answers.size())};
  }
  for (size_t i = 0; i < answers_.size(); ++i) {
    Answer& answer = answers_[turn_];
    turn_ = (turn_ + 1) % answers_.size();
    if (std::optional<Event> event = NextOf(answer)) return event;
  }
  if (!error_.has_value()) return std::nullopt;
  return *std::exchange(error_, std::nullopt);
}

std::optional<Event> Generation::NextOf(Answer& answer) {
  Tokens& pending = answer.pending;
  if (!pending.tokens.empty() || !pending.text.empty() || !pending.prompt_logprobs.empty() ||
      !pending.embedding.empty()) {
    Tokens head{.answer = pending.answer, .state = StateOf(answer)};
    head.embedding = std::exchange(pending.embedding, {});
    head.prompt_logprobs = TakeTokens(pending.prompt_logprobs);
    if (pending.prompt_logprobs.empty()) {
      head.tokens = TakeTokens(pending.tokens);
      head.text = TakeText(pending.text);
    }
    return head;
  }
  if (!answer.finished.has_value()) return std::nullopt;
  return *std::exchange(answer.finished, std::nullopt);
}

Tokens::State Generation::StateOf(const Answer& answer) const {
  const auto since = [&](std::optional<absl::Time> time) {
    return time.has_value() ? *time - arrived_ : absl::ZeroDuration();
  };
  return {.mu = answer.mu,
          .cached_tokens = answer.cached_tokens,
          .queue_time = since(dispatched_),
          .first_token_time = since(answer.first_token)};
}

// ---- After a restart ----

void Generation::Restore(absl::Time arrived, const std::vector<Event>& events) {
  MutexLock lock(&mutex_);
  arrived_ = arrived;
  for (const Event& event : events) {
    accepted_taken_ = true;  // Accepted is the first
    if (const auto* const tokens = std::get_if<Tokens>(&event)) {
      RestoreTokens(*tokens);
    } else if (const auto* const finished = std::get_if<Finished>(&event)) {
      answers_[static_cast<size_t>(finished->answer)].ended = true;
      --open_;
    }
  }
  if (open_ > 0) observer_->OnAdmitted(std::ssize(request_.prompt));
  EndWhatIsWhole();
}

void Generation::RestoreTokens(const Tokens& tokens) {
  Answer& answer = answers_[static_cast<size_t>(tokens.answer)];
  dispatched_ = arrived_ + tokens.state.queue_time;
  prompt_logprobs_ += tokens.prompt_logprobs.size();
  if (tokens.tokens.empty()) return;
  for (const AnswerToken& token : tokens.tokens) {
    answer.journal.push_back(token.id);
    if (!IsEos(token.id)) answer.text.Push(token.id);  // its client has that text
  }
  answer.mu = tokens.state.mu;
  answer.cached_tokens = tokens.state.cached_tokens;
  answer.first_token = arrived_ + tokens.state.first_token_time;
  answer.last_token = clock_->Now();
  has_tokens_ = true;
}

void Generation::EndWhatIsWhole() {
  for (Answer& answer : answers_) {
    if (answer.ended || answer.journal.empty()) continue;
    if (IsEos(answer.journal.back())) {
      End(answer, Finished::Reason::kEos, /*early=*/false);
    } else if (std::ssize(answer.journal) == request_.max_tokens) {
      End(answer, Finished::Reason::kMaxTokens, /*early=*/false);
    }
  }
}

// ---- Replicas ----

int64_t Generation::open_answers() const {
  MutexLock lock(&mutex_);
  return static_cast<int64_t>(open_);
}

serving::Request Generation::Dispatch() {
  MutexLock lock(&mutex_);
  const absl::Time now = clock_->Now();
  if (!dispatched_.has_value()) {
    dispatched_ = now;
    observer_->OnDispatched(now - arrived_);
    if (record_ != nullptr) record_->OnDispatched(now - arrived_);
  }
  ++dispatches_;
  gave_tokens_ = false;
  serving::Request request = request_;
  request.waited = now - arrived_;
  request.answers.clear();
  for (const Answer& answer : answers_) {
    if (answer.ended) continue;
    request.answers.push_back({answer.pending.answer, answer.journal, answer.mu});
  }
  const bool all_came = prompt_logprobs_ > 0 && prompt_logprobs_ + 1 == request_.prompt.size();
  if (all_came) request.prompt_logprobs = -1;
  prompt_logprobs_known_ = prompt_logprobs_;
  return request;
}

absl::Status Generation::Check(const serving::AnswerOutput& output) const {
  MutexLock lock(&mutex_);
  if (open_ == 0) return absl::OkStatus();
  if (output.answer < 0 || static_cast<size_t>(output.answer) >= answers_.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("tokens of answer ", output.answer, " of a request for ", answers_.size()));
  }
  const Answer& answer = answers_[output.answer];
  if (answer.ended) return absl::OkStatus();
  AnswerState state{.tokens = std::ssize(answer.journal)};
  if (!answer.journal.empty()) state.last_token = answer.journal.back();
  return CheckOutput(output, request_, state, model_->config.vocab_size,
                     model_->config.hidden_size);
}

Generation::Progress Generation::OnOutput(const serving::AnswerOutput& output) {
  Progress progress;
  {
    MutexLock lock(&mutex_);
    progress = OnOutputLocked(output);
  }
  on_ready_(Ready::kMore);
  return progress;
}

Generation::Progress Generation::OnOutputLocked(const serving::AnswerOutput& output) {
  using serving::Finish;
  if (open_ == 0) return Progress::kFinishedEarly;
  Answer& answer = answers_[output.answer];
  if (answer.ended) return Progress::kRunning;  // the replica was told, and others go on
  AppendPromptLogprobs(output);
  // Another replica that goes on has a cache of its own, which saved the client nothing.
  if (answer.journal.empty()) answer.cached_tokens = output.cached_tokens;
  const bool early = output.finish == Finish::kNotFinished;
  AppendTokens(answer, output);
  answer.pending.embedding = normalized_ ? Normalized(output.embedding) : output.embedding;
  if (answer.text.stop() != nullptr) return End(answer, Finished::Reason::kStop, early);
  switch (output.finish) {
    case Finish::kNotFinished:
      return Progress::kRunning;
    case Finish::kEos:
      return End(answer, Finished::Reason::kEos, early);
    case Finish::kMaxTokens:
      return End(answer, Finished::Reason::kMaxTokens, early);
    case Finish::kCancelled:
    case Finish::kFailed:
      break;
  }
  const bool alone = open_ == 1;
  const Progress progress = FailLocked(absl::InternalError(
      absl::StrCat("the replica gave the request up: ",
                   output.error.empty() ? std::string("it was cancelled there") : output.error)));
  return alone ? Progress::kFinished : progress;
}

bool Generation::OnReplicaLost(const absl::Status& why, int64_t max_retries) {
  bool goes_on;
  {
    MutexLock lock(&mutex_);
    EndWhatIsWhole();
    fruitless_ = gave_tokens_ ? 0 : fruitless_ + 1;
    if (open_ > 0 && fruitless_ > max_retries) {
      GiveUpLocked(absl::StrCat("the last ", fruitless_, " replicas gave no token (--max-retries=",
                                max_retries, "): ", std::string(why.message())));
    }
    goes_on = open_ > 0;
  }
  if (!goes_on) on_ready_(Ready::kAll);
  return goes_on;
}

void Generation::Fail(const absl::Status& status) {
  {
    MutexLock lock(&mutex_);
    if (open_ == 0) return;
    FailLocked(status);
  }
  on_ready_(Ready::kAll);
}

void Generation::GiveUp(const std::string& why) {
  {
    MutexLock lock(&mutex_);
    if (open_ == 0) return;
    GiveUpLocked(why);
  }
  on_ready_(Ready::kAll);
}

void Generation::Abandon() {
  MutexLock lock(&mutex_);
  if (open_ > 0) TellEnd(RequestObserver::AnswerEnd::kCancelled, absl::StatusCode::kCancelled);
}

void Generation::GiveUpLocked(const std::string& why) {
  const int64_t retries = std::max<int64_t>(dispatches_ - 1, 0);
  FailLocked(absl::UnavailableError(
      absl::StrCat("given up after ", retries, retries == 1 ? " retry" : " retries", ": ", why)));
}

// ---- The journal ----

void Generation::AppendPromptLogprobs(const serving::AnswerOutput& output) {
  for (const serving::SampledToken& token : output.prompt_logprobs) {
    if (prompt_logprobs_known_ > 0) {
      --prompt_logprobs_known_;
    } else if (prompt_logprobs_ + 1 < request_.prompt.size()) {
      ++prompt_logprobs_;
      answers_[0].pending.prompt_logprobs.push_back(ForClient(token, /*with_logprobs=*/true));
    }
  }
}

void Generation::AppendTokens(Answer& answer, const serving::AnswerOutput& output) {
  if (output.tokens.empty()) return;
  const size_t before = answer.journal.size();
  for (size_t i = 0; i < output.tokens.size() && answer.text.stop() == nullptr; ++i) {
    const bool last = i + 1 == output.tokens.size();
    Append(answer, output.tokens[i],
           (last && output.finish == serving::Finish::kEos) || IsEos(output.tokens[i].id));
  }
  if (embeds()) return;
  const absl::Time now = clock_->Now();
  const auto tokens = static_cast<int64_t>(answer.journal.size() - before);
  const bool first = !std::exchange(has_tokens_, true);
  if (first) observer_->OnFirstToken(now - arrived_);
  std::optional<absl::Duration> gap;
  if (answer.first_token.has_value()) gap = now - answer.last_token;
  observer_->OnTokens(tokens, gap);
  if (record_ != nullptr) {
    if (first) record_->OnFirstToken(now - arrived_);
    record_->OnTokens(tokens);
  }
  if (!answer.first_token.has_value()) answer.first_token = now;
  answer.last_token = now;
}

void Generation::Append(Answer& answer, const serving::SampledToken& token, bool is_eos) {
  gave_tokens_ = true;
  answer.journal.push_back(token.id);
  if (embeds()) return;
  if (request_.sampling.mirostat_tau > 0) answer.mu = token.mu;
  answer.pending.tokens.push_back(ForClient(token, request_.sampling.logprobs >= 0));
  if (!is_eos) answer.pending.text += answer.text.Push(token.id);
}

bool Generation::IsEos(int32_t token) const {
  const std::vector<int32_t>& eos = request_.eos_token_ids;
  return std::find(eos.begin(), eos.end(), token) != eos.end();
}

Generation::Progress Generation::End(Answer& answer, Finished::Reason reason, bool early) {
  answer.pending.text += answer.text.Finish();
  const absl::Time now = clock_->Now();
  const auto until = [&](std::optional<absl::Time> time) { return time.value_or(now) - arrived_; };
  Finished finished{.answer = answer.pending.answer, .reason = reason};
  if (reason == Finished::Reason::kStop) finished.stop = *answer.text.stop();
  finished.usage = {
      .prompt_tokens = static_cast<uint32_t>(request_.prompt.size()),
      .completion_tokens = embeds() ? 0 : static_cast<uint32_t>(answer.journal.size()),
      .cached_tokens = static_cast<uint32_t>(answer.cached_tokens),
      .queue_time = until(dispatched_),
      .first_token_time = until(answer.first_token),
      .total_time = until(now)};
  answer.ended = true;
  answer.finished = std::move(finished);
  const int64_t tokens = embeds() ? 0 : std::ssize(answer.journal);
  std::optional<absl::Duration> per_token;
  if (tokens > 1) per_token = (answer.last_token - *answer.first_token) / (tokens - 1);
  observer_->OnAnswerEnd(EndOf(reason), tokens, per_token);
  if (--open_ == 0) {
    observer_->OnRequestEnd(absl::StatusCode::kOk, now - arrived_);
    return early ? Progress::kFinishedEarly : Progress::kFinished;
  }
  return early ? Progress::kAnswerFinishedEarly : Progress::kRunning;
}

Generation::Progress Generation::FailLocked(const absl::Status& status) {
  TellEnd(RequestObserver::AnswerEnd::kError, status.code());
  open_ = 0;
  error_ = status;
  return Progress::kFinishedEarly;
}

void Generation::TellEnd(RequestObserver::AnswerEnd end, absl::StatusCode code) {
  if (std::exchange(end_told_, true)) return;
  for (const Answer& answer : answers_) {
    if (!answer.ended) observer_->OnAnswerEnd(end, std::ssize(answer.journal), std::nullopt);
  }
  observer_->OnRequestEnd(code, clock_->Now() - arrived_);
}

}  // namespace skein::coordinator
