#include "client/run_program.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace skein::client {

absl::StatusOr<std::string> OutputOf(const std::vector<std::string>& command) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("no pipe for the output of ", command[0]));
  }
  std::vector<char*> argv;
  for (const std::string& argument : command) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  // mpirun would read what the shell is to read next.
  posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&files, ends[1], STDOUT_FILENO);
  pid_t pid = 0;
  const int failed = posix_spawnp(&pid, argv[0], &files, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&files);
  close(ends[1]);
  if (failed != 0) {
    close(ends[0]);
    return absl::NotFoundError(
        absl::StrCat("cannot run ", command[0], ": ", std::strerror(failed)));
  }
  std::string output;
  char buffer[4096];
  ssize_t count = 0;
  while ((count = read(ends[0], buffer, sizeof(buffer))) > 0 || (count < 0 && errno == EINTR)) {
    if (count > 0) output.append(buffer, count);
  }
  close(ends[0]);
  int status = 0;
  pid_t ended = 0;
  while ((ended = waitpid(pid, &status, 0)) < 0 && errno == EINTR) {
  }
  if (ended < 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("nobody knows how ", command[0], " has ended"));
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return output;
  return absl::FailedPreconditionError(
      absl::StrCat(command[0], " has ended with ",
                   WIFEXITED(status) ? absl::StrCat("status ", WEXITSTATUS(status))
                                     : absl::StrCat("signal ", WTERMSIG(status))));
}

}  // namespace skein::client
