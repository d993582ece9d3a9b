#include "tests/cluster/process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string_view>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/file.h"
#include "gtest/gtest.h"

namespace skein::testing {
namespace {

constexpr absl::Duration kPoll = absl::Milliseconds(10);

}  // namespace

Process::Process(const Options& options) {
  static std::atomic<int> count{0};
  log_path_ = absl::StrCat(::testing::TempDir(), "/", options.name, ".", count++, ".log");
  std::vector<std::string> environment;
  for (const auto& [name, value] : options.environment) environment.push_back(name + "=" + value);
  for (char** entry = environ; *entry != nullptr; ++entry) {
    // Programs and shells differ in which of two entries counts.
    const std::string_view name = std::string_view(*entry).substr(0, strcspn(*entry, "="));
    const bool replaced = std::any_of(options.environment.begin(), options.environment.end(),
                                      [&](const auto& variable) { return variable.first == name; });
    if (!replaced) environment.emplace_back(*entry);
  }
  std::vector<char*> argv, envp;
  for (const std::string& arg : options.argv) argv.push_back(const_cast<char*>(arg.c_str()));
  for (const std::string& entry : environment) envp.push_back(const_cast<char*>(entry.c_str()));
  argv.push_back(nullptr);
  envp.push_back(nullptr);

  pid_ = fork();
  if (pid_ == 0) {
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);  // a test that crashes leaves nothing behind
    const int log = open(log_path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND, 0600);
    dup2(log, STDOUT_FILENO);
    dup2(log, STDERR_FILENO);
    close(STDIN_FILENO);
    open("/dev/null", O_RDONLY);
    execvpe(argv[0], argv.data(), envp.data());
    dprintf(STDERR_FILENO, "cannot execute %s\n", argv[0]);
    _exit(127);
  }
  if (pid_ < 0) std::abort();
  setpgid(pid_, pid_);
}

Process::~Process() {
  kill(-pid_, SIGKILL);
  if (!status_) waitpid(pid_, nullptr, 0);
  if (::testing::Test::HasFailure()) {
    std::fprintf(stderr, "--- %s\n%s\n", log_path_.c_str(), Output().c_str());
  }
}

void Process::Signal(int signal) const { kill(pid_, signal); }

std::optional<int> Process::Wait(absl::Duration timeout) {
  const absl::Time deadline = absl::Now() + timeout;
  while (!status_) {
    int status = 0;
    if (waitpid(pid_, &status, WNOHANG) == pid_) {
      status_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    } else if (absl::Now() >= deadline) {
      return std::nullopt;
    } else {
      absl::SleepFor(kPoll);
    }
  }
  return status_;
}

std::string Process::Output() const {
  constexpr int64_t kMaxBytes = 1 << 30;  // more than any test's programs say
  return ReadFile(log_path_, kMaxBytes).value_or("");
}

bool Process::WaitForOutput(const std::string& text, absl::Duration timeout) const {
  const absl::Time deadline = absl::Now() + timeout;
  while (!absl::StrContains(Output(), text)) {
    if (absl::Now() >= deadline) return false;
    absl::SleepFor(kPoll);
  }
  return true;
}

bool IsAlive(pid_t pid) {
  std::ifstream file(absl::StrCat("/proc/", pid, "/stat"));
  std::string line;
  if (!std::getline(file, line)) return false;
  const size_t name_end = line.rfind(')');
  return name_end != std::string::npos && line.size() > name_end + 2 && line[name_end + 2] != 'Z';
}

}  // namespace skein::testing
