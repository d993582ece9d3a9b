#include "client/answer_printer.h"

#include <algorithm>
#include <cstdio>
#include <string>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "model/tokenizer/utf8.h"
#include "proto/message_json.h"

namespace skein::client {
namespace {

const char* ReasonName(v1::Finished::Reason reason) {
  switch (reason) {
    case v1::Finished::REASON_EOS:
      return "end of sequence";
    case v1::Finished::REASON_STOP:
      return "stop string";
    case v1::Finished::REASON_MAX_TOKENS:
      return "max tokens";
    default:
      return "unknown";
  }
}

// Bytes that are no text are spelt out, too: a token may end inside a character.
std::string Quote(const std::string& token) {
  const bool text = model::FindInvalidUtf8(token) == std::string::npos;
  return absl::StrCat("'", text ? absl::Utf8SafeCEscape(token) : absl::CEscape(token), "'");
}

void PrintLogprobs(const char* what, const v1::Token& token) {
  if (!token.has_logprob()) return;
  absl::FPrintF(stderr, "%s %u %s: %.4f", what, token.id(), Quote(token.token()), token.logprob());
  for (const v1::TopLogprob& top : token.top_logprobs()) {
    absl::FPrintF(stderr, "  %u %s %.4f", top.id(), Quote(top.token()), top.logprob());
  }
  absl::FPrintF(stderr, "\n");
}

void PrintStatistics(const v1::Accepted& accepted, const v1::Finished& finished) {
  const v1::Usage& usage = finished.usage();
  const double decode_seconds = usage.total_seconds() - usage.first_token_seconds();
  const double rate = usage.completion_tokens() > 1 && decode_seconds > 0
                          ? (usage.completion_tokens() - 1) / decode_seconds
                          : 0;
  absl::FPrintF(stderr,
                "%s: prompt %u tokens, answer %u tokens, %.1f tokens/s, first token after %.0f ms "
                "(queued %.0f ms), seed %u, end: %s\n",
                accepted.model(), usage.prompt_tokens(), usage.completion_tokens(), rate,
                usage.first_token_seconds() * 1e3, usage.queue_seconds() * 1e3, accepted.seed(),
                ReasonName(finished.reason()));
}

}  // namespace

void AnswerPrinter::Print(const v1::GenerateEvent& event) {
  if (json_) {
    std::fputs(absl::StrCat(ToJson(event), "\n").c_str(), stdout);
  } else if (event.has_accepted()) {
    accepted_ = event.accepted();
    kept_.resize(std::max(accepted_.n(), 1u));
    PrintHeadingAndWhatWasKept();
  } else if (event.has_tokens() || event.has_finished()) {
    const uint32_t answer =
        event.has_tokens() ? event.tokens().answer() : event.finished().answer();
    if (answer > current_ && answer < kept_.size()) {
      kept_[answer].push_back(event);
    } else if (answer == current_ && PrintNow(event)) {
      while (++current_ < kept_.size() && PrintHeadingAndWhatWasKept()) continue;
    }
  }
  std::fflush(stdout);
}

void AnswerPrinter::End() {
  EndLine();
  while (++current_ < kept_.size()) {
    if (kept_[current_].empty()) continue;
    PrintHeadingAndWhatWasKept();
    EndLine();
  }
  std::fflush(stdout);
}

bool AnswerPrinter::PrintHeadingAndWhatWasKept() {
  if (kept_.size() > 1) absl::PrintF("== answer %u of %u ==\n", current_ + 1, kept_.size());
  bool finished = false;
  for (const v1::GenerateEvent& event : kept_[current_]) finished = PrintNow(event);
  kept_[current_].clear();
  return finished;
}

bool AnswerPrinter::PrintNow(const v1::GenerateEvent& event) {
  if (event.has_finished()) {
    EndLine();
    std::fflush(stdout);  // before what stderr says of it
    PrintStatistics(accepted_, event.finished());
    return true;
  }
  const std::string& text = event.tokens().text();
  std::fwrite(text.data(), 1, text.size(), stdout);
  if (!text.empty()) open_line_ = text.back() != '\n';
  for (const auto& token : event.tokens().prompt_logprobs()) PrintLogprobs("prompt token", token);
  for (const auto& token : event.tokens().tokens()) PrintLogprobs("token", token);
  return false;
}

void AnswerPrinter::EndLine() {
  if (open_line_) std::fputs("\n", stdout);
  open_line_ = false;
}

}  // namespace skein::client
