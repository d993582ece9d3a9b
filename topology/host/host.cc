#include "topology/host/host.h"

#include <errno.h>
#include <unistd.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "base/file.h"
#include "base/status_macros.h"
#include "base/status_util.h"
#include "topology/host/cgroup.h"
#include "topology/host/cores.h"

namespace skein::topology {
namespace {

absl::StatusOr<std::string> HostName() {
  char name[256] = {};  // HOST_NAME_MAX is 64 on Linux
  if (gethostname(name, sizeof(name) - 1) != 0) return ErrnoStatus(errno, "gethostname");
  if (name[0] == '\0') return absl::FailedPreconditionError("the host has no name: set one");
  return std::string(name);
}

}  // namespace

absl::StatusOr<Node> DescribeHost(const HostOptions& options) {
  Node node;
  SKEIN_ASSIGN_OR_RETURN(node.host, HostName());
  if (options.affinity_cores) {
    node.cores = *options.affinity_cores;
  } else {
    SKEIN_ASSIGN_OR_RETURN(node.cores, AffinityCores());
  }
  SKEIN_ASSIGN_OR_RETURN(node.memory_bytes, FreeMemory(options));
  const CgroupLimits limits = ReadCgroupLimits(options.root);
  if (limits.cpus && *limits.cpus < node.cores) {
    node.cores = std::max(1, static_cast<int32_t>(*limits.cpus));
  }
  if (limits.memory_left_bytes) {
    node.memory_bytes = std::min(node.memory_bytes, *limits.memory_left_bytes);
  }
  return node;
}

// /proc/meminfo has lines "MemAvailable:   21758876 kB".
absl::StatusOr<int64_t> FreeMemory(const HostOptions& options) {
  const std::string path = options.root + "/proc/meminfo";
  const std::vector<std::string> lines = absl::StrSplit(ReadFileOrEmpty(path), '\n');
  for (const std::string& line : lines) {
    const std::vector<std::string> words = absl::StrSplit(line, ' ', absl::SkipEmpty());
    int64_t kib = 0;
    if (words.size() == 3 && words[0] == "MemAvailable:" && absl::SimpleAtoi(words[1], &kib) &&
        kib >= 0 && kib <= std::numeric_limits<int64_t>::max() / 1024) {
      return kib * 1024;
    }
  }
  return absl::FailedPreconditionError(
      absl::StrCat(path, " has no line MemAvailable; Linux 3.14 or newer writes one"));
}

Device DescribeCpu(const HostOptions& options) {
  const std::string text = ReadFileOrEmpty(options.root + "/proc/cpuinfo");
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    if (!absl::ConsumePrefix(&line, "model name")) continue;
    const size_t colon = line.find(':');
    if (colon == absl::string_view::npos) continue;
    const absl::string_view name = absl::StripAsciiWhitespace(line.substr(colon + 1));
    if (!name.empty()) return {.kind = DeviceKind::kCpu, .name = std::string(name)};
  }
  return {.kind = DeviceKind::kCpu, .name = "CPU"};
}

}  // namespace skein::topology
