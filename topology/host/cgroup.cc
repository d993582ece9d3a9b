#include "topology/host/cgroup.h"

#include <sys/stat.h>

#include <algorithm>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "base/file.h"

namespace skein::topology {
namespace {

using Fields = std::vector<std::string>;

// The number in a file that holds nothing else; unset for "max" and what is not a number.
std::optional<int64_t> ReadNumber(const std::string& path) {
  int64_t value = 0;
  if (!absl::SimpleAtoi(ReadFileOrEmpty(path), &value)) return std::nullopt;
  return value;
}

// The value of a line `key value`, 0 when there is none.
int64_t ReadKeyed(const std::string& path, const std::string& key) {
  for (const std::string& line : Fields(absl::StrSplit(ReadFileOrEmpty(path), '\n'))) {
    const Fields words = absl::StrSplit(line, ' ');
    int64_t value = 0;
    if (words.size() == 2 && words[0] == key && absl::SimpleAtoi(words[1], &value)) return value;
  }
  return 0;
}

// Names of a version's files.
struct MemoryFiles {
  const char* limit;
  const char* usage;
  const char* inactive_file;  // in memory.stat
  const char* active_file;
};
constexpr MemoryFiles kMemoryV1 = {"/memory.limit_in_bytes", "/memory.usage_in_bytes",
                                   "total_inactive_file", "total_active_file"};
constexpr MemoryFiles kMemoryV2 = {"/memory.max", "/memory.current", "inactive_file",
                                   "active_file"};

std::optional<int64_t> MemoryLeft(const std::string& folder, const MemoryFiles& files) {
  const std::optional<int64_t> limit = ReadNumber(folder + files.limit);
  const std::optional<int64_t> usage = ReadNumber(folder + files.usage);
  if (!limit || !usage) return std::nullopt;
  const std::string stat = folder + "/memory.stat";
  const int64_t cache = ReadKeyed(stat, files.inactive_file) + ReadKeyed(stat, files.active_file);
  return std::max<int64_t>(0, *limit - std::max<int64_t>(0, *usage - cache));
}

std::optional<double> Cpus(std::optional<int64_t> quota, std::optional<int64_t> period) {
  if (!quota || !period || *quota <= 0 || *period <= 0) return std::nullopt;  // -1: no limit
  return static_cast<double>(*quota) / static_cast<double>(*period);
}

std::optional<double> CpusV1(const std::string& folder) {
  return Cpus(ReadNumber(folder + "/cpu.cfs_quota_us"), ReadNumber(folder + "/cpu.cfs_period_us"));
}

// cpu.max holds "quota period" or "max period".
std::optional<double> CpusV2(const std::string& folder) {
  const Fields words = absl::StrSplit(ReadFileOrEmpty(folder + "/cpu.max"), absl::ByAnyChar(" \n"));
  int64_t quota = 0, period = 0;
  if (words.size() < 2 || !absl::SimpleAtoi(words[0], &quota) ||
      !absl::SimpleAtoi(words[1], &period)) {
    return std::nullopt;
  }
  return Cpus(quota, period);
}

template <typename T>
void Lower(std::optional<T>& least, const std::optional<T>& value) {
  if (value && (!least || *value < *least)) least = value;
}

bool Contains(const std::string& list, const std::string& item) {
  const Fields items = absl::StrSplit(list, ',');
  return std::find(items.begin(), items.end(), item) != items.end();
}

// Where a hierarchy is mounted, and which of its folders is seen there.
struct Mount {
  std::string point;
  std::string root;
};

// `controller` is empty for version 2. mountinfo: "id parent major:minor root point options
// [optional ...] - type source super-options".
std::optional<Mount> FindMount(const std::string& mountinfo, const std::string& controller) {
  for (const std::string& line : Fields(absl::StrSplit(mountinfo, '\n'))) {
    const Fields halves = absl::StrSplit(line, " - ");
    if (halves.size() != 2) continue;
    const Fields left = absl::StrSplit(halves[0], ' ');
    const Fields right = absl::StrSplit(halves[1], ' ');
    if (left.size() < 5 || right.size() < 3) continue;
    const bool found = controller.empty() ? right[0] == "cgroup2"
                                          : right[0] == "cgroup" && Contains(right[2], controller);
    if (found) return Mount{left[4], left[3]};
  }
  return std::nullopt;
}

// The process's path in the hierarchy.
std::optional<std::string> FindPath(const std::string& cgroup, const std::string& controller) {
  for (const std::string& line : Fields(absl::StrSplit(cgroup, '\n'))) {
    const Fields fields = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (fields.size() != 3) continue;
    if (controller.empty() ? fields[1].empty() : Contains(fields[1], controller)) return fields[2];
  }
  return std::nullopt;
}

bool IsFolder(const std::string& path) {
  struct stat info;
  return stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

// The process's folder and those above it, up to the mount point.
class Hierarchy {
 public:
  explicit Hierarchy(const std::string& root)
      : root_(root),
        cgroup_(ReadFileOrEmpty(root + "/proc/self/cgroup")),
        mountinfo_(ReadFileOrEmpty(root + "/proc/self/mountinfo")) {}

  std::vector<std::string> Folders(const std::string& controller) const {
    const std::optional<std::string> path = FindPath(cgroup_, controller);
    const std::optional<Mount> mount = FindMount(mountinfo_, controller);
    if (!path || !mount) return {};
    const std::string point = root_ + mount->point;
    std::string below = *path;
    if (mount->root != "/" && absl::StartsWith(below, mount->root)) {
      below.erase(0, mount->root.size());
    }
    if (!IsFolder(point + below)) below.clear();  // the mount point is all that can be seen
    while (!below.empty() && below.back() == '/') below.pop_back();
    std::vector<std::string> folders = {point + below};
    while (!below.empty()) {
      below.erase(below.rfind('/'));
      folders.push_back(point + below);
    }
    return folders;
  }

 private:
  std::string root_;
  std::string cgroup_;
  std::string mountinfo_;
};

}  // namespace

CgroupLimits ReadCgroupLimits(const std::string& root) {
  const Hierarchy hierarchy(root);
  CgroupLimits limits;
  for (const std::string& folder : hierarchy.Folders("memory")) {
    Lower(limits.memory_left_bytes, MemoryLeft(folder, kMemoryV1));
  }
  for (const std::string& folder : hierarchy.Folders("cpu")) Lower(limits.cpus, CpusV1(folder));
  for (const std::string& folder : hierarchy.Folders("")) {
    Lower(limits.memory_left_bytes, MemoryLeft(folder, kMemoryV2));
    Lower(limits.cpus, CpusV2(folder));
  }
  return limits;
}

}  // namespace skein::topology
