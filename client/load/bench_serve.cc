#include "client/load/bench_serve.h"

#include <grpcpp/client_context.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <limits>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/file.h"
#include "base/flags/flags.h"
#include "base/status_macros.h"
#include "base/status_util.h"
#include "base/units.h"
#include "client/connection.h"
#include "client/interrupt.h"
#include "client/load/generator.h"
#include "client/load/report.h"
#include "parallel/planner/lengths.h"

namespace skein::client {
namespace {

constexpr std::chrono::seconds kCallTimeout(10);
constexpr int64_t kMaxOfOneCall = 16384;  // requests that a coordinator takes at once

// The one of this name; "": the first that serves.
absl::StatusOr<v1::Model> AskModel(const Connection& connection, const std::string& name) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kCallTimeout);
  v1::ListModelsResponse response;
  const auto stub = v1::Inference::NewStub(connection.channel());
  const grpc::Status status = stub->ListModels(&context, {}, &response);
  if (!status.ok()) return absl::UnavailableError(connection.Explain(status));
  const auto is_meant = [&](const v1::Model& model) {
    const auto& aliases = model.aliases();
    return name.empty() || model.name() == name ||
           std::find(aliases.begin(), aliases.end(), name) != aliases.end();
  };
  bool known = name.empty();
  for (const v1::Model& model : response.models()) {
    known = known || is_meant(model);
    if (is_meant(model) && model.ready()) return model;
  }
  if (!known) {
    return absl::NotFoundError(
        absl::StrCat("--model: no '", name, "' is served; `skein model list` names what is"));
  }
  return absl::UnavailableError(absl::StrCat("no replica serves ", name, name.empty() ? "" : " ",
                                             "yet; `skein status --wait 60s` waits for one"));
}

absl::StatusOr<std::vector<plan::Lengths>> MakeLengths(const BenchServeFlags& flags) {
  if (flags.lengths_file.empty()) {
    return std::vector<plan::Lengths>{{flags.prompt_tokens, flags.answer_tokens}};
  }
  auto lengths = plan::ReadLengths(flags.lengths_file);
  if (!lengths.ok()) return Annotate(lengths.status(), "--lengths");
  return lengths;
}

std::string DescribeLoad(const BenchServeFlags& flags) {
  return absl::StrCat(flags.rate_per_s > 0
                          ? absl::StrFormat("%.6g requests/s (Poisson)", flags.rate_per_s)
                          : FormatCount(flags.concurrency, "stream"),
                      flags.separate_calls ? " in separate calls" : " in one call");
}

std::string DescribeLengths(const BenchServeFlags& flags) {
  std::string text = flags.lengths_file.empty()
                         ? absl::StrCat("prompts of ", FormatCount(flags.prompt_tokens, "token"),
                                        ", answers of ", flags.answer_tokens)
                         : absl::StrCat("lengths of ", flags.lengths_file);
  if (flags.shared_prefix > 0) absl::StrAppend(&text, ", ", flags.shared_prefix, " shared");
  return text;
}

// One line of a terminal, written over and over.
class ProgressLine {
 public:
  ~ProgressLine() { Clear(); }

  void Show(const char* what, int64_t requests, const LoadProgress& progress) {
    if (!is_terminal_) return;
    const double seconds = absl::ToDoubleSeconds(progress.elapsed);
    absl::FPrintF(stderr,
                  "\r\033[K%s: %d of %d requests, %d running, %d failed, %.0f tokens/s, %.0f s",
                  what, progress.finished, requests, progress.running, progress.failed,
                  seconds > 0 ? static_cast<double>(progress.tokens) / seconds : 0, seconds);
  }
  void Clear() {
    if (is_terminal_) absl::FPrintF(stderr, "\r\033[K");
  }

 private:
  const bool is_terminal_ = isatty(STDERR_FILENO) != 0;
};

// The flag's file, where it is given: before the load, and with the contents after it.
absl::Status Check(const char* flag, const std::string& path) {
  return path.empty() ? absl::OkStatus() : Annotate(CheckWritable(path), flag);
}
absl::Status Write(const char* flag, const std::string& path, const std::string& contents) {
  return path.empty() ? absl::OkStatus() : Annotate(WriteFile(path, contents), flag);
}

struct Requests {
  std::vector<PlannedRequest> warmup;
  std::vector<PlannedRequest> measured;
};

absl::StatusOr<Requests> MakeRequests(const BenchServeFlags& flags,
                                      std::vector<plan::Lengths> lengths, const v1::Model& model) {
  Workload workload = {.requests = flags.requests,
                       .lengths = std::move(lengths),
                       .shared_prefix = flags.shared_prefix,
                       .rate_per_s = flags.rate_per_s,
                       .seed = flags.seed,
                       .model = model.name(),
                       .vocabulary = model.vocabulary(),
                       .context_length = model.context_length()};
  Requests requests;
  SKEIN_ASSIGN_OR_RETURN(requests.measured, PlanRequests(workload, /*stream=*/0));
  workload.requests = flags.warmup;
  SKEIN_ASSIGN_OR_RETURN(requests.warmup, PlanRequests(workload, /*stream=*/1));
  return requests;
}

// Whether all was well. `interrupted` is told what to call.
absl::StatusOr<bool> Run(const Endpoint& coordinator, const BenchServeFlags& flags,
                         const std::function<void(LoadGenerator*)>& interrupted) {
  SKEIN_RETURN_IF_ERROR(Check("--json", flags.json_file));
  SKEIN_RETURN_IF_ERROR(Check("--svg", flags.svg_file));
  SKEIN_ASSIGN_OR_RETURN(std::vector<plan::Lengths> lengths, MakeLengths(flags));
  const Connection connection(coordinator);
  SKEIN_ASSIGN_OR_RETURN(const v1::Model model, AskModel(connection, flags.model));
  SKEIN_ASSIGN_OR_RETURN(const Requests requests, MakeRequests(flags, std::move(lengths), model));
  ProgressLine line;
  const char* phase = "warm-up";
  int64_t count = flags.warmup;
  LoadGenerator load(
      &connection,
      flags.separate_calls ? LoadGenerator::Calls::kSeparate : LoadGenerator::Calls::kOne,
      [&](const LoadProgress& progress) { line.Show(phase, count, progress); });
  interrupted(&load);
  if (count > 0) load.Run(requests.warmup, flags.concurrency);
  phase = "load";
  count = flags.requests;
  const std::vector<RequestRecord> records =
      load.Run(requests.measured, flags.rate_per_s > 0 ? 0 : flags.concurrency);
  interrupted(nullptr);
  line.Clear();
  LoadTest test = {.model = model.name(),
                   .load = DescribeLoad(flags),
                   .lengths = DescribeLengths(flags),
                   .limits = flags.limits,
                   .asked = flags.requests,
                   .interrupted = load.cancelled(),
                   .records = records};
  test.summary = Summarize(records, test.limits);
  absl::PrintF("%s", FormatLoadTest(test));
  if (const std::string error = load.last_error(); !error.empty()) {
    absl::FPrintF(stderr, "skein: the last error was %s\n", error);
  }
  SKEIN_RETURN_IF_ERROR(Write("--json", flags.json_file, LoadTestToJson(test)));
  SKEIN_RETURN_IF_ERROR(Write("--svg", flags.svg_file, LoadTestToSvg(test)));
  return test.summary.succeeded == flags.requests && load.last_error().empty();
}

// The generator that an interrupt ends, while there is one.
class Interruptible {
 public:
  void Set(LoadGenerator* load) {
    MutexLock lock(&mutex_);
    load_ = load;
    if (interrupted_ && load_ != nullptr) load_->Cancel();
  }
  void Interrupt() {
    MutexLock lock(&mutex_);
    interrupted_ = true;
    if (load_ != nullptr) load_->Cancel();
  }

 private:
  Mutex mutex_;
  LoadGenerator* load_ ABSL_GUARDED_BY(mutex_) = nullptr;
  bool interrupted_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace

void DeclareBenchServe(CLI::App& command, BenchServeFlags& flags) {
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  command
      .add_option("--model", flags.model,
                  "The model, where the coordinator has several; default: the first that serves")
      ->check(NotEmpty());
  auto* concurrency =
      command
          .add_option("--concurrency", flags.concurrency, "Closed loop: so many streams at once")
          ->check(InRange<int64_t>(1, 65536))
          ->capture_default_str();
  command
      .add_option("--rate", flags.rate_per_s,
                  "Open loop instead: requests per second on average, as a Poisson process")
      ->check(InRange(0.001, 100000.0))
      ->excludes(concurrency);
  command.add_flag("--separate-calls", flags.separate_calls,
                   "A call for each request, as of clients without a gateway; otherwise all are in "
                   "one call, as a gateway's, whose tokens of a step come in one message");
  command.add_option("--requests", flags.requests, "Requests that are measured")
      ->check(InRange<int64_t>(1, kMost))
      ->capture_default_str();
  command.add_option("--warmup", flags.warmup, "Requests before them, in a closed loop")
      ->check(InRange<int64_t>(0, kMost))
      ->capture_default_str();
  auto* lengths = command
                      .add_option("--lengths", flags.lengths_file,
                                  "A file with PROMPT,ANSWER tokens a line, taken in turn")
                      ->check(NotEmpty());
  command.add_option("--prompt-tokens", flags.prompt_tokens, "Random tokens of each prompt")
      ->check(InRange<int64_t>(1, kMost))
      ->excludes(lengths)
      ->capture_default_str();
  command
      .add_option("--answer-tokens", flags.answer_tokens,
                  "Tokens of each answer; the end of text is ignored")
      ->check(InRange<int64_t>(1, kMost))
      ->excludes(lengths)
      ->capture_default_str();
  command
      .add_option("--shared-prefix", flags.shared_prefix,
                  "So many of each prompt's tokens are the same in all prompts")
      ->check(InRange<int64_t>(0, kMost))
      ->capture_default_str();
  command.add_option("--seed", flags.seed, "Of prompts and arrivals")
      ->check(InRange<uint64_t>())
      ->capture_default_str();
  AddDuration(command, "--ttft-limit", flags.limits.ttft,
              "Goodput: time to first token, like 200ms");
  AddDuration(command, "--tpot-limit", flags.limits.tpot,
              "Goodput: time per output token, like 50ms");
  command.add_option("--json", flags.json_file, "Write the result and every request to this file")
      ->check(NotEmpty());
  command.add_option("--svg", flags.svg_file, "Draw latencies and throughput into this file")
      ->check(NotEmpty());
}

int BenchServe(const Endpoint& coordinator, const BenchServeFlags& flags) {
  if (!flags.separate_calls && flags.concurrency > kMaxOfOneCall) {
    absl::FPrintF(stderr,
                  "skein: --concurrency: one call holds %d streams, not %d; more need "
                  "--separate-calls\n",
                  kMaxOfOneCall, flags.concurrency);
    return kExitUsage;
  }
  Interruptible interruptible;
  const InterruptGuard guard([&] { interruptible.Interrupt(); });  // before gRPC starts threads
  const auto good = Run(coordinator, flags, [&](LoadGenerator* load) { interruptible.Set(load); });
  if (good.ok()) return *good ? kExitOk : kExitError;
  absl::FPrintF(stderr, "skein: %s\n", std::string(good.status().message()));
  return kExitError;
}

}  // namespace skein::client
