// The coordinator: plans jobs, takes requests, hands them to workers.
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "CLI/CLI.hpp"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/log/log.h"
#include "base/status_macros.h"
#include "base/status_util.h"
#include "base/version.h"
#include "coordinator/daemon.h"
#include "coordinator/service/load_served_model.h"
#include "parallel/plan/plan.h"
#include "parallel/planner/kv_memory.h"
#include "parallel/planner/planner.h"
#include "spdlog/spdlog.h"

namespace skein::coordinator {
namespace {

constexpr int kExitError = 1;
constexpr int kExitUsage = 2;
constexpr absl::Duration kTick = absl::Milliseconds(100);  // a small part of every timeout
// Launchers like timeout(1) signal a process and then its group: so close together it is one
// signal.
constexpr std::chrono::milliseconds kSameSignal(50);

struct Flags {
  std::string model;
  std::string listen = Daemon::Options().server.listen;
  std::string port_file;
  std::string layout;
  int64_t context_length = 0;
  int32_t max_sequences = 0;
  std::string kv_memory;
  std::string kv_dtype = std::string(plan::KvDTypeName(plan::Constraints().kv_dtype));
  std::string swap_memory = "0";
  int64_t step_tokens = 0;
  int64_t max_queue = 256;
  int64_t max_retries = 3;
  std::string replica_wait = "30s";
  std::string drain_timeout = "30s";
  std::string heartbeat_timeout = "3s";
  std::string log_level = "info";
};

// Ranks beat every half second; less than two beats would lose them for nothing.
std::string CheckHeartbeatTimeout(const std::string& text) {
  absl::Duration duration;
  if (absl::ParseDuration(text, &duration) && duration >= absl::Seconds(1)) return "";
  return absl::StrCat("'", text, "' is not a duration of 1s or more, like 3s");
}

// "30s", "1m30s"; fails the flag otherwise.
std::string CheckDuration(const std::string& text) {
  absl::Duration duration;
  if (absl::ParseDuration(text, &duration) && duration >= absl::ZeroDuration()) return "";
  return absl::StrCat("'", text, "' is not a duration like 30s, 500ms or 1m30s");
}

void DeclareFlags(CLI::App& app, Flags& flags) {
  app.add_option("--model", flags.model,
                 "Folder of a model as Hugging Face writes it (config.json, tokenizer.json, "
                 "*.safetensors); workers open the same path, or one below their --model-root")
      ->required();
  app.add_option("--listen", flags.listen,
                 "HOST:PORT for clients and workers; port 0 takes a free one. There is no "
                 "authentication: stay on loopback unless the network is yours")
      ->capture_default_str();
  app.add_option("--port-file", flags.port_file,
                 "Write HOST:PORT to this file as soon as the coordinator listens");
  app.add_option("--layout", flags.layout,
                 "How each job is laid out, like tp=2,pp=2,dp=2 (tensor, pipeline, data parallel); "
                 "what is left out is planned, dp from the job's ranks");
  app.add_option("--context-length", flags.context_length,
                 "Tokens of prompt and answer together, at most; 0 takes the model's")
      ->capture_default_str();
  app.add_option("--max-sequences", flags.max_sequences,
                 "Requests that a replica runs at once; 0 lets the planner choose")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option("--kv-memory", flags.kv_memory,
                 "Memory for keys and values: a fraction of what weights and the rest leave of a "
                 "node, like 0.5, or bytes per rank, like 4GiB. Default: what --max-sequences "
                 "requests of --context-length need, or as much of it as there is");
  app.add_option("--kv-dtype", flags.kv_dtype,
                 "How keys and values are kept: f32; bf16 takes half of its memory, int8 about a "
                 "quarter, both with other roundings")
      ->capture_default_str();
  app.add_option("--swap-memory", flags.swap_memory,
                 "Bytes per rank, like 512MiB, to swap requests to that give way when "
                 "--kv-memory runs out; 0: they are recomputed")
      ->capture_default_str();
  app.add_option("--step-tokens", flags.step_tokens,
                 "Tokens that a replica computes in a step: a token of each running request, then "
                 "pieces of prompts. Fewer delay running requests less, more read prompts faster; "
                 "0 lets the planner choose")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option("--max-queue", flags.max_queue,
                 "Requests that wait for a replica; more are refused with RESOURCE_EXHAUSTED")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option("--max-retries", flags.max_retries,
                 "How often in a row a request whose replica is lost is given to another one "
                 "without a new token in between")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option("--replica-wait", flags.replica_wait,
                 "How long accepted requests wait when no replica is left that they fit")
      ->check(CheckDuration)
      ->capture_default_str();
  app.add_option("--drain-timeout", flags.drain_timeout,
                 "How long running requests may go on after SIGTERM")
      ->check(CheckDuration)
      ->capture_default_str();
  app.add_option("--heartbeat-timeout", flags.heartbeat_timeout,
                 "A rank that is silent for so long is lost, and its job with it; 1s or more")
      ->check(CheckHeartbeatTimeout)
      ->capture_default_str();
  app.add_option("--log-level", flags.log_level, "trace, debug, info, warning, error or off")
      ->capture_default_str();
  app.set_version_flag("--version", std::string(kVersion));
  app.footer(
      "Then start workers (mpirun -np 4 worker --coordinator HOST:PORT) and ask\n"
      "(skein generate --prompt TEXT). SIGTERM or Ctrl-C drains; a second one ends at once.");
}

absl::Duration ToDuration(const std::string& checked) {
  absl::Duration duration;
  absl::ParseDuration(checked, &duration);
  return duration;
}

// What every job is planned with.
absl::StatusOr<plan::Constraints> MakeConstraints(const Flags& flags) {
  plan::Constraints constraints;
  SKEIN_ASSIGN_OR_RETURN(constraints.layout, plan::ParseLayoutRequest(flags.layout));
  constraints.max_sequences = flags.max_sequences;
  const auto kv_memory = plan::ParseKvMemory(flags.kv_memory);
  if (!kv_memory.ok()) return Annotate(kv_memory.status(), "--kv-memory");
  constraints.kv_memory = *kv_memory;
  const auto kv_dtype = plan::ParseKvDType(flags.kv_dtype);
  if (!kv_dtype.ok()) return Annotate(kv_dtype.status(), "--kv-dtype");
  constraints.kv_dtype = *kv_dtype;
  const auto swap_memory = plan::ParseSwapMemory(flags.swap_memory);
  if (!swap_memory.ok()) return Annotate(swap_memory.status(), "--swap-memory");
  constraints.swap_memory_bytes = *swap_memory;
  if (flags.step_tokens > 0 && flags.step_tokens < flags.max_sequences) {
    return absl::InvalidArgumentError(
        absl::StrCat("--step-tokens: ", flags.step_tokens, " is less than --max-sequences, ",
                     flags.max_sequences, "; every running request takes one of them"));
  }
  constraints.step_tokens = flags.step_tokens;
  return constraints;
}

absl::StatusOr<Daemon::Options> MakeOptions(const Flags& flags) {
  Daemon::Options options;
  options.server = {.listen = flags.listen, .version = std::string(kVersion)};
  options.cluster.version = std::string(kVersion);
  options.cluster.heartbeat_timeout = ToDuration(flags.heartbeat_timeout);
  SKEIN_ASSIGN_OR_RETURN(options.cluster.constraints, MakeConstraints(flags));
  options.max_queue = flags.max_queue;
  options.max_retries = flags.max_retries;
  options.replica_wait = ToDuration(flags.replica_wait);
  options.drain_timeout = ToDuration(flags.drain_timeout);
  return options;
}

// By rename, so that a reader sees all of it or nothing.
absl::Status WritePortFile(const std::string& path, const std::string& address) {
  const std::string partial = absl::StrCat(path, ".", getpid());
  std::ofstream file(partial);
  file << address << "\n";
  file.close();
  if (!file || std::rename(partial.c_str(), path.c_str()) != 0) {
    return ErrnoStatus(errno, absl::StrCat("--port-file: cannot write ", path));
  }
  return absl::OkStatus();
}

// Takes SIGINT and SIGTERM on a thread of its own: the first one is told, the second one ends the
// process, whatever its other threads wait for (a disk, a client, a full pipe that takes no more
// log, which is why this one logs nothing). Made before any other thread, so that all inherit the
// blocked signals; its thread lives as long as the process.
class Signals {
 public:
  Signals() : came_(std::make_shared<std::atomic<bool>>(false)) {
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &signals, nullptr);
    std::thread(Take, signals, came_).detach();
  }
  bool came() const { return *came_; }

 private:
  static void Take(const sigset_t& signals, const std::shared_ptr<std::atomic<bool>>& came) {
    int signal = 0;
    sigwait(&signals, &signal);
    *came = true;
    const auto first = std::chrono::steady_clock::now();
    do {
      sigwait(&signals, &signal);
    } while (std::chrono::steady_clock::now() - first <= kSameSignal);
    _exit(kExitError);
  }

  const std::shared_ptr<std::atomic<bool>> came_;
};

void ServeUntilDrained(Daemon& daemon, const Signals& signals) {
  for (; !daemon.drained(); daemon.Tick()) {
    absl::SleepFor(kTick);
    if (signals.came()) daemon.StartDrain();
  }
}

absl::Status Run(const Flags& flags, const Signals& signals) {
  SKEIN_ASSIGN_OR_RETURN(Daemon::Options options, MakeOptions(flags));
  spdlog::info("loading {}", flags.model);
  SKEIN_ASSIGN_OR_RETURN(ServedModel model, LoadServedModel(flags.model, flags.context_length));
  spdlog::info("model {} from {}: {} parameters, context {}, identity {}", model.name, model.path,
               model.config.ParameterCount(), model.context_length, model.identity);
  if (signals.came()) return absl::OkStatus();  // there is nothing to drain yet
  Daemon daemon(std::move(options), std::move(model), &RealClock::Get());
  SKEIN_RETURN_IF_ERROR(daemon.Start());
  spdlog::info("listening on {}; waiting for workers", daemon.address());
  if (!flags.port_file.empty()) {
    SKEIN_RETURN_IF_ERROR(WritePortFile(flags.port_file, daemon.address()));
  }
  ServeUntilDrained(daemon, signals);
  spdlog::info("drained");
  daemon.Shutdown(absl::Seconds(2));
  return absl::OkStatus();
}

int Main(int argc, char** argv) {
  CLI::App app("Skein's coordinator: plans how a model is spread over workers and serves it.");
  app.name("coordinator");
  Flags flags;
  DeclareFlags(app, flags);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kExitUsage;
  }
  if (const absl::Status status = InitLogging("coordinator", flags.log_level); !status.ok()) {
    std::fprintf(stderr, "--log-level: %s\n", std::string(status.message()).c_str());
    return kExitUsage;
  }
  const Signals signals;
  const absl::Status status = Run(flags, signals);
  if (status.ok()) return 0;
  spdlog::error("{}", std::string(status.message()));
  return kExitError;
}

}  // namespace
}  // namespace skein::coordinator

int main(int argc, char** argv) { return skein::coordinator::Main(argc, argv); }
