#include "supervisor/scratch.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/processes.h"
#include "base/status_util.h"
#include "supervisor/child.h"

namespace skein::supervisor {
namespace {

// Killed processes are gone in milliseconds; one that a dead disk holds is not waited for.
constexpr absl::Duration kPatience = absl::Seconds(10);
constexpr absl::Duration kLook = absl::Milliseconds(5);

[[noreturn]] void Guard(const std::string& path, int lifeline) {
  setsid();  // out of reach of a terminal's and a group's signals
  sigset_t all;
  sigfillset(&all);
  sigprocmask(SIG_SETMASK, &all, nullptr);
  // Nobody who waits for the end of the supervisor's output waits for this process.
  const int nothing = open("/dev/null", O_RDWR);
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) dup2(nothing, fd);
  dup2(lifeline, STDERR_FILENO + 1);
  close_range(STDERR_FILENO + 2, ~0U, 0);
  char byte = 0;
  while (read(STDERR_FILENO + 1, &byte, 1) < 0 && errno == EINTR) {
  }
  const std::string mark = absl::StrCat(kMarkVariable, "=", path, "/");
  const absl::Time deadline = absl::Now() + kPatience;
  while (!KillStarted(0, mark).empty() && absl::Now() < deadline) absl::SleepFor(kLook);
  std::error_code ignored;
  std::filesystem::remove_all(path, ignored);
  _exit(0);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Scratch>> Scratch::Make(const std::string& parent) {
  // Short: Open MPI puts Unix sockets below it, whose names have at most 107 characters.
  std::string path = absl::StrCat(parent, "/skein.XXXXXX");
  if (mkdtemp(path.data()) == nullptr) {
    return ErrnoStatus(errno, absl::StrCat("cannot make a folder in ", parent, " (TMPDIR)"));
  }
  std::array<int, 2> ends{};
  pid_t guard = -1;
  if (pipe2(ends.data(), O_CLOEXEC) == 0) {
    guard = fork();
    if (guard == 0) {
      close(ends[1]);
      Guard(path, ends[0]);
    }
    close(ends[0]);
  }
  if (guard < 0) {
    const int error = errno;
    rmdir(path.c_str());
    return ErrnoStatus(error, "cannot start the guard of the supervisor's processes");
  }
  return std::unique_ptr<Scratch>(new Scratch(path, guard, ends[1]));
}

Scratch::~Scratch() {
  close(lifeline_);
  while (waitpid(guard_, nullptr, 0) < 0 && errno == EINTR) {
  }
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);  // the guard may have been killed
}

absl::StatusOr<std::string> Scratch::MakeFolder() {
  std::string path = absl::StrCat(path_, "/XXXXXX");
  if (mkdtemp(path.data()) != nullptr) return path;
  // Systems clean /tmp of what is old.
  if (errno == ENOENT && mkdir(path_.c_str(), S_IRWXU) == 0) {
    path = absl::StrCat(path_, "/XXXXXX");
    if (mkdtemp(path.data()) != nullptr) return path;
  }
  return ErrnoStatus(errno, absl::StrCat("cannot make a folder in ", path_));
}

}  // namespace skein::supervisor
