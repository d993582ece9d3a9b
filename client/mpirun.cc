#include "client/mpirun.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace skein::client {
namespace {

// All that comes until the other end is closed.
absl::StatusOr<std::string> ReadAll(int from) {
  std::string output;
  char buffer[4096];
  while (true) {
    const ssize_t count = read(from, buffer, sizeof(buffer));
    if (count == 0) return output;
    if (count > 0) output.append(buffer, count);
    if (count < 0 && errno != EINTR) return absl::ErrnoToStatus(errno, "the output of mpirun");
  }
}

}  // namespace

std::vector<std::string> RanksOf(int32_t ranks, std::string_view more,
                                 const std::vector<std::string>& command) {
  std::vector<std::string> arguments =
      absl::StrSplit(absl::string_view(more.data(), more.size()), ' ', absl::SkipEmpty());
  arguments.insert(arguments.end(), {"-np", absl::StrCat(ranks)});
  arguments.insert(arguments.end(), command.begin(), command.end());
  return arguments;
}

absl::StatusOr<std::string> OutputOfMpirun(const std::vector<std::string>& arguments) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) {
    return absl::ErrnoToStatus(errno, "no pipe for the output of mpirun");
  }
  char name[] = "mpirun";
  std::vector<char*> argv = {name};
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  // mpirun would read what the shell is to read next.
  posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&files, ends[1], STDOUT_FILENO);
  pid_t pid = 0;
  const int failed = posix_spawnp(&pid, name, &files, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&files);
  close(ends[1]);
  if (failed != 0) {
    close(ends[0]);
    return absl::ErrnoToStatus(failed, "cannot run mpirun; it is Open MPI's, and must be in PATH");
  }
  absl::StatusOr<std::string> output = ReadAll(ends[0]);
  close(ends[0]);
  int status = 0;
  pid_t ended = 0;
  while ((ended = waitpid(pid, &status, 0)) < 0 && errno == EINTR) {
  }
  if (ended < 0) return absl::ErrnoToStatus(errno, "nobody knows how mpirun has ended");
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return output;
  return absl::FailedPreconditionError(absl::StrCat(
      "mpirun has ended with ",
      WIFEXITED(status) ? absl::StrCat("status ", WEXITSTATUS(status))
                        : absl::StrCat("signal ", WTERMSIG(status)),
      ", see above; `. scripts/env.sh` gives it the settings that the worker is tested with"));
}

}  // namespace skein::client
