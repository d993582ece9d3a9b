// supervisor: keeps jobs, and a coordinator, up.
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/deadlock_detection.h"
#include "base/flags/flags.h"
#include "base/flags/log_flags.h"
#include "base/flags/mutual_tls_flags.h"
#include "base/log/line_writer.h"
#include "base/log/log.h"
#include "base/log/log_options.h"
#include "base/named_path.h"
#include "base/status_macros.h"
#include "base/tls/mutual_tls.h"
#include "base/version.h"
#include "spdlog/spdlog.h"
#include "supervisor/rpc/job_client.h"
#include "supervisor/scratch.h"
#include "supervisor/supervisor.h"

namespace skein::supervisor {
namespace {

constexpr int kMost = 9999;                              // of jobs, and of ranks
constexpr absl::Duration kLastWords = absl::Seconds(2);  // for a reader of the output that is slow

constexpr const char* kFooter = R"(
What follows -- are the workers' flags. --tls-cert, --tls-key and --tls-ca are told to all programs; those of
a coordinator or of workers that have other files name them among their own flags.

Jobs that end with status 0, as after the coordinator's drain, stay ended; a program that refuses its
flags (status 2) ends all of this. SIGTERM, SIGINT or SIGHUP ends all that was started, by a drain
where the coordinator is one of it; a second one ends it at once. The status is 0 only when all jobs
have ended with 0, and 128 + the signal after a signal.

Open MPI's settings come from scripts/env.sh; scripts/launch.sh takes them and starts this program.

Examples:
  supervisor --model checkpoints/bard --jobs 2 --ranks 4
  supervisor --coordinator head:50051 --ranks 16 --hostfile hosts -- --model-root /local
)";

// As scripts write it, "0.5" is seconds, too.
absl::StatusOr<absl::Duration> ParseSeconds(const std::string& text) {
  double seconds = 0;
  if (absl::SimpleAtod(text, &seconds)) return ParseDuration(text + "s", absl::ZeroDuration());
  return ParseDuration(text, absl::ZeroDuration());
}

void AddSeconds(CLI::App& app, const std::string& name, absl::Duration& value,
                const std::string& help) {
  AddParsed(app, name, value, ParseSeconds, help)
      ->type_name("SECONDS")
      ->default_str(absl::FormatDuration(value));
}

struct Flags {
  std::string bin;
  LogOptions log;
  Options options;
};

void DeclareFlags(CLI::App& app, Flags& flags) {
  Options& options = flags.options;
  app.add_option("--jobs", options.jobs, "So many jobs (an mpirun each)")
      ->check(InRange(1, kMost))
      ->capture_default_str();
  app.add_option("--ranks", options.ranks, "Of so many ranks each")
      ->check(InRange(1, kMost))
      ->capture_default_str();
  AddAddress(app, "--coordinator", options.coordinator, "Where the coordinator listens");
  AddMutualTls(app, options.tls);
  app.add_option(
         "--model", options.model,
         "Keep a coordinator up there, too, which serves this model, a folder or a GGUF file; "
         "NAME=PATH names it")
      ->check(NotEmpty());
  app.add_option("--bin", flags.bin,
                 "Where the programs are, as in bazel-bin or in a package's bin")
      ->check(NotEmpty())
      ->default_str("where this one is");
  AddSeconds(app, "--first-wait", options.restart.first_wait,
             "Before one that died starts again; the wait doubles each time");
  AddSeconds(app, "--longest-wait", options.restart.longest_wait, "Until it is this long");
  AddSeconds(app, "--reset-after", options.restart.reset_after,
             "After so much service the next wait is the first one again");
  AddSeconds(app, "--start-timeout", options.start_timeout,
             "A job whose ranks do not all come to the coordinator, or a coordinator that does not "
             "answer, for so long after its start is ended and started again");
  app.add_flag("--require-start", options.require_start,
               "End all when a program fails before any job has served; default: start it again");
  app.add_option("--mpirun", options.mpirun, "What starts a job's ranks")
      ->check(NotEmpty())
      ->capture_default_str();
  app.add_option("--hostfile", options.hostfile,
                 "Hosts of the ranks, for mpirun (default: this one)")
      ->check(NotEmpty());
  app.add_option("--mpirun-arg", options.mpirun_args,
                 "An argument more for mpirun, as in --mpirun-arg=--bind-to --mpirun-arg=core")
      ->allow_extra_args(false);
  app.add_option("--coordinator-flag", options.coordinator_flags,
                 "A flag more for the coordinator, as in --coordinator-flag=--layout=tp=2,pp=2")
      ->allow_extra_args(false);
  AddLogging(app, flags.log);
}

// As Bazel puts it, bin/worker/worker, or as a package has it, bin/worker.
std::string ProgramIn(const std::string& bin, const std::string& name) {
  std::string packaged = absl::StrCat(bin, "/", name);
  std::error_code ignored;
  if (std::filesystem::is_regular_file(packaged, ignored)) return packaged;
  return absl::StrCat(packaged, "/", name);
}

// What ProgramIn has this program in: its folder in a package, bazel-bin for
// bazel-bin/supervisor/supervisor.
std::string DefaultBin() {
  std::error_code error;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) return ".";
  const std::filesystem::path folder = self.parent_path();
  return (folder.filename() == self.filename() ? folder.parent_path() : folder).string();
}

// A name without a slash would be looked up in PATH.
std::string Absolute(const std::string& path) {
  std::error_code error;
  const auto absolute = std::filesystem::absolute(path, error);
  return error ? path : absolute.lexically_normal().string();
}

absl::Status FindPrograms(Flags& flags) {
  Options& options = flags.options;
  options.worker_program = Absolute(ProgramIn(flags.bin, "worker"));
  options.coordinator_program = Absolute(ProgramIn(flags.bin, "coordinator"));
  std::vector<std::string> needed = {options.worker_program};
  if (!options.model.empty()) needed.push_back(options.coordinator_program);
  for (const std::string& program : needed) {
    if (access(program.c_str(), X_OK) == 0) continue;
    return absl::NotFoundError(absl::StrCat(program, " is not there; build it, or say --bin DIR"));
  }
  // Workers open the coordinator's path, maybe from another folder.
  std::error_code ignored;
  const NamedPath model = ParseNamedPath(options.model);
  if (std::filesystem::exists(model.path, ignored)) {
    options.model.replace(options.model.size() - model.path.size(), std::string::npos,
                          Absolute(model.path));
  }
  if (!options.tls.given()) return absl::OkStatus();
  for (std::string* const file : {&options.tls.certificate, &options.tls.key, &options.tls.ca}) {
    *file = Absolute(*file);
  }
  return absl::OkStatus();
}

// Before any thread: all inherit the blocked signals.
absl::Status TakeOver() {
  // A stream that is closed would be whatever is opened next.
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDWR) != fd) {
      return absl::InternalError("cannot open /dev/null");
    }
  }
  sigset_t taken;
  sigemptyset(&taken);
  sigset_t ignored;
  sigemptyset(&ignored);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGCHLD}) {
    // nohup(1), and shells for what runs in the background, have it ignored. Blocked, it would come
    // all the same.
    struct sigaction before{};
    sigaction(signal, nullptr, &before);
    const bool stays = signal != SIGCHLD && before.sa_handler == SIG_IGN;
    sigaddset(stays ? &ignored : &taken, signal);
  }
  pthread_sigmask(SIG_BLOCK, &taken, nullptr);
  pthread_sigmask(SIG_UNBLOCK, &ignored, nullptr);
  signal(SIGPIPE, SIG_IGN);
  signal(SIGCHLD, SIG_DFL);  // ignored, it would hide how children end
  // Whoever loses its parents becomes a child of this process.
  if (prctl(PR_SET_CHILD_SUBREAPER, 1) != 0) return absl::InternalError("prctl: no subreaper");
  return absl::OkStatus();
}

const char* Variable(const char* name, const char* otherwise) {
  const char* const value = getenv(name);
  return value == nullptr || *value == '\0' ? otherwise : value;
}

absl::StatusOr<int> Run(Flags& flags) {
  SKEIN_RETURN_IF_ERROR(FindPrograms(flags));
  std::optional<MutualTls> tls;
  if (flags.options.tls.given()) {
    SKEIN_ASSIGN_OR_RETURN(tls, LoadMutualTls(flags.options.tls, absl::Now()));
  }
  SKEIN_RETURN_IF_ERROR(TakeOver());
  SKEIN_ASSIGN_OR_RETURN(const std::unique_ptr<Scratch> scratch,
                         Scratch::Make(Absolute(Variable("TMPDIR", "/tmp"))));
  if (getenv("HOME") == nullptr) flags.options.home = scratch->path();  // Open MPI 5 asks for one
  SKEIN_RETURN_IF_ERROR(InitLogging("supervisor", flags.log));          // the first thread
  LineWriter output(STDOUT_FILENO);
  JobClient jobs(flags.options.coordinator, tls);
  const int status = Supervise(flags.options, &jobs, scratch.get(), &output);
  if (const int64_t dropped = output.Close(kLastWords); dropped > 0) {
    spdlog::warn("{} lines of what the programs said could not be written", dropped);
  }
  return status;
}

int Main(int argc, char** argv) {
  StopDeadlockDetection();
  CLI::App app("Keeps jobs, and where it is told to a coordinator, up.");
  app.name("supervisor");
  app.footer(kFooter);
  app.set_version_flag("--version", std::string(kVersion));
  Flags flags;
  flags.bin = DefaultBin();
  DeclareFlags(app, flags);
  int own = 1;  // arguments that are no workers' flags
  while (own < argc && std::string(argv[own]) != "--") ++own;
  flags.options.worker_flags.assign(argv + std::min(own + 1, argc), argv + argc);
  if (const std::optional<int> code = ParseCommandLine(app, own, argv)) return *code;
  const absl::StatusOr<int> status = Run(flags);
  if (status.ok()) return *status;
  std::fprintf(stderr, "supervisor: %s\n", std::string(status.status().message()).c_str());
  return kExitError;
}

}  // namespace
}  // namespace skein::supervisor

int main(int argc, char** argv) { return skein::supervisor::Main(argc, argv); }
