#include "client/generate.h"

#include <grpcpp/client_context.h>

#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/file.h"
#include "base/flags/flags.h"
#include "base/mutex.h"
#include "base/status_util.h"
#include "client/answer_printer.h"
#include "client/connection.h"
#include "client/discard.h"
#include "client/interrupt.h"
#include "client/sampling_flags.h"
#include "proto/inference.grpc.pb.h"

namespace skein::client {
namespace {

// While no replica serves.
constexpr absl::Duration kAskEvery = absl::Milliseconds(200);

// Far above what the coordinator takes in one message.
constexpr int64_t kMaxPromptBytes = 256 << 20;

absl::StatusOr<std::string> ReadPrompt(const GenerateFlags& flags) {
  if (flags.prompt.has_value()) return *flags.prompt;
  absl::StatusOr<std::string> prompt = *flags.prompt_file == "-"
                                           ? ReadStandardInput(kMaxPromptBytes)
                                           : ReadFileOrPipe(*flags.prompt_file, kMaxPromptBytes);
  if (!prompt.ok()) return Annotate(prompt.status(), "--prompt-file");
  return prompt;
}

// What an interrupt cancels: the call in flight, and those to come.
class Calls {
 public:
  void Cancel() {
    MutexLock lock(&mutex_);
    cancelled_ = true;
    if (current_ != nullptr) current_->TryCancel();
  }
  bool cancelled() {
    MutexLock lock(&mutex_);
    return cancelled_;
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
  v1::ResumeRequest stand;  // the events that came
  absl::Duration window;    // in which the rest is there, should the call break
  bool failed = false;      // the answer, not the call

  bool accepted() const { return stand.events() > 0; }
};

// Makes a call, prints what comes, and adds it to `attempt`.
template <typename Call>
void Receive(const Call& call, absl::Time deadline, Calls& calls, AnswerPrinter& printer,
             Attempt& attempt) {
  grpc::ClientContext context;
  calls.SetCurrent(&context);
  if (deadline != absl::InfiniteFuture()) context.set_deadline(absl::ToChronoTime(deadline));
  const auto stream = call(&context);
  v1::GenerateEvent event;
  while (stream->Read(&event)) {
    attempt.stand.set_events(attempt.stand.events() + 1);
    attempt.failed |= event.has_error();
    if (event.has_accepted()) {
      attempt.stand.set_request_id(event.accepted().request_id());
      attempt.window = absl::Seconds(event.accepted().resume_window_seconds());
    }
    printer.Print(event);
  }
  attempt.status = stream->Finish();
  calls.SetCurrent(nullptr);
}

Attempt Ask(v1::Inference::Stub& stub, const v1::GenerateRequest& request,
            const GenerateFlags& flags, const Connection& connection, Calls& calls) {
  const absl::Time deadline =
      flags.timeout.has_value() ? absl::Now() + *flags.timeout : absl::InfiniteFuture();
  AnswerPrinter printer(flags.json);
  Attempt attempt;
  Receive([&](auto* context) { return stub.Generate(context, request); }, deadline, calls, printer,
          attempt);
  // Where the coordinator keeps the answer, it or the next one goes on with it.
  absl::Time until = absl::Now() + attempt.window;
  while (attempt.accepted() && !attempt.failed && !calls.cancelled() && absl::Now() < until &&
         attempt.status.error_code() == grpc::StatusCode::UNAVAILABLE) {
    connection.Pause(kAskEvery);
    const uint64_t before = attempt.stand.events();
    Receive([&](auto* context) { return stub.Resume(context, attempt.stand); }, deadline, calls,
            printer, attempt);
    if (attempt.stand.events() > before) until = absl::Now() + attempt.window;
  }
  if (calls.cancelled() && attempt.window > absl::ZeroDuration()) {
    DiscardAnswer(stub, attempt.stand.request_id());
  }
  printer.End();
  return attempt;
}

std::string WhyItFailed(const Attempt& attempt, const GenerateFlags& flags, Calls& calls,
                        const Connection& connection) {
  const grpc::Status& status = attempt.status;
  if (calls.cancelled()) return "interrupted";
  if (status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED && flags.timeout.has_value()) {
    return absl::StrCat("DEADLINE_EXCEEDED: not done after ", absl::FormatDuration(*flags.timeout),
                        " (--timeout)");
  }
  if (!attempt.accepted()) return connection.Explain(status);
  return absl::StrCat("the answer ends before its end: ", CodeName(status.error_code()), ": ",
                      status.error_message());
}

}  // namespace

void DeclareGenerate(CLI::App& command, GenerateFlags& flags) {
  auto* input = command.add_option_group("input", "The prompt, one of:");
  input->add_option("--prompt,-p", flags.prompt, "The prompt itself");
  input->add_option("--prompt-file,-f", flags.prompt_file, "A file with the prompt; - is stdin")
      ->check(NotEmpty());
  input->require_option(1);
  v1::GenerateRequest& request = flags.request;
  DeclareModelAndLength(command, request);
  command
      .add_option_function<uint32_t>(
          "--n", [&](uint32_t count) { request.set_n(count); },
          "Answers, up to 16, printed one after the other; default: 1")
      ->check(InRange<uint32_t>());
  command
      .add_option_function<int32_t>(
          "--priority", [&](int32_t priority) { request.set_priority(priority); },
          "-100 to 100: requests of a higher one go first; default: 0")
      ->check(InRange<int32_t>());
  DeclareSampling(command, *request.mutable_sampling());
  command
      .add_option_function<int32_t>(
          "--prompt-logprobs", [&](int32_t count) { request.set_prompt_logprobs(count); },
          "Log probabilities of the prompt's tokens and of this many alternatives, to stderr")
      ->check(InRange<int32_t>());
  command
      .add_option_function<std::vector<std::string>>(
          "--stop",
          [&](const std::vector<std::string>& stops) {
            request.mutable_stop()->Add(stops.begin(), stops.end());
          },
          "End before this text; may be given again")
      ->allow_extra_args(false);
  command
      .add_option_function<std::vector<uint32_t>>(
          "--stop-id",
          [&](const std::vector<uint32_t>& ids) {
            request.mutable_stop_ids()->Add(ids.begin(), ids.end());
          },
          "End with this token, given by its id, --ignore-eos or not; may be given again")
      ->allow_extra_args(false)
      ->check(InRange<uint32_t>());
  command.add_flag_callback(
      "--parse-special", [&] { request.set_parse_special(true); },
      "Special tokens written out in the prompt are special, not plain text");
  command.add_flag("--json", flags.json, "Print every event as a line of JSON");
  AddDuration(command, "--timeout", flags.timeout, "Give up after this long, like 30s");
  AddDuration(command, "--wait", flags.wait, "Wait this long for a replica that serves");
}

int Generate(const Endpoint& coordinator, const GenerateFlags& flags) {
  absl::StatusOr<std::string> prompt = ReadPrompt(flags);
  if (!prompt.ok()) {
    absl::FPrintF(stderr, "skein: %s\n", std::string(prompt.status().message()));
    return kExitError;
  }
  v1::GenerateRequest request = flags.request;
  request.set_prompt(*std::move(prompt));
  Calls calls;
  const InterruptGuard guard([&calls] { calls.Cancel(); });  // before gRPC starts threads
  const Connection connection(coordinator);
  const auto stub = v1::Inference::NewStub(connection.channel());
  const absl::Time until = absl::Now() + flags.wait;
  bool said = false;
  while (true) {
    const Attempt attempt = Ask(*stub, request, flags, connection, calls);
    if (attempt.status.ok()) return kExitOk;
    // Nothing was accepted, so that asking again repeats nothing.
    const bool again = !attempt.accepted() && absl::Now() < until &&
                       attempt.status.error_code() == grpc::StatusCode::UNAVAILABLE;
    if (!again) {
      absl::FPrintF(stderr, "skein: %s\n", WhyItFailed(attempt, flags, calls, connection));
      return kExitError;
    }
    if (!std::exchange(said, true)) {
      absl::FPrintF(stderr, "skein: %s yet; waiting up to %s (--wait)\n",
                    connection.answers()
                        ? "no replica serves"
                        : absl::StrCat("no coordinator answers at ", coordinator.address),
                    absl::FormatDuration(flags.wait));
    }
    connection.Pause(kAskEvery);
  }
}

}  // namespace skein::client
