#include "parallel/comm/mpi/shared_segments.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <set>

#include "base/file.h"
#include "base/status_util.h"

namespace skein::comm {
namespace {

bool IsSegment(std::string_view path) {
  const std::string_view file = path.substr(path.rfind('/') + 1);
  return file.starts_with("vader_segment.") || file.starts_with("sm_segment.");
}

}  // namespace

std::vector<std::string> SegmentsOfRank(std::string_view maps, int rank) {
  const std::string suffix = "." + std::to_string(rank);
  std::set<std::string> paths;
  while (!maps.empty()) {
    const std::string_view line = maps.substr(0, maps.find('\n'));
    maps.remove_prefix(std::min(line.size() + 1, maps.size()));
    const size_t slash = line.find('/');  // only the path, the last column, has any
    if (slash == std::string_view::npos) continue;
    const std::string_view path = line.substr(slash);  // " (deleted)" follows that of such a file
    if (IsSegment(path) && path.ends_with(suffix)) paths.emplace(path);
  }
  return {paths.begin(), paths.end()};
}

absl::StatusOr<std::vector<std::string>> UnlinkSegments(int rank) {
  std::vector<std::string> paths = SegmentsOfRank(ReadFileOrEmpty("/proc/self/maps"), rank);
  for (const std::string& path : paths) {
    if (unlink(path.c_str()) != 0) return ErrnoStatus(errno, "unlink " + path);
  }
  return paths;
}

void RestoreSegmentNames(const std::vector<std::string>& paths) {
  for (const std::string& path : paths) {
    const int file = open(path.c_str(), O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (file >= 0) close(file);
  }
}

}  // namespace skein::comm
