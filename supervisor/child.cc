#include "supervisor/child.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/processes.h"
#include "base/status_macros.h"
#include "base/status_util.h"

namespace skein::supervisor {
namespace {

struct Pipe {
  int read = -1;
  int write = -1;
};

absl::StatusOr<Pipe> MakePipe() {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) return ErrnoStatus(errno, "pipe2");
  return Pipe{ends[0], ends[1]};
}

// As execvp finds it; it may not be called between fork and exec.
absl::StatusOr<std::string> FindProgram(const std::string& name) {
  if (name.find('/') != std::string::npos) return name;
  const char* const path = getenv("PATH");
  for (const std::string& folder :
       std::vector<std::string>(absl::StrSplit(path == nullptr ? "/usr/bin" : path, ':'))) {
    std::string candidate = absl::StrCat(folder.empty() ? "./" : folder + "/", name);
    if (access(candidate.c_str(), X_OK) == 0) return candidate;
  }
  return absl::NotFoundError(
      absl::StrCat(name, " is in no folder of PATH; install it, or name it"));
}

std::vector<std::string> Environment(const Child::Options& options) {
  auto variables = options.environment;
  variables.emplace_back(kMarkVariable, options.mark);
  std::vector<std::string> environment;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view name = std::string_view(*entry).substr(0, strcspn(*entry, "="));
    bool replaced = false;
    for (const auto& variable : variables) replaced = replaced || variable.first == name;
    if (!replaced) environment.emplace_back(*entry);
  }
  for (const auto& [name, value] : variables) {
    environment.push_back(absl::StrCat(name, "=", value));
  }
  return environment;
}

std::vector<char*> Pointers(const std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  for (const std::string& text : strings) pointers.push_back(const_cast<char*>(text.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

// Between fork and exec, where other threads may have held any lock: system calls only.
[[noreturn]] void Execute(const char* program, char** argv, char** environment, pid_t parent,
                          int output, int failure) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(127);  // it died before the line above
  // Ignored and blocked signals would stay so.
  struct sigaction by_default = {};
  by_default.sa_handler = SIG_DFL;
  for (int signal = 1; signal < NSIG; ++signal) sigaction(signal, &by_default, nullptr);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  const int nothing = open("/dev/null", O_RDONLY);
  dup2(nothing, STDIN_FILENO);
  dup2(output, STDOUT_FILENO);
  dup2(output, STDERR_FILENO);
  close_range(STDERR_FILENO + 1, ~0U, CLOSE_RANGE_CLOEXEC);
  execve(program, argv, environment);
  const int error = errno;
  [[maybe_unused]] const ssize_t told = write(failure, &error, sizeof(error));
  _exit(127);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Child>> Child::Start(const Options& options) {
  SKEIN_ASSIGN_OR_RETURN(const std::string program, FindProgram(options.argv[0]));
  const std::vector<std::string> environment = Environment(options);
  const std::vector<char*> argv = Pointers(options.argv);
  const std::vector<char*> envp = Pointers(environment);
  SKEIN_ASSIGN_OR_RETURN(const Pipe output, MakePipe());
  absl::StatusOr<Pipe> failure = MakePipe();
  const pid_t parent = getpid();
  const pid_t pid = failure.ok() ? fork() : -1;
  if (pid == 0) {
    Execute(program.c_str(), const_cast<char**>(argv.data()), const_cast<char**>(envp.data()),
            parent, output.write, failure->write);
  }
  const int fork_error = errno;
  close(output.write);
  if (pid < 0) {
    close(output.read);
    if (!failure.ok()) return failure.status();
    close(failure->read);
    close(failure->write);
    return ErrnoStatus(fork_error, "fork");
  }
  setpgid(pid, pid);  // whoever of both comes first
  close(failure->write);
  // Ends with exec, or tells why there was none.
  int error = 0;
  ssize_t told = 0;
  while ((told = read(failure->read, &error, sizeof(error))) < 0 && errno == EINTR) {
  }
  close(failure->read);
  if (told > 0) {
    close(output.read);
    waitpid(pid, nullptr, 0);
    return ErrnoStatus(error, absl::StrCat("cannot execute ", program));
  }
  fcntl(output.read, F_SETFL, O_NONBLOCK);
  return std::unique_ptr<Child>(
      new Child(pid, output.read, absl::StrCat(kMarkVariable, "=", options.mark)));
}

Child::Child(pid_t pid, int output, std::string mark)
    : pid_(pid), output_(output), mark_(std::move(mark)) {}

Child::~Child() {
  Kill();
  if (!end_) waitpid(pid_, nullptr, 0);
  close(output_);
}

void Child::Terminate() const {
  if (end_) return;
  kill(-pid_, SIGTERM);
  kill(-pid_, SIGCONT);
}

void Child::Kill() const {
  KillStarted(Root(), mark_);  // first: descent is lost with the parents
  if (!end_) kill(-pid_, SIGKILL);
}

bool Child::AnythingLeft() const { return !FindStarted(Root(), mark_).empty(); }

}  // namespace skein::supervisor
