// The coordinator: plans jobs, takes requests, hands them to workers.
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/deadlock_detection.h"
#include "base/file.h"
#include "base/flags/flags.h"
#include "base/flags/log_flags.h"
#include "base/flags/mutual_tls_flags.h"
#include "base/host_port.h"
#include "base/log/log.h"
#include "base/log/log_options.h"
#include "base/status_macros.h"
#include "base/status_util.h"
#include "base/tls/mutual_tls.h"
#include "base/version.h"
#include "coordinator/access/access.h"
#include "coordinator/daemon.h"
#include "coordinator/gateway/http_server.h"
#include "coordinator/gateway/tls_context.h"
#include "coordinator/journal/journal.h"
#include "coordinator/model_argument.h"
#include "coordinator/model_flags.h"
#include "coordinator/rpc/listener.h"
#include "coordinator/service/access_log.h"
#include "coordinator/service/load_served_model.h"
#include "spdlog/spdlog.h"

namespace skein::coordinator {
namespace {

constexpr absl::Duration kTick = absl::Milliseconds(100);  // a small part of every timeout
// Ranks beat every half second; less than two beats would lose them for nothing.
constexpr absl::Duration kLeastHeartbeatTimeout = absl::Seconds(1);
// Launchers like timeout(1) signal a process and then its group: so close together it is one
// signal.
constexpr std::chrono::milliseconds kSameSignal(50);

constexpr rlim_t kMostDescriptors = 1 << 20;

struct Flags {
  std::vector<std::string> models;
  std::string port_file;
  std::string http;
  std::string http_port_file;
  std::string metrics;
  std::string metrics_port_file;
  TlsFiles tls;          // "": none
  MutualTlsFiles peers;  // of gRPC
  bool insecure = false;
  Journal::Options journal;  // "": none
  Access::Options access;    // "": no keys
  LogOptions log;
  bool access_log = true;
  Daemon::Options daemon;
};

// Who could use what listens there is not left to chance, as for the next.
absl::Status CheckListen(const Flags& flags) {
  if (flags.insecure || flags.peers.given()) return absl::OkStatus();
  SKEIN_ASSIGN_OR_RETURN(const HostPort address, ParseHostPort(flags.daemon.server.listen));
  if (address.IsLoopback()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "--listen: ", flags.daemon.server.listen,
      " is not loopback, and whoever reaches it could use it, and end its jobs: add --tls-cert, "
      "--tls-key and --tls-ca (`scripts/make-certs.sh DIR HOST...` makes certificates), or "
      "--insecure where that is meant"));
}

absl::Status CheckHttp(const Flags& flags) {
  if (flags.http.empty() || flags.insecure || !flags.access.keys_file.empty()) {
    return absl::OkStatus();
  }
  SKEIN_ASSIGN_OR_RETURN(const HostPort address, ParseHostPort(flags.http));
  if (address.IsLoopback()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--http: ", flags.http,
                   " is not loopback, and whoever reaches it could use it: add --api-keys FILE "
                   "(`skein keys add FILE NAME` makes one), or --insecure where that is meant"));
}

void DeclareHttp(CLI::App& app, Flags& flags) {
  AddAddress(app, "--http", flags.http,
             "Serve OpenAI's and Anthropic's APIs over HTTP there, as on 127.0.0.1:8000; port 0 "
             "takes a free one. Elsewhere than on loopback --api-keys must be given, or --insecure",
             /*least_port=*/0);
  app.add_option("--http-port-file", flags.http_port_file,
                 "Write HOST:PORT of --http to this file as soon as it listens")
      ->needs("--http")
      ->check(NotEmpty());
  CLI::Option* certificate =
      app.add_option("--http-cert", flags.tls.certificate,
                     "Speak TLS at --http with this certificate, in PEM, and those behind it; "
                     "SIGHUP reads it and the key again, for new connections")
          ->needs("--http")
          ->check(NotEmpty());
  CLI::Option* key = app.add_option("--http-key", flags.tls.key,
                                    "The private key of --http-cert, in PEM, without a password")
                         ->needs(certificate)
                         ->check(NotEmpty());
  certificate->needs(key);
  app.add_option("--http-allowed-host", flags.daemon.gatekeeper.allowed_hosts,
                 "A name by which HTTP requests may ask, besides that of --http and, on loopback, "
                 "localhost; may be given again. Off loopback any name may, unless this is given")
      ->needs("--http")
      ->expected(1)
      ->take_all()
      ->check(NotEmpty());
  app.add_option("--api-keys", flags.access.keys_file,
                 "Ask HTTP clients for a key of this file, which `skein keys` writes; SIGHUP reads "
                 "it again")
      ->needs("--http")
      ->check(NotEmpty());
  app.add_option("--usage-db", flags.access.usage_db,
                 "Keep what keys have used in this SQLite database, so that limits outlive a "
                 "restart")
      ->needs("--api-keys")
      ->check(NotEmpty());
  app.add_flag("--insecure", flags.insecure,
               "Let whoever reaches --listen and --http use them off loopback, too: gRPC without "
               "certificates, HTTP without a key");
}

void DeclareMetrics(CLI::App& app, Flags& flags) {
  AddAddress(app, "--metrics", flags.metrics,
             "Serve Prometheus' metrics there and nowhere else, as on 127.0.0.1:9000; port 0 takes "
             "a free one. Default: /metrics of --http",
             /*least_port=*/0);
  app.add_option("--metrics-port-file", flags.metrics_port_file,
                 "Write HOST:PORT of --metrics to this file as soon as it listens")
      ->needs("--metrics")
      ->check(NotEmpty());
}

void DeclareFlags(CLI::App& app, Flags& flags) {
  Daemon::Options& daemon = flags.daemon;
  app.add_option("--model", flags.models,
                 "Folder of a model as Hugging Face writes it (config.json, tokenizer.json, "
                 "*.safetensors), or a GGUF file; workers open the same path, or one below their "
                 "--model-root. NAME=PATH, or NAME,ALIAS=PATH, says what clients call it; behind "
                 "the path its own flags may stand, of those that are said of all models here: "
                 "--model='chat=/models/llama --context-length=4096 --layout=tp=2'. May be given "
                 "again")
      ->required()
      ->expected(1)
      ->take_all()
      ->check(NotEmpty())
      ->check([](const std::string& text) {
        return std::string(ParseModelArgument(text, {}).status().message());
      });
  AddAddress(app, "--listen", daemon.server.listen,
             "Where clients and workers come to; port 0 takes a free one. Elsewhere than on "
             "loopback --tls-cert, --tls-key and --tls-ca must be given, or --insecure",
             /*least_port=*/0);
  AddMutualTls(app, flags.peers);
  DeclareHttp(app, flags);
  DeclareMetrics(app, flags);
  app.add_option("--port-file", flags.port_file,
                 "Write HOST:PORT to this file as soon as the coordinator listens")
      ->check(NotEmpty());
  DeclareModelFlags(app, daemon.model);
  app.add_option("--max-retries", daemon.max_retries,
                 "How often in a row a request whose replica is lost is given to another one "
                 "without a new token in between")
      ->check(InRange<int64_t>(0))
      ->capture_default_str();
  AddDuration(app, "--replica-wait", daemon.replica_wait,
              "How long accepted requests wait when no replica is left that they fit");
  CLI::Option* const journal =
      app.add_option("--journal", flags.journal.folder,
                     "Keep streamed answers, and what was asked, in this folder: a coordinator "
                     "that is started again, and clients that come back with an answer's id, go on "
                     "with them. A client that goes away then ends nothing at once")
          ->check(NotEmpty());
  AddDuration(app, "--resume-window", daemon.kept.window,
              "How long clients of --journal may be away, and how long no coordinator may be there")
      ->needs(journal);
  AddDuration(app, "--drain-timeout", daemon.drain_timeout,
              "How long running requests may go on after SIGTERM");
  AddDuration(app, "--heartbeat-timeout", daemon.cluster.heartbeat_timeout,
              "A rank that is silent for so long is lost, and its job with it; 1s or more",
              kLeastHeartbeatTimeout);
  AddLogging(app, flags.log);
  app.add_flag("--access-log,!--no-access-log", flags.access_log,
               "Log a line for each request, without prompt and answer (default)")
      ->default_str("true");
  app.set_version_flag("--version", std::string(kVersion));
  app.footer(
      "Then start workers (mpirun -np 4 worker --coordinator HOST:PORT) and ask\n"
      "(skein generate --prompt TEXT). SIGTERM or Ctrl-C drains; a second one ends at once.");
}

// By rename, so that a reader sees all of it or nothing. No path: nothing.
absl::Status WritePortFile(const char* flag, const std::string& path, const std::string& address) {
  if (path.empty()) return absl::OkStatus();
  const std::string partial = absl::StrCat(path, ".", getpid());
  SKEIN_RETURN_IF_ERROR(Annotate(WriteFile(partial, address + "\n"), flag));
  if (std::rename(partial.c_str(), path.c_str()) != 0) {
    return ErrnoStatus(errno, absl::StrCat(flag, ": cannot write ", path));
  }
  return absl::OkStatus();
}

// Takes SIGINT and SIGTERM on a thread of its own: the first one is told, the second one ends the
// process, whatever its other threads wait for (a disk, a client, a full pipe that takes no more
// log, which is why this one logs nothing). Made before any other thread, so that all inherit the
// blocked signals; its thread lives as long as the process. SIGHUP is told, too, and ends nothing.
class Signals {
 public:
  Signals() : came_(std::make_shared<Came>()) {
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGHUP);
    pthread_sigmask(SIG_BLOCK, &signals, nullptr);
    std::thread(Take, signals, came_).detach();
  }
  bool came() const { return came_->end; }
  // Since the last call.
  bool TakeHangup() const { return came_->hangup.exchange(false); }

 private:
  struct Came {
    std::atomic<bool> end = false;
    std::atomic<bool> hangup = false;
  };

  // Until another signal than SIGHUP comes.
  static void Wait(const sigset_t& signals, Came& came) {
    int signal = SIGHUP;
    while (sigwait(&signals, &signal) != 0 || signal == SIGHUP) came.hangup = true;
  }
  static void Take(const sigset_t& signals, const std::shared_ptr<Came>& came) {
    Wait(signals, *came);
    came->end = true;
    const auto first = std::chrono::steady_clock::now();
    do {
      Wait(signals, *came);
    } while (std::chrono::steady_clock::now() - first <= kSameSignal);
    _exit(kExitError);
  }

  const std::shared_ptr<Came> came_;
};

absl::Status ReloadPeers(Daemon& daemon, const MutualTlsFiles& files) {
  SKEIN_ASSIGN_OR_RETURN(const MutualTls tls, LoadMutualTls(files, absl::Now()));
  return daemon.UseCertificates(tls);
}

// Failures are logged, and leave all as it was.
void Reload(Daemon& daemon, Access* access, const Flags& flags) {
  if (access != nullptr) access->Reload().IgnoreError();
  if (const absl::Status read = daemon.ReloadTls(); !read.ok()) {
    spdlog::error("the certificate stays as it was: {}", std::string(read.message()));
  }
  if (flags.peers.given()) {
    if (const absl::Status read = ReloadPeers(daemon, flags.peers); read.ok()) {
      spdlog::info("--tls-cert, --tls-key and --tls-ca were read again, for new connections");
    } else {
      spdlog::error("the certificates of gRPC stay as they were: {}", std::string(read.message()));
    }
  } else if (access == nullptr && flags.tls.key.empty()) {
    spdlog::info("SIGHUP: there is nothing to read again, neither keys nor certificates");
  }
}

void ServeUntilDrained(Daemon& daemon, Access* access, const Flags& flags, const Signals& signals) {
  for (; !daemon.drained(); daemon.Tick()) {
    absl::SleepFor(kTick);
    if (signals.came()) daemon.StartDrain();
    if (signals.TakeHangup()) Reload(daemon, access, flags);
  }
}

// What would fail only when the model is loaded, which may take minutes.
absl::Status CheckPlaces(const Flags& flags) {
  SKEIN_ASSIGN_OR_RETURN(const HostPort address, ParseHostPort(flags.daemon.server.listen));
  SKEIN_RETURN_IF_ERROR(CheckListenAddress(address));
  if (!flags.peers.given() && !address.IsLoopback()) {
    spdlog::warn(
        "{} has no TLS and asks nobody who he is: whoever reaches it can use it, and read prompts "
        "and answers on the way (--tls-cert, --tls-key, --tls-ca)",
        flags.daemon.server.listen);
  }
  if (!flags.http.empty()) {
    SKEIN_ASSIGN_OR_RETURN(const HostPort http, ParseHostPort(flags.http));
    SKEIN_RETURN_IF_ERROR(Annotate(CheckListenAddress(http), "--http"));
    if (!flags.tls.key.empty()) {
      SKEIN_RETURN_IF_ERROR(LoadTlsContext(flags.tls, absl::Now()).status());
    } else if (!http.IsLoopback()) {
      spdlog::warn(
          "{} has no TLS: prompts, answers and API keys can be read on the way "
          "(--http-cert, --http-key)",
          flags.http);
    }
  }
  if (!flags.metrics.empty()) {
    SKEIN_ASSIGN_OR_RETURN(const HostPort metrics, ParseHostPort(flags.metrics));
    SKEIN_RETURN_IF_ERROR(Annotate(CheckListenAddress(metrics), "--metrics"));
  }
  for (const auto& [flag, path] : {std::pair("--port-file", &flags.port_file),
                                   std::pair("--http-port-file", &flags.http_port_file),
                                   std::pair("--metrics-port-file", &flags.metrics_port_file)}) {
    if (path->empty()) continue;
    SKEIN_RETURN_IF_ERROR(Annotate(CheckWritable(*path), flag));
  }
  return absl::OkStatus();
}

struct Loaded {
  ServedModel model;
  ModelLimits limits;
};

absl::StatusOr<Loaded> Load(const std::string& text, const ModelArgument& defaults) {
  SKEIN_ASSIGN_OR_RETURN(ModelArgument asked, ParseModelArgument(text, defaults));
  spdlog::info("loading {}", asked.path);
  SKEIN_ASSIGN_OR_RETURN(ServedModel model,
                         LoadServedModel(asked.path, asked.limits.constraints.context_length,
                                         asked.chat_template, asked.names));
  return Loaded{std::move(model), asked.limits};
}

absl::Status Run(const Flags& flags, const Signals& signals) {
  SKEIN_RETURN_IF_ERROR(CheckPlaces(flags));
  Daemon::Options options = flags.daemon;
  if (flags.peers.given()) {
    SKEIN_ASSIGN_OR_RETURN(options.server.tls, LoadMutualTls(flags.peers, absl::Now()));
  }
  std::unique_ptr<Access> access;
  if (!flags.access.keys_file.empty()) {
    SKEIN_ASSIGN_OR_RETURN(access, Access::Open(flags.access, &RealClock::Get()));
  }
  std::unique_ptr<Journal> journal;
  if (!flags.journal.folder.empty()) {
    SKEIN_ASSIGN_OR_RETURN(journal, Journal::Open(flags.journal));
  }
  std::vector<Loaded> models;
  for (const std::string& text : flags.models) {
    SKEIN_ASSIGN_OR_RETURN(models.emplace_back(), Load(text, options.model));
  }
  if (signals.came()) return absl::OkStatus();  // there is nothing to drain yet
  options.gatekeeper.access = access.get();
  options.journal = journal.get();
  Daemon daemon(options, &RealClock::Get());
  for (Loaded& loaded : models) {
    SKEIN_RETURN_IF_ERROR(
        Annotate(daemon.AddModel(std::move(loaded.model), loaded.limits), "--model"));
  }
  SKEIN_RETURN_IF_ERROR(daemon.Start());
  spdlog::info("listening on {}{}; waiting for workers", daemon.address(),
               options.server.tls.has_value() ? " with TLS" : "");
  SKEIN_RETURN_IF_ERROR(WritePortFile("--port-file", flags.port_file, daemon.address()));
  if (!flags.http.empty()) {
    spdlog::info("HTTP on {}://{}", flags.tls.key.empty() ? "http" : "https",
                 daemon.http_address());
    SKEIN_RETURN_IF_ERROR(
        WritePortFile("--http-port-file", flags.http_port_file, daemon.http_address()));
  }
  if (!flags.metrics.empty()) {
    spdlog::info("metrics on http://{}/metrics", daemon.metrics_address());
    SKEIN_RETURN_IF_ERROR(
        WritePortFile("--metrics-port-file", flags.metrics_port_file, daemon.metrics_address()));
  }
  ServeUntilDrained(daemon, access.get(), flags, signals);
  spdlog::info("drained");
  daemon.Shutdown(absl::Seconds(2));
  return absl::OkStatus();
}

// Every connection takes a file descriptor; the usual soft limit of 1,024 is for programs that
// call select().
void RaiseDescriptorLimit() {
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  const rlim_t wanted = std::min(limit.rlim_max, kMostDescriptors);
  if (limit.rlim_cur >= wanted) return;
  limit.rlim_cur = wanted;
  if (setrlimit(RLIMIT_NOFILE, &limit) != 0) {
    spdlog::warn("cannot raise the limit of file descriptors to {}: {}", wanted, strerror(errno));
  }
}

int Main(int argc, char** argv) {
  StopDeadlockDetection();
  CLI::App app("Skein's coordinator: plans how a model is spread over workers and serves it.");
  app.name("coordinator");
  Flags flags;
  flags.daemon.server.version = flags.daemon.cluster.version = std::string(kVersion);
  DeclareFlags(app, flags);
  if (const std::optional<int> code = ParseCommandLine(app, argc, argv)) return *code;
  if (!flags.http.empty()) flags.daemon.http = HttpServerOptions{.listen = flags.http};
  if (!flags.tls.key.empty()) flags.daemon.http->tls = flags.tls;
  if (!flags.metrics.empty()) flags.daemon.metrics = flags.metrics;
  absl::Status usable = CheckListen(flags);
  usable.Update(CheckHttp(flags));
  const absl::Status logs = Annotate(InitLogging("coordinator", flags.log), "--log-file");
  EnableAccessLog(flags.access_log);
  if (!usable.ok() || !logs.ok()) {
    const absl::Status& why = usable.ok() ? logs : usable;
    std::fprintf(stderr, "coordinator: %s\n", std::string(why.message()).c_str());
    return usable.ok() ? kExitError : kExitUsage;
  }
  RaiseDescriptorLimit();
  const Signals signals;
  const absl::Status status = Run(flags, signals);
  if (status.ok()) return kExitOk;
  spdlog::error("{}", std::string(status.message()));
  return kExitError;
}

}  // namespace
}  // namespace skein::coordinator

int main(int argc, char** argv) { return skein::coordinator::Main(argc, argv); }
