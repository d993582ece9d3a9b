#include "client/bench.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "base/flags/flags.h"

namespace skein::client {
namespace {

namespace fs = std::filesystem;

std::string FindWorker() {
  std::error_code error;
  const fs::path here = fs::read_symlink("/proc/self/exe", error).parent_path();
  for (const fs::path& candidate : {here / "worker", here / "../worker/worker"}) {
    if (fs::is_regular_file(candidate, error)) return candidate.lexically_normal();
  }
  return "";
}

}  // namespace

int Bench(const std::string& worker, const std::vector<std::string>& arguments) {
  const std::string path = worker.empty() ? FindWorker() : worker;
  if (path.empty()) {
    std::fprintf(stderr,
                 "skein: no worker program beside this one; build it with `bazel build //worker` "
                 "or name it with --worker PATH\n");
    return kExitError;
  }
  std::vector<char*> argv = {const_cast<char*>(path.c_str()), const_cast<char*>("bench")};
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  execv(path.c_str(), argv.data());
  std::fprintf(stderr, "skein: cannot run %s: %s\n", path.c_str(), std::strerror(errno));
  return kExitError;
}

}  // namespace skein::client
