#include "client/worker_command.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "absl/status/statusor.h"
#include "base/flags/flags.h"
#include "client/find_worker.h"

namespace skein::client {

int WorkerCommand(const std::string& worker, const std::string& command,
                  const std::vector<std::string>& arguments) {
  const absl::StatusOr<std::string> path = FindWorker(worker);
  if (!path.ok()) {
    std::fprintf(stderr, "skein: %s\n", std::string(path.status().message()).c_str());
    return kExitError;
  }
  std::vector<char*> argv = {const_cast<char*>(path->c_str()), const_cast<char*>(command.c_str())};
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  execv(path->c_str(), argv.data());
  std::fprintf(stderr, "skein: cannot run %s: %s\n", path->c_str(), std::strerror(errno));
  return kExitError;
}

}  // namespace skein::client
