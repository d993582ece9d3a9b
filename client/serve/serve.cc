#include "client/serve/serve.h"

#include <grpcpp/client_context.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string_view>
#include <system_error>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/flags/flags.h"
#include "base/flags/mutual_tls_flags.h"
#include "base/host_port.h"
#include "base/named_path.h"
#include "base/status_macros.h"
#include "base/status_util.h"
#include "base/tls/mutual_tls.h"
#include "client/connection.h"
#include "client/endpoint.h"
#include "client/find_worker.h"
#include "client/serve/open_mpi_settings.h"
#include "client/serve/supervised.h"
#include "proto/cluster.grpc.pb.h"
#include "topology/host/detect.h"

namespace skein::client {
namespace {

constexpr int kMost = 9999;  // of jobs, and of ranks
constexpr absl::Duration kLookEvery = absl::Milliseconds(100);
constexpr std::chrono::milliseconds kCallTimeout(500);  // signals wait as long
// Launchers like timeout(1) signal a process and then its group: so close together it is one
// signal.
constexpr absl::Duration kSameSignal = absl::Milliseconds(50);

// A folder that goes with its owner.
class Folder {
 public:
  static absl::StatusOr<std::unique_ptr<Folder>> Make() {
    const char* const parent = std::getenv("TMPDIR");
    std::string path =
        absl::StrCat(parent == nullptr || *parent == '\0' ? "/tmp" : parent, "/skein-serve-XXXXXX");
    if (mkdtemp(path.data()) == nullptr) {
      return absl::ErrnoToStatus(errno, absl::StrCat("cannot make a folder as ", path));
    }
    return std::unique_ptr<Folder>(new Folder(path));
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  const std::string& path() const { return path_; }

 private:
  explicit Folder(std::string path) : path_(std::move(path)) {}
  const std::string path_;
};

// Its signals come from fd() while it lives, and to no thread that starts meanwhile.
class SignalQueue {
 public:
  SignalQueue() {
    sigset_t taken;
    sigemptyset(&taken);
    for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
      // nohup(1), and shells for what runs in the background, have it ignored. Blocked, it would
      // come all the same.
      struct sigaction before{};
      sigaction(signal, nullptr, &before);
      if (before.sa_handler != SIG_IGN) sigaddset(&taken, signal);
    }
    pthread_sigmask(SIG_BLOCK, &taken, &before_);
    fd_ = signalfd(-1, &taken, SFD_CLOEXEC | SFD_NONBLOCK);
  }
  ~SignalQueue() {
    close(fd_);
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  int fd() const { return fd_; }
  std::optional<int> Next() const {
    signalfd_siginfo info{};
    if (read(fd_, &info, sizeof(info)) != sizeof(info)) return std::nullopt;
    return static_cast<int>(info.ssi_signo);
  }

 private:
  sigset_t before_;
  int fd_ = -1;
};

// What happens, in a line that is written over on a terminal.
class Progress {
 public:
  void Say(const std::string& state) {
    if (terminal_) {
      const int64_t seconds = absl::ToInt64Seconds(absl::Now() - start_);
      std::fprintf(stderr, "\r\x1b[K%s (%d s)", state.c_str(), static_cast<int>(seconds));
      std::fflush(stderr);
      open_ = true;
    } else if (state != last_) {
      std::fprintf(stderr, "%s\n", state.c_str());
    }
    last_ = state;
  }
  // Makes room for other lines.
  void Clear() {
    if (std::exchange(open_, false)) std::fputs("\r\x1b[K", stderr);
  }
  absl::Duration elapsed() const { return absl::Now() - start_; }

 private:
  const bool terminal_ = isatty(STDERR_FILENO) == 1;
  const absl::Time start_ = absl::Now();
  bool open_ = false;
  std::string last_;
};

// The address with a port in the place of 0, where nobody listens now. The error says who may.
absl::StatusOr<std::string> FreeAddress(const char* flag, const std::string& text) {
  SKEIN_ASSIGN_OR_RETURN(HostPort address, ParseHostPort(text));
  std::string host = address.host;
  if (host.front() == '[') host = host.substr(1, host.size() - 2);
  addrinfo hints = {.ai_flags = AI_PASSIVE, .ai_socktype = SOCK_STREAM};
  addrinfo* found = nullptr;
  if (const int error =
          getaddrinfo(host.c_str(), std::to_string(address.port).c_str(), &hints, &found)) {
    return absl::InvalidArgumentError(absl::StrCat(flag, ": ", text, ": ", gai_strerror(error)));
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(found, freeaddrinfo);
  const int fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int on = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  sockaddr_storage bound{};
  socklen_t size = sizeof(bound);
  auto* const generic = reinterpret_cast<sockaddr*>(&bound);
  const bool free = bind(fd, found->ai_addr, found->ai_addrlen) == 0 && listen(fd, 1) == 0 &&
                    getsockname(fd, generic, &size) == 0;
  const int error = errno;
  close(fd);
  if (!free) {
    return absl::ErrnoToStatus(
        error, absl::StrCat(flag, ": cannot listen on ", text,
                            error == EADDRINUSE ? ", where something listens already (port 0 takes "
                                                  "a free one)"
                                                : ""));
  }
  address.port =
      ntohs(bound.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(&bound)->sin6_port
                                        : reinterpret_cast<sockaddr_in*>(&bound)->sin_port);
  return address.ToString();
}

absl::StatusOr<int> DefaultRanks() {
  topology::DetectOptions options;
  if (const char* visible = std::getenv("CUDA_VISIBLE_DEVICES")) options.visible_devices = visible;
  SKEIN_ASSIGN_OR_RETURN(const topology::Host host, topology::DetectHost(options));
  const size_t gpus = host.interconnect.gpus.size();
  return static_cast<int>(std::max<size_t>(1, gpus > 0 ? gpus : host.numa_nodes.size()));
}

// Whether the flag is among these, or in the file.
bool Names(const std::vector<std::string>& flags, const std::optional<ConfigForOther>& config,
           std::string_view flag) {
  const auto names = [&](const std::string& given) {
    return std::string_view(given).substr(0, given.find('=')) == flag;
  };
  const auto is_key = [&](const std::string& key) { return flag.substr(2) == key; };
  return std::any_of(flags.begin(), flags.end(), names) ||
         (config.has_value() && std::any_of(config->keys.begin(), config->keys.end(), is_key));
}

// What is started, and where it can be reached.
struct Setup {
  std::vector<std::string> command;
  Endpoint coordinator;
  std::string http_file;  // tells the address
  std::string model;      // for people
  int ranks = 0;          // of each job
  bool tls = false;
};

absl::StatusOr<Setup> Prepare(const ServeFlags& flags, const std::string& folder) {
  Setup setup;
  std::error_code ignored;
  const std::string path = ParseNamedPath(flags.model).path;
  if (!std::filesystem::exists(path, ignored)) {
    return absl::NotFoundError(
        absl::StrCat(path, " is not there; a model's folder, or a GGUF file, is expected"));
  }
  SKEIN_ASSIGN_OR_RETURN(const std::string supervisor, FindProgram("supervisor"));
  SKEIN_ASSIGN_OR_RETURN(setup.coordinator.address, FreeAddress("--listen", flags.listen));
  SKEIN_RETURN_IF_ERROR(FreeAddress("--http", flags.http).status());
  if (flags.ranks.has_value()) {
    setup.ranks = *flags.ranks;
  } else {
    SKEIN_ASSIGN_OR_RETURN(setup.ranks, DefaultRanks());
  }
  setup.http_file = folder + "/http";
  setup.model = flags.model;
  setup.tls = Names(flags.coordinator_flags, flags.coordinator_config, "--http-cert");
  std::vector<std::string>& command = setup.command;
  command = {supervisor,
             "--require-start",
             absl::StrCat("--model=", flags.model),
             absl::StrCat("--coordinator=", setup.coordinator.address),
             absl::StrCat("--jobs=", flags.jobs),
             absl::StrCat("--ranks=", setup.ranks),
             absl::StrCat("--coordinator-flag=--http=", flags.http),
             absl::StrCat("--coordinator-flag=--http-port-file=", setup.http_file)};
  if (flags.tls.given()) {
    SKEIN_ASSIGN_OR_RETURN(setup.coordinator.tls, LoadMutualTls(flags.tls, absl::Now()));
    command.insert(command.end(), {absl::StrCat("--tls-cert=", flags.tls.certificate),
                                   absl::StrCat("--tls-key=", flags.tls.key),
                                   absl::StrCat("--tls-ca=", flags.tls.ca)});
  }
  for (const std::string& flag : flags.coordinator_flags) {
    command.push_back(absl::StrCat("--coordinator-flag=", flag));
  }
  if (flags.coordinator_config.has_value()) {
    command.push_back(absl::StrCat("--coordinator-flag=--config=", flags.coordinator_config->path));
  }
  if (!flags.verbose) {
    command.emplace_back("--log-level=warning");
    if (!Names(flags.coordinator_flags, flags.coordinator_config, "--log-level")) {
      command.emplace_back("--coordinator-flag=--log-level=warning");
    }
  }
  command.emplace_back("--");
  if (!flags.verbose && !Names(flags.worker_flags, flags.worker_config, "--log-level")) {
    command.emplace_back("--log-level=warning");
  }
  if (flags.worker_config.has_value()) {
    command.push_back(absl::StrCat("--config=", flags.worker_config->path));
  }
  command.insert(command.end(), flags.worker_flags.begin(), flags.worker_flags.end());
  return setup;
}

std::string LayoutOf(const plan::v1::Plan& plan) {
  const plan::v1::Layout& layout = plan.layout();
  return absl::StrCat("tp=", layout.tp_size(), ",pp=", layout.pp_size(), ",dp=", layout.dp_size());
}

// Asks a coordinator that is about to come.
class Watch {
 public:
  explicit Watch(const Setup& setup)
      : setup_(setup),
        connection_(setup.coordinator),
        stub_(cluster::v1::Cluster::NewStub(connection_.channel())) {}

  // What is being done; none: a replica serves.
  std::optional<std::string> Look() {
    const std::string reads = absl::StrCat("the coordinator reads ", setup_.model);
    // gRPC tries again only after a while where nobody listens.
    std::error_code ignored;
    if (!std::filesystem::exists(setup_.http_file, ignored)) return reads;
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + kCallTimeout);
    status_.Clear();
    if (!stub_->GetStatus(&context, {}, &status_).ok()) return reads;
    if (status_.serving()) return std::nullopt;
    for (const auto& job : status_.jobs()) {
      if (job.has_over_seconds()) continue;
      if (job.state() == "loading") {
        return absl::StrCat(job.size(), job.size() == 1 ? " rank loads" : " ranks load", " ",
                            job.model_name(), " as ", LayoutOf(job.plan()));
      }
      return absl::StrCat(job.ranks_size(), " of ", job.size(), " ranks are here");
    }
    return absl::StrCat("starting ", setup_.ranks, setup_.ranks == 1 ? " rank" : " ranks",
                        ", which may measure this host first");
  }

  // To be told once a replica serves.
  std::string Ready(absl::Duration took) const {
    std::string http;
    std::getline(std::ifstream(setup_.http_file) >> std::ws, http);
    const std::string url = absl::StrCat(setup_.tls ? "https://" : "http://", http);
    std::string text = absl::StrFormat("%s is served at %s (OpenAI's API: %s/v1), gRPC on %s\n",
                                       status_.model_name(), url, url, setup_.coordinator.address);
    for (const auto& job : status_.jobs()) {
      if (job.state() != "serving") continue;
      absl::StrAppendFormat(
          &text, "%s on %d %s, after %.1f s. `skein chat` talks to it; Ctrl-C ends it.\n",
          LayoutOf(job.plan()), job.size(), job.size() == 1 ? "rank" : "ranks",
          absl::ToDoubleSeconds(took));
      break;
    }
    return text;
  }

 private:
  const Setup& setup_;
  const Connection connection_;
  const std::unique_ptr<cluster::v1::Cluster::Stub> stub_;
  cluster::v1::ClusterStatus status_;
};

// Passes on what the programs say.
void PassOn(Supervised& supervised, Progress& progress) {
  for (const std::string& line : supervised.ReadLines()) {
    progress.Clear();
    std::fprintf(stderr, "%s\n", line.c_str());
  }
}

void Await(const Supervised& supervised, const SignalQueue& signals) {
  pollfd fds[] = {{.fd = supervised.output(), .events = POLLIN},
                  {.fd = signals.fd(), .events = POLLIN}};
  poll(fds, std::size(fds), static_cast<int>(absl::ToInt64Milliseconds(kLookEvery)));
}

int RunUntilEnd(const Setup& setup, Supervised& supervised, const SignalQueue& signals) {
  Progress progress;
  Watch watch(setup);
  bool served = false;
  int asked = 0;  // how often to end
  absl::Time asked_at = absl::InfinitePast();
  while (!supervised.Ended().has_value()) {
    if (!served && asked == 0) {
      const std::optional<std::string> state = watch.Look();
      if (state.has_value()) {
        progress.Say(*state);
      } else {
        served = true;
        progress.Clear();
        std::fputs(watch.Ready(progress.elapsed()).c_str(), stdout);
        std::fflush(stdout);
      }
    }
    Await(supervised, signals);
    PassOn(supervised, progress);
    while (const std::optional<int> signal = signals.Next()) {
      if (absl::Now() - asked_at < kSameSignal) continue;
      asked_at = absl::Now();
      progress.Clear();
      if (asked++ == 0) {
        std::fputs("ending: what is being answered may go on; a second Ctrl-C ends it at once\n",
                   stderr);
      }
      supervised.Signal(*signal);
    }
  }
  PassOn(supervised, progress);
  progress.Clear();
  if (asked == 1) return kExitOk;
  if (asked > 1) return kExitError;
  std::fprintf(stderr, "skein: serving has ended%s, with status %d\n",
               served ? "" : " before it began", *supervised.Ended());
  return *supervised.Ended() == kExitUsage ? kExitUsage : kExitError;
}

absl::StatusOr<int> Run(const ServeFlags& flags) {
  const SignalQueue signals;  // from here on nothing is left behind
  SKEIN_ASSIGN_OR_RETURN(const std::unique_ptr<Folder> folder, Folder::Make());
  SKEIN_ASSIGN_OR_RETURN(const Setup setup, Prepare(flags, folder->path()));
  // Before any thread of gRPC: it forks.
  SKEIN_ASSIGN_OR_RETURN(const std::unique_ptr<Supervised> supervised,
                         Supervised::Start(setup.command, OpenMpiSettings(geteuid() == 0)));
  return RunUntilEnd(setup, *supervised, signals);
}

}  // namespace

void DeclareServe(CLI::App& command, ServeFlags& flags) {
  command
      .add_option(
          "MODEL", flags.model,
          "A model's folder, or a GGUF file; NAME=PATH says what clients call it. --model, which "
          "is the coordinator's, adds others; then --jobs should be as many, or more")
      ->required()
      ->check(NotEmpty());
  command
      .add_option("--np", flags.ranks,
                  "Ranks of each job; default: one for each GPU, or for each NUMA node where there "
                  "are none")
      ->check(InRange(1, kMost));
  command
      .add_option("--jobs", flags.jobs,
                  "Jobs, which fail and are started again one by one: each holds the whole model")
      ->check(InRange(1, kMost))
      ->capture_default_str();
  AddAddress(command, "--http", flags.http, "Where HTTP listens; port 0 takes a free one",
             /*least_port=*/0)
      ->capture_default_str();
  AddAddress(command, "--listen", flags.listen,
             "Where gRPC listens, to which the workers come, too; port 0 takes a free one",
             /*least_port=*/0)
      ->capture_default_str();
  AddMutualTls(command, flags.tls);
  command.add_flag("--verbose", flags.verbose, "Show what all programs log, not warnings alone");
  command.footer(
      "Any other flag is the coordinator's (`coordinator --help`), as in --layout=tp=2 or\n"
      "--context-length=4096; flags behind -- are the workers'. It runs until Ctrl-C or SIGTERM, "
      "which\nlet answers end; a job that dies is started again.\n\n"
      "  skein serve checkpoints/bard\n"
      "  curl http://127.0.0.1:8000/v1/chat/completions --json \\\n"
      "    '{\"messages\": [{\"role\": \"user\", \"content\": \"Good morrow\"}]}'");
}

int Serve(const ServeFlags& flags) {
  const absl::StatusOr<int> code = Run(flags);
  if (code.ok()) return *code;
  std::fprintf(stderr, "skein: %s\n", std::string(code.status().message()).c_str());
  return kExitError;
}

}  // namespace skein::client
