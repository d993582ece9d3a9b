// The limits that control groups put on a process.
//
// /proc/self/cgroup has a line per hierarchy, `id:controllers:path`: version 1 names controllers
// ("4:memory:/a/b"), version 2 has none ("0::/a/b"). /proc/self/mountinfo tells where a hierarchy
// is mounted and which of its folders is the mount's root: in a container the path may begin with
// that root, or lead to a folder that is not visible. The limits of all folders from the process's
// own up to the mount point hold.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace skein::topology {

struct CgroupLimits {
  std::optional<int64_t> memory_left_bytes;  // unset: no limit
  std::optional<double> cpus;                // quota over period; unset: no limit
};

// `root` is put before every path. Files that are missing or unreadable set no limit.
CgroupLimits ReadCgroupLimits(const std::string& root);

}  // namespace skein::topology
