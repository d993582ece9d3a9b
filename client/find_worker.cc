#include "client/find_worker.h"

#include <filesystem>
#include <system_error>

#include "absl/status/status.h"

namespace skein::client {

namespace fs = std::filesystem;

absl::StatusOr<std::string> FindWorker(const std::string& named) {
  if (!named.empty()) return named;
  std::error_code error;
  const fs::path here = fs::read_symlink("/proc/self/exe", error).parent_path();
  for (const fs::path& candidate : {here / "worker", here / "../worker/worker"}) {
    if (fs::is_regular_file(candidate, error)) return candidate.lexically_normal();
  }
  return absl::NotFoundError(
      "no worker program beside this one; build it with `bazel build //worker` or name it with "
      "--worker PATH");
}

}  // namespace skein::client
