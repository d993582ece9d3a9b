#include "parallel/comm/mpi/shared_segments.h"

#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <set>
#include <sstream>

#include "base/status_util.h"

namespace skein::comm {
namespace {

bool IsSegment(std::string_view path) {
  const std::string_view file = path.substr(path.rfind('/') + 1);
  return file.starts_with("vader_segment.") || file.starts_with("sm_segment.");
}

}  // namespace

std::vector<std::string> SegmentsInMaps(std::string_view maps) {
  constexpr std::string_view kDeleted = " (deleted)";
  std::set<std::string> paths;
  while (!maps.empty()) {
    const std::string_view line = maps.substr(0, maps.find('\n'));
    maps.remove_prefix(std::min(line.size() + 1, maps.size()));
    const size_t slash = line.find('/');  // the path is the last column and the only one with one
    if (slash == std::string_view::npos || line.ends_with(kDeleted)) continue;
    if (IsSegment(line.substr(slash))) paths.emplace(line.substr(slash));
  }
  return {paths.begin(), paths.end()};
}

absl::Status UnlinkSharedSegments() {
  std::ostringstream maps;
  maps << std::ifstream("/proc/self/maps").rdbuf();
  for (const std::string& path : SegmentsInMaps(maps.str())) {
    // Another rank of the host may have been faster.
    if (unlink(path.c_str()) != 0 && errno != ENOENT) return ErrnoStatus(errno, "unlink " + path);
  }
  return absl::OkStatus();
}

}  // namespace skein::comm
