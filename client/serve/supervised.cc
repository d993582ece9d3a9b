#include "client/serve/supervised.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace skein::client {
namespace {

std::vector<char*> Pointers(const std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (const std::string& text : texts) pointers.push_back(const_cast<char*>(text.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

std::vector<std::string> Environment(const std::vector<std::pair<std::string, std::string>>& more) {
  std::vector<std::string> all;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    bool replaced = false;
    for (const auto& [name, value] : more) replaced |= text.rfind(name + "=", 0) == 0;
    if (!replaced) all.push_back(text);
  }
  for (const auto& [name, value] : more) all.push_back(absl::StrCat(name, "=", value));
  return all;
}

// In the child: only what is safe between fork and exec.
[[noreturn]] void Become(char* const* argv, char* const* environment, int output, pid_t parent) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != parent) _exit(1);  // the parent was gone before the line above
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  const int null = open("/dev/null", O_RDONLY);
  dup2(null, STDIN_FILENO);
  dup2(output, STDOUT_FILENO);
  dup2(output, STDERR_FILENO);
  execve(argv[0], argv, environment);
  constexpr char kFailed[] = "cannot run the supervisor\n";
  [[maybe_unused]] const ssize_t said = write(STDERR_FILENO, kFailed, sizeof(kFailed) - 1);
  _exit(127);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Supervised>> Supervised::Start(
    const std::vector<std::string>& argv,
    const std::vector<std::pair<std::string, std::string>>& environment) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return absl::ErrnoToStatus(errno, "no pipe");
  const std::vector<char*> arguments = Pointers(argv);
  const std::vector<std::string> variables = Environment(environment);
  const std::vector<char*> entries = Pointers(variables);
  signal(SIGCHLD, SIG_DFL);  // ignored, as it may be inherited, it would hide how children end
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid == 0) Become(arguments.data(), entries.data(), ends[1], parent);
  const int error = errno;
  close(ends[1]);
  if (pid < 0) {
    close(ends[0]);
    return absl::ErrnoToStatus(error, "cannot start the supervisor");
  }
  setpgid(pid, pid);  // here, too, before anybody signals the group
  fcntl(ends[0], F_SETFL, O_NONBLOCK);
  return std::unique_ptr<Supervised>(new Supervised(pid, ends[0]));
}

Supervised::~Supervised() {
  if (!Ended().has_value()) {
    Signal(SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  if (output_ >= 0) close(output_);
}

std::vector<std::string> Supervised::ReadLines() {
  char buffer[16384];
  ssize_t count = 0;
  while (output_ >= 0 && (count = read(output_, buffer, sizeof(buffer))) > 0) {
    partial_.append(buffer, count);
  }
  if (output_ >= 0 && (count == 0 || (errno != EAGAIN && errno != EINTR))) {
    close(std::exchange(output_, -1));
    if (!partial_.empty()) partial_ += '\n';
  }
  std::vector<std::string> lines = absl::StrSplit(partial_, '\n');
  partial_ = lines.back();
  lines.pop_back();
  return lines;
}

void Supervised::Signal(int signal) const {
  if (!status_.has_value()) kill(pid_, signal);
}

std::optional<int> Supervised::Ended() {
  int status = 0;
  if (!status_.has_value() && waitpid(pid_, &status, WNOHANG) == pid_) {
    status_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  return status_;
}

}  // namespace skein::client
