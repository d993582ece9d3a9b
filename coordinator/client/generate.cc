#include "coordinator/client/generate.h"

#include <grpcpp/client_context.h>

#include <chrono>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <iterator>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "coordinator/client/connection.h"
#include "coordinator/client/duration.h"
#include "coordinator/client/interrupt.h"
#include "coordinator/client/json.h"
#include "proto/inference.grpc.pb.h"

namespace skein::client {
namespace {

// While no replica serves.
constexpr absl::Duration kAskEvery = absl::Milliseconds(200);

std::optional<std::string> ReadPrompt(const GenerateFlags& flags) {
  if (flags.prompt.has_value()) return flags.prompt;
  if (*flags.prompt_file == "-") {
    return std::string(std::istreambuf_iterator<char>(std::cin), {});
  }
  std::ifstream file(*flags.prompt_file, std::ios::binary);
  if (!file) return std::nullopt;
  return std::string(std::istreambuf_iterator<char>(file), {});
}

v1::GenerateRequest MakeRequest(const GenerateFlags& flags, std::string prompt) {
  v1::GenerateRequest request;
  request.set_model(flags.model);
  request.set_prompt(std::move(prompt));
  request.set_parse_special(flags.parse_special);
  if (flags.max_tokens) request.set_max_tokens(*flags.max_tokens);
  for (const std::string& stop : flags.stops) request.add_stop(stop);
  v1::Sampling& sampling = *request.mutable_sampling();
  if (flags.temperature) sampling.set_temperature(*flags.temperature);
  if (flags.top_k) sampling.set_top_k(*flags.top_k);
  if (flags.top_p) sampling.set_top_p(*flags.top_p);
  if (flags.min_p) sampling.set_min_p(*flags.min_p);
  if (flags.repetition_penalty) sampling.set_repetition_penalty(*flags.repetition_penalty);
  if (flags.presence_penalty) sampling.set_presence_penalty(*flags.presence_penalty);
  if (flags.frequency_penalty) sampling.set_frequency_penalty(*flags.frequency_penalty);
  if (flags.seed) sampling.set_seed(*flags.seed);
  if (flags.logprobs) sampling.set_logprobs(*flags.logprobs);
  return request;
}

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

void PrintLogprobs(const v1::Tokens& tokens) {
  for (const v1::Token& token : tokens.tokens()) {
    if (!token.has_logprob()) continue;
    absl::FPrintF(stderr, "token %u: %.4f", token.id(), token.logprob());
    for (const v1::TopLogprob& top : token.top_logprobs()) {
      absl::FPrintF(stderr, "  %u '%s' %.4f", top.id(), absl::Utf8SafeCEscape(top.token()),
                    top.logprob());
    }
    absl::FPrintF(stderr, "\n");
  }
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

// Prints events as they come.
class Printer {
 public:
  explicit Printer(bool json) : json_(json) {}

  void Print(const v1::GenerateEvent& event) {
    if (json_) {
      std::fputs(absl::StrCat(ToJson(event), "\n").c_str(), stdout);
    } else if (event.has_accepted()) {
      accepted_ = event.accepted();
    } else if (event.has_tokens()) {
      const std::string& text = event.tokens().text();
      std::fwrite(text.data(), 1, text.size(), stdout);
      if (!text.empty()) open_line_ = text.back() != '\n';
      PrintLogprobs(event.tokens());
    } else if (event.has_finished()) {
      EndLine();
      PrintStatistics(accepted_, event.finished());
    }
    std::fflush(stdout);
  }

  void EndLine() {
    if (open_line_) std::fputs("\n", stdout);
    open_line_ = false;
    std::fflush(stdout);
  }

 private:
  const bool json_;
  v1::Accepted accepted_;
  bool open_line_ = false;
};

// What an interrupt cancels: the call in flight, and those to come.
class Calls {
 public:
  void Cancel() {
    MutexLock lock(&mutex_);
    cancelled_ = true;
    if (current_ != nullptr) current_->TryCancel();
  }
  // Null between calls.
  void SetCurrent(grpc::ClientContext* context) {
    MutexLock lock(&mutex_);
    current_ = context;
    if (cancelled_ && context != nullptr) context->TryCancel();
  }

 private:
  Mutex mutex_;
  grpc::ClientContext* current_ ABSL_GUARDED_BY(mutex_) = nullptr;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
};

struct Attempt {
  grpc::Status status;
  bool accepted = false;  // an event came
};

Attempt Ask(v1::Inference::Stub& stub, const v1::GenerateRequest& request,
            const GenerateFlags& flags, Calls& calls) {
  grpc::ClientContext context;
  calls.SetCurrent(&context);
  if (!flags.timeout.empty()) {
    context.set_deadline(std::chrono::system_clock::now() +
                         absl::ToChronoMilliseconds(ToDuration(flags.timeout)));
  }
  const auto stream = stub.Generate(&context, request);
  Printer printer(flags.json);
  Attempt attempt;
  v1::GenerateEvent event;
  while (stream->Read(&event)) {
    attempt.accepted = true;
    printer.Print(event);
  }
  attempt.status = stream->Finish();
  calls.SetCurrent(nullptr);
  if (!attempt.status.ok()) printer.EndLine();
  return attempt;
}

}  // namespace

void DeclareGenerate(CLI::App& command, GenerateFlags& flags) {
  auto* input = command.add_option_group("input", "The prompt, one of:");
  input->add_option("--prompt,-p", flags.prompt, "The prompt itself");
  input->add_option("--prompt-file,-f", flags.prompt_file, "A file with the prompt; - is stdin");
  input->require_option(1);
  command.add_option("--model", flags.model, "Only if the coordinator serves this model");
  command.add_option("--max-tokens,-n", flags.max_tokens,
                     "Tokens of the answer at most; default: what the context has left");
  command.add_option("--temperature,-t", flags.temperature, "0 takes the most likely token");
  command.add_option("--top-k", flags.top_k, "Only the k most likely tokens; 0: all");
  command.add_option("--top-p", flags.top_p, "Only the most likely tokens of this total");
  command.add_option("--min-p", flags.min_p, "Only tokens of this share of the most likely one");
  command.add_option("--repetition-penalty", flags.repetition_penalty,
                     "Above 1: fewer tokens of prompt and answer again");
  command.add_option("--presence-penalty", flags.presence_penalty,
                     "Above 0: fewer tokens of the answer again");
  command.add_option("--frequency-penalty", flags.frequency_penalty,
                     "Above 0: the fewer, the more often a token stands in the answer");
  command.add_option("--seed", flags.seed, "The same seed gives the same answer; default: random");
  command.add_option("--stop", flags.stops, "End before this text; may be given again")
      ->allow_extra_args(false);
  command.add_option("--logprobs", flags.logprobs,
                     "Log probabilities of each token and of this many alternatives, to stderr");
  command.add_flag("--parse-special", flags.parse_special,
                   "Special tokens written out in the prompt are special, not plain text");
  command.add_flag("--json", flags.json, "Print every event as a line of JSON");
  command.add_option("--timeout", flags.timeout, "Give up after this long, like 30s")
      ->check(CheckDuration);
  command.add_option("--wait", flags.wait, "Wait this long for a replica that serves")
      ->check(CheckDuration)
      ->capture_default_str();
}

int Generate(const std::string& coordinator, const GenerateFlags& flags) {
  std::optional<std::string> prompt = ReadPrompt(flags);
  if (!prompt.has_value()) {
    absl::FPrintF(stderr, "skein: --prompt-file: cannot read %s\n", *flags.prompt_file);
    return kExitError;
  }
  const v1::GenerateRequest request = MakeRequest(flags, *std::move(prompt));
  Calls calls;
  const InterruptGuard guard([&calls] { calls.Cancel(); });  // before gRPC starts threads
  const Connection connection(coordinator);
  const auto stub = v1::Inference::NewStub(connection.channel());
  const absl::Time until = absl::Now() + ToDuration(flags.wait);
  bool said = false;
  while (true) {
    const Attempt attempt = Ask(*stub, request, flags, calls);
    if (attempt.status.ok()) return kExitOk;
    // Nothing was accepted, so that asking again repeats nothing.
    const bool again = !attempt.accepted && absl::Now() < until &&
                       attempt.status.error_code() == grpc::StatusCode::UNAVAILABLE;
    if (!again) {
      absl::FPrintF(stderr, "skein: %s\n", connection.Explain(attempt.status));
      return kExitError;
    }
    if (!std::exchange(said, true)) {
      absl::FPrintF(stderr, "skein: no replica serves yet; waiting up to %s (--wait)\n",
                    flags.wait);
    }
    absl::SleepFor(kAskEvery);
  }
}

}  // namespace skein::client
