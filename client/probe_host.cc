#include "client/probe_host.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/flags/flags.h"
#include "base/status_macros.h"
#include "base/status_util.h"
#include "client/find_worker.h"
#include "parallel/plan/plan.h"
#include "proto/convert/machines_json.h"
#include "topology/host/detect.h"

namespace skein::client {
namespace {

absl::StatusOr<int32_t> RanksOfThisHost(const std::optional<std::string>& visible_devices) {
  SKEIN_ASSIGN_OR_RETURN(const topology::Host host,
                         topology::DetectHost({.visible_devices = visible_devices}));
  const auto gpus = static_cast<int32_t>(host.interconnect.gpus.size());
  return gpus > 0 ? gpus : std::clamp(host.cores, 1, 2);
}

// What the program says on standard output, once it has ended.
absl::StatusOr<std::string> OutputOf(const std::vector<std::string>& command) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) {
    return absl::ErrnoToStatus(errno, "no pipe for the output of mpirun");
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
    return absl::NotFoundError(absl::StrCat("cannot run ", command[0], ": ", std::strerror(failed),
                                            "; it is Open MPI's, and must be in PATH"));
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
  if (ended < 0) return absl::ErrnoToStatus(errno, "nobody knows how mpirun has ended");
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return output;
  return absl::FailedPreconditionError(absl::StrCat(
      "this host was not measured: mpirun has ended with ",
      WIFEXITED(status) ? absl::StrCat("status ", WEXITSTATUS(status))
                        : absl::StrCat("signal ", WTERMSIG(status)),
      ", see above; `. scripts/env.sh` gives it the settings that the worker is tested with"));
}

}  // namespace

void DeclareProbeFlags(CLI::App& command, ProbeFlags& flags) {
  CLI::Option* const probe = command.add_flag(
      "--probe", flags.probe,
      "Measure this host first, which takes some seconds: what its devices and the ways between "
      "them do, by the code that serves. It takes mpirun, and the settings of scripts/env.sh. "
      "What was measured is kept for jobs of as many ranks on this host alone");
  command
      .add_option("--np", flags.ranks,
                  "Measure with so many ranks; default: one a GPU, or else 2, on cores")
      ->check(InRange(1, plan::kMaxWays))
      ->needs(probe);
  command.add_option("--worker", flags.worker, "The worker program; default: beside this one")
      ->check(NotEmpty())
      ->needs(probe);
}

absl::StatusOr<topology::Topology> ProbeHost(const ProbeFlags& flags,
                                             const std::optional<std::string>& visible_devices) {
  SKEIN_ASSIGN_OR_RETURN(const std::string worker, FindWorker(flags.worker));
  int32_t ranks = flags.ranks.value_or(0);
  if (ranks == 0) {
    SKEIN_ASSIGN_OR_RETURN(ranks, RanksOfThisHost(visible_devices));
  }
  SKEIN_ASSIGN_OR_RETURN(const std::string json,
                         OutputOf({"mpirun", "-np", absl::StrCat(ranks), worker, "probe"}));
  absl::StatusOr<topology::Topology> topology = convert::TopologyFromJson(json);
  if (!topology.ok()) {
    return Annotate(topology.status(), absl::StrCat("what ", worker, " probe printed"));
  }
  return topology;
}

}  // namespace skein::client
