// The coordinator: plans jobs, takes requests, hands them to workers.
#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <string>
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
#include "spdlog/spdlog.h"

namespace skein::coordinator {
namespace {

constexpr int kExitError = 1;
constexpr int kExitUsage = 2;
constexpr int kTickMs = 100;  // a small part of every timeout
// Launchers like timeout(1) signal a process and then its group: so close together it is one
// signal.
constexpr absl::Duration kSameSignal = absl::Milliseconds(50);

struct Flags {
  std::string model;
  std::string listen = "127.0.0.1:50051";
  std::string port_file;
  std::string layout;
  int64_t context_length = 0;
  int32_t max_sequences = 0;
  int64_t max_queue = 256;
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
                 "*.safetensors); every worker opens the same path")
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
  app.add_option("--max-queue", flags.max_queue,
                 "Requests that wait for a replica; more are refused with RESOURCE_EXHAUSTED")
      ->check(CLI::NonNegativeNumber)
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

absl::StatusOr<Daemon::Options> MakeOptions(const Flags& flags) {
  Daemon::Options options;
  options.server = {.listen = flags.listen, .version = std::string(kVersion)};
  options.cluster.version = std::string(kVersion);
  options.cluster.heartbeat_timeout = ToDuration(flags.heartbeat_timeout);
  SKEIN_ASSIGN_OR_RETURN(options.cluster.constraints.layout,
                         plan::ParseLayoutRequest(flags.layout));
  options.cluster.constraints.max_sequences = flags.max_sequences;
  options.max_queue = flags.max_queue;
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

// Signals come as reads from a file descriptor. Before any thread starts, so that all inherit it.
int BlockSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  sigprocmask(SIG_BLOCK, &signals, nullptr);
  return signalfd(-1, &signals, SFD_CLOEXEC);
}

bool SignalCame(int signals) {
  pollfd wait = {.fd = signals, .events = POLLIN};
  signalfd_siginfo info;
  return poll(&wait, 1, kTickMs) > 0 && read(signals, &info, sizeof(info)) == sizeof(info);
}

void ServeUntilDrained(Daemon& daemon, int signals) {
  absl::Time first = absl::InfiniteFuture();
  for (; !daemon.drained(); daemon.Tick()) {
    if (!SignalCame(signals)) continue;
    if (absl::Now() - first > kSameSignal) {
      spdlog::warn("a second signal: ending at once");
      _exit(kExitError);
    }
    first = std::min(first, absl::Now());
    daemon.StartDrain();
  }
}

absl::Status Run(const Flags& flags, int signals) {
  SKEIN_ASSIGN_OR_RETURN(Daemon::Options options, MakeOptions(flags));
  SKEIN_ASSIGN_OR_RETURN(ServedModel model, LoadServedModel(flags.model, flags.context_length));
  spdlog::info("model {} from {}: {} parameters, context {}, identity {}", model.name, model.path,
               model.config.ParameterCount(), model.context_length, model.identity);
  Daemon daemon(std::move(options), std::move(model), &RealClock::Get());
  SKEIN_RETURN_IF_ERROR(daemon.Start());
  spdlog::info("listening on {}; waiting for workers", daemon.address());
  if (!flags.port_file.empty()) {
    SKEIN_RETURN_IF_ERROR(WritePortFile(flags.port_file, daemon.address()));
  }
  ServeUntilDrained(daemon, signals);
  daemon.Shutdown(absl::Seconds(2));
  spdlog::info("drained; bye");
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
  const int signals = BlockSignals();
  const absl::Status status = Run(flags, signals);
  if (status.ok()) return 0;
  spdlog::error("{}", std::string(status.message()));
  return kExitError;
}

}  // namespace
}  // namespace skein::coordinator

int main(int argc, char** argv) { return skein::coordinator::Main(argc, argv); }
