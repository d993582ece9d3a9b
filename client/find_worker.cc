#include "client/find_worker.h"

#include <filesystem>
#include <system_error>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace skein::client {

namespace fs = std::filesystem;

absl::StatusOr<std::string> FindProgram(const std::string& name) {
  std::error_code error;
  const fs::path here = fs::read_symlink("/proc/self/exe", error).parent_path();
  for (const fs::path& candidate : {here / name, here / ".." / name / name}) {
    if (fs::is_regular_file(candidate, error)) return candidate.lexically_normal();
  }
  return absl::NotFoundError(absl::StrCat("no program ", name, " in ", here.string(), ", nor in ",
                                          (here / ".." / name).lexically_normal().string()));
}

absl::StatusOr<std::string> FindWorker(const std::string& named) {
  if (!named.empty()) return named;
  absl::StatusOr<std::string> found = FindProgram("worker");
  if (found.ok()) return found;
  return absl::NotFoundError(
      "no worker program beside this one; build it with `bazel build //worker` or name it with "
      "--worker PATH");
}

}  // namespace skein::client
