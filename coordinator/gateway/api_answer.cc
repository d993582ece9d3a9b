#include "coordinator/gateway/api_answer.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "coordinator/gateway/api_error.h"
#include "coordinator/service/generation.h"

namespace skein::coordinator {
namespace {

// Takes events of all of a request's generations.
class GenerationsAnswer : public HttpAnswer {
 public:
  GenerationsAnswer(InferenceService* service, std::unique_ptr<ApiFormat> format)
      : format_(std::move(format)), service_(service) {}
  ~GenerationsAnswer() override {
    if (open_ > 0) service_->Cancel(generations_);
  }

  absl::Status Admit(const ApiRequest& request, const HttpServer::Wake& wake) {
    for (const auto& input : request.prompts) {
      // What is wrong with the first copy is said before there is a second.
      GenerateRequest prompt = request.common;
      prompt.input = input;
      absl::StatusOr<std::shared_ptr<Generation>> generation =
          service_->Generate(prompt, [wake](Generation::Ready ready) {
            if (ready == Generation::Ready::kAll) wake();
          });
      if (!generation.ok()) return generation.status();
      generations_.push_back(*std::move(generation));
      open_ += prompt.n;
    }
    answers_each_ = static_cast<int32_t>(request.common.n);
    return absl::OkStatus();
  }

  Part Next() final {
    Part part = Advance();
    part.prompt_tokens = usage_.prompt - told_.prompt;
    part.answer_tokens = usage_.completion - told_.completion;
    told_ = usage_;
    return part;
  }

 protected:
  virtual void OnPiece(Choice piece) = 0;
  virtual Part Ready(bool last) = 0;
  virtual Part Failed(const absl::Status& error) = 0;

  std::unique_ptr<ApiFormat> format_;
  TokenUsage usage_;

 private:
  Part Advance() {
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
    return Ready(open_ == 0);
  }

  void Take(int32_t prompt, Event event) {
    if (auto* const accepted = std::get_if<Accepted>(&event)) {
      usage_.prompt += accepted->prompt_tokens;
    } else if (auto* const tokens = std::get_if<Tokens>(&event)) {
      usage_.completion += static_cast<int64_t>(tokens->tokens.size());
      OnPiece({.index = prompt * answers_each_ + tokens->answer,
               .prompt = prompt,
               .text = std::move(tokens->text),
               .tokens = std::move(tokens->tokens),
               .prompt_logprobs = std::move(tokens->prompt_logprobs)});
    } else if (auto* const finished = std::get_if<Finished>(&event)) {
      --open_;
      if (finished->answer == 0) usage_.cached += finished->usage.cached_tokens;
      OnPiece({.index = prompt * answers_each_ + finished->answer,
               .prompt = prompt,
               .finished = std::move(*finished)});
    }
  }

  InferenceService* const service_;
  std::vector<std::shared_ptr<Generation>> generations_;  // by prompt
  TokenUsage told_;                                       // in parts
  int32_t answers_each_ = 1;
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
    return Send(last);
  }
  Part Failed(const absl::Status& error) override {
    if (!sent_head_ && events_.empty()) return ToAnswer(ErrorOf(error))->Next();
    format_->Fail(ErrorOf(error), events_);
    return Send(/*last=*/true);
  }
  Part Send(bool last) {
    Part part = {.bytes = events_.Take(), .last = last, .filler = ": still here\n\n"};
    if (!part.bytes.empty() && !std::exchange(sent_head_, true)) {
      part.head = HttpHead{.content_type = "text/event-stream; charset=utf-8",
                           .headers = {{"Cache-Control", "no-cache"}}};
    }
    return part;
  }

  std::vector<bool> begun_;  // choices
  EventStream events_;
  bool sent_head_ = false;
};

}  // namespace

std::unique_ptr<HttpAnswer> Answer(const ApiRequest& request, std::unique_ptr<ApiFormat> format,
                                   InferenceService* service, const HttpServer::Wake& wake) {
  std::unique_ptr<GenerationsAnswer> answer;
  if (request.stream) {
    answer = std::make_unique<StreamedAnswer>(service, std::move(format));
  } else {
    answer = std::make_unique<CollectedAnswer>(service, std::move(format));
  }
  const absl::Status admitted = answer->Admit(request, wake);
  if (!admitted.ok()) return ToAnswer(ErrorOf(admitted, request.input));
  return answer;
}

}  // namespace skein::coordinator
