#include "coordinator/gateway/api_answer.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "coordinator/gateway/api_error.h"
#include "coordinator/service/generation.h"
#include "coordinator/service/kept_answers.h"

namespace skein::coordinator {
namespace {

// Takes events of all of a request's generations.
class GenerationsAnswer : public HttpAnswer {
 public:
  GenerationsAnswer(ApiRequest request, InferenceService* service,
                    std::unique_ptr<ApiFormat> format, const ApiCall& call)
      : model_(call.model),
        format_(std::move(format)),
        request_(std::move(request)),
        service_(service),
        wake_(call.wake) {}
  ~GenerationsAnswer() override {
    if (open_ > 0) service_->Cancel(generations_);
  }

  absl::Status Begin(const ApiCall& call) {
    if (KeptAnswers* const kept = service_->kept(); kept != nullptr && request_.stream) {
      SKEIN_RETURN_IF_ERROR(Keep(*kept, request_, call));
      if (reader_ != nullptr) return absl::OkStatus();
    }
    SKEIN_ASSIGN_OR_RETURN(hosted_, service_->Find(request_.common.model));
    return Admit();
  }

  // As many of the prompts as may be, one after the other: what is wrong with the first copy of a
  // request is said before there is a second.
  absl::Status Admit() {
    if (left_) return absl::OkStatus();
    const bool all_at_once = request_.most_at_once >= std::ssize(request_.prompts);
    while (waiting() > 0 && (all_at_once || open_ < request_.most_at_once)) {
      if (next_ == nullptr) {
        GenerateRequest prompt = request_.common;
        prompt.input = std::move(request_.prompts[generations_.size()]);
        SKEIN_ASSIGN_OR_RETURN(ValidRequest valid, service_->Check(hosted_, prompt));
        next_ = service_->Make(hosted_, std::move(valid), format_->id(),
                               [wake = wake_](Generation::Ready ready) {
                                 if (ready == Generation::Ready::kAll) wake();
                               });
      }
      // Where the queue is full it follows when one of them has ended. A refusal of the last would
      // throw away what was computed so far.
      const auto if_full = all_at_once || generations_.empty() ? InferenceService::IfFull::kRefuse
                           : open_ > 0                         ? InferenceService::IfFull::kTell
                                                               : InferenceService::IfFull::kExceed;
      const absl::Status admitted = service_->Admit(hosted_, next_, if_full);
      if (if_full == InferenceService::IfFull::kTell && absl::IsResourceExhausted(admitted)) {
        return absl::OkStatus();
      }
      SKEIN_RETURN_IF_ERROR(admitted);
      generations_.push_back(std::move(next_));
      open_ += request_.common.n;
    }
    return absl::OkStatus();
  }

  Part Next() final {
    Part part = Advance();
    part.prompt_tokens = usage_.prompt - told_.prompt;
    // A kept answer's are counted as they are made, whoever hears of them.
    if (reader_ == nullptr) part.answer_tokens = usage_.completion - told_.completion;
    told_ = usage_;
    return part;
  }

  void Leave() final { left_ = true; }

  void Discard() final {
    if (reader_ != nullptr) service_->kept()->Discard(reader_->shared_answer());
  }

 protected:
  virtual void OnPiece(Choice piece) = 0;
  virtual Part Ready(bool last) = 0;
  virtual Part Failed(const absl::Status& error) = 0;
  // Of a kept answer: its client has events up to here.
  virtual void OnKept(int64_t /*last_event*/, bool /*resumed*/) {}
  // Nothing more is told here, while the answer goes on.
  virtual Part Left(const absl::Status& why) { return Failed(why); }

  const std::shared_ptr<const ServedModel> model_;  // that `format_` refers to
  std::unique_ptr<ApiFormat> format_;
  TokenUsage usage_;

 private:
  // A reader, unless it cannot be kept now.
  absl::Status Keep(KeptAnswers& kept, const ApiRequest& request, const ApiCall& call) {
    if (call.resumed != nullptr) {
      // From the beginning: what its client has is made anew, and not sent.
      SKEIN_ASSIGN_OR_RETURN(reader_, call.resumed->Read(0, call.wake));
    } else if (kept.CanKeep()) {
      std::vector<GenerateRequest> prompts;
      for (const auto& input : request.prompts) {
        prompts.push_back(request.common);
        prompts.back().input = input;
      }
      KeptHead head;
      head.id = format_->id();
      head.route = std::string(call.route);
      head.body = std::string(call.body);
      head.key = call.key;
      head.arrived = call.name.created;
      SKEIN_ASSIGN_OR_RETURN(reader_,
                             kept.Begin(service_, prompts, std::move(head), call.wake, call.count));
    }
    if (reader_ != nullptr) OnKept(call.last_event, call.resumed != nullptr);
    return absl::OkStatus();
  }

  Part AdvanceKept() {
    while (!over_) {
      KeptReader::Told told = reader_->Next();
      over_ = told.over;
      if (!told.event.has_value()) {
        if (over_ && !told.why.ok()) return Left(told.why);
        break;
      }
      if (const auto* const error = std::get_if<absl::Status>(&told.event->event)) {
        return Failed(*error);
      }
      Take(told.event->part, std::move(told.event->event));
    }
    return Ready(over_);
  }

  Part Advance() {
    if (reader_ != nullptr) return over_ ? Part() : AdvanceKept();
    if (open_ == 0) return {};
    for (size_t i = 0; i < generations_.size(); ++i) {
      while (std::optional<Event> event = generations_[i]->Next()) {
        if (const auto* const error = std::get_if<absl::Status>(&*event)) {
          service_->Cancel(generations_);
          open_ = 0;
          return Failed(*error);
        }
        Take(static_cast<int32_t>(i), std::move(*event));
      }
    }
    if (const absl::Status admitted = Admit(); !admitted.ok()) {
      service_->Cancel(generations_);
      open_ = 0;
      return Failed(admitted);
    }
    return Ready(open_ == 0);
  }

  int64_t waiting() const { return std::ssize(request_.prompts) - std::ssize(generations_); }

  void Take(int32_t prompt, Event event) {
    const auto answers_each = static_cast<int32_t>(request_.common.n);
    if (auto* const accepted = std::get_if<Accepted>(&event)) {
      usage_.prompt += accepted->prompt_tokens;
    } else if (auto* const tokens = std::get_if<Tokens>(&event)) {
      usage_.completion += static_cast<int64_t>(tokens->tokens.size());
      OnPiece({.index = prompt * answers_each + tokens->answer,
               .prompt = prompt,
               .text = std::move(tokens->text),
               .tokens = std::move(tokens->tokens),
               .prompt_logprobs = std::move(tokens->prompt_logprobs),
               .embedding = std::move(tokens->embedding)});
    } else if (auto* const finished = std::get_if<Finished>(&event)) {
      --open_;
      if (finished->answer == 0) usage_.cached += finished->usage.cached_tokens;
      OnPiece({.index = prompt * answers_each + finished->answer,
               .prompt = prompt,
               .finished = std::move(*finished)});
    }
  }

  ApiRequest request_;
  InferenceService* const service_;
  const HttpServer::Wake wake_;
  HostedModel hosted_;                                    // of the generations
  std::shared_ptr<Generation> next_;                      // waits for a place in the queue; or null
  std::vector<std::shared_ptr<Generation>> generations_;  // by prompt; or:
  std::unique_ptr<KeptReader> reader_;
  bool over_ = false;  // the reader's events
  bool left_ = false;
  TokenUsage told_;   // in parts
  int64_t open_ = 0;  // answers
};

class CollectedAnswer final : public GenerationsAnswer {
 public:
  using GenerationsAnswer::GenerationsAnswer;

 private:
  void OnPiece(Choice piece) override {
    const auto index = static_cast<size_t>(piece.index);
    if (choices_.size() <= index) choices_.resize(index + 1);
    Choice& choice = choices_[index];
    choice.index = piece.index;
    choice.prompt = piece.prompt;
    choice.text += piece.text;
    std::move(piece.tokens.begin(), piece.tokens.end(), std::back_inserter(choice.tokens));
    std::move(piece.prompt_logprobs.begin(), piece.prompt_logprobs.end(),
              std::back_inserter(choice.prompt_logprobs));
    if (!piece.embedding.empty()) choice.embedding = std::move(piece.embedding);
    if (piece.finished.has_value()) choice.finished = std::move(piece.finished);
  }
  Part Ready(bool last) override {
    if (!last) return {};
    return {.head = HttpHead{}, .bytes = JsonText(format_->Whole(choices_, usage_)), .last = true};
  }
  Part Failed(const absl::Status& error) override { return ToAnswer(ErrorOf(error))->Next(); }

  std::vector<Choice> choices_;
};

class StreamedAnswer final : public GenerationsAnswer {
 public:
  using GenerationsAnswer::GenerationsAnswer;

 private:
  void OnPiece(Choice piece) override {
    const auto index = static_cast<size_t>(piece.index);
    if (begun_.size() <= index) begun_.resize(index + 1);
    if (!begun_[index]) format_->Begin(piece, usage_, events_);
    begun_[index] = true;
    format_->Piece(piece, usage_, events_);
  }
  Part Ready(bool last) override {
    if (last) format_->End(usage_, events_);
    // All that there is was made anew by now.
    if (!sent_head_ && events_.said() < last_event_) return NotGiven();
    return Send(last);
  }
  Part Failed(const absl::Status& error) override {
    if (!sent_head_ && events_.said() == 0) return ToAnswer(ErrorOf(error))->Next();
    format_->Fail(ErrorOf(error), events_);
    if (!sent_head_ && events_.said() < last_event_) return NotGiven();
    return Send(/*last=*/true);
  }
  Part Left(const absl::Status& why) override {
    events_.StopNumbers();
    return Failed(why);
  }
  void OnKept(int64_t last_event, bool resumed) override {
    events_.Number(last_event);
    last_event_ = last_event;
    resumed_ = resumed;
  }
  Part NotGiven() const {
    return ToAnswer(
               {.status = 409,
                .message = absl::StrCat(
                    "Last-Event-ID: ", last_event_, ", but this answer has given ", events_.said(),
                    " events so far: this is another answer, or the journal could not be "
                    "written when the rest was told"),
                .code = "event_not_given"})
        ->Next();
  }
  Part Send(bool last) {
    Part part = {.bytes = events_.Take(), .last = last, .filler = ": still here\n\n"};
    // One that comes back hears at once that it was heard, though there may be nothing new.
    if ((!part.bytes.empty() || resumed_) && !std::exchange(sent_head_, true)) {
      part.head = HttpHead{.content_type = "text/event-stream; charset=utf-8",
                           .headers = {{"Cache-Control", "no-cache"}}};
    }
    return part;
  }

  std::vector<bool> begun_;  // choices
  EventStream events_;
  bool sent_head_ = false;
  int64_t last_event_ = 0;
  bool resumed_ = false;
};

}  // namespace

std::unique_ptr<HttpAnswer> Answer(const ApiRequest& request, std::unique_ptr<ApiFormat> format,
                                   InferenceService* service, const ApiCall& call) {
  std::unique_ptr<GenerationsAnswer> answer;
  if (request.stream) {
    answer = std::make_unique<StreamedAnswer>(request, service, std::move(format), call);
  } else {
    answer = std::make_unique<CollectedAnswer>(request, service, std::move(format), call);
  }
  const absl::Status admitted = answer->Begin(call);
  if (!admitted.ok()) return ToAnswer(ErrorOf(admitted, request.input));
  return answer;
}

}  // namespace skein::coordinator
