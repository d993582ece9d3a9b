#include "client/gpu_health.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/units.h"

namespace skein::client {

std::vector<std::string> DescribeHealth(const topology::Gpu& gpu,
                                        const topology::GpuHealth& health) {
  std::vector<std::string> is = {
      absl::StrCat(FormatBytes(health.free_bytes), " of ", FormatBytes(gpu.memory_bytes), " free")};
  if (health.most_clock_mhz > 0) {
    is.push_back(absl::StrCat(health.clock_mhz, " of ", health.most_clock_mhz, " MHz"));
  }
  if (health.ecc.has_value()) is.emplace_back(*health.ecc ? "ECC on" : "ECC off");
  if (health.nvlinks_up > 0) is.push_back(FormatCount(health.nvlinks_up, "NVLink"));
  if (health.mig) is.emplace_back("cut into slices (MIG)");
  std::vector<std::string> lines = {absl::StrCat(gpu.name, ": ", absl::StrJoin(is, ", "))};
  if (!health.slowed_by.empty()) {
    lines.push_back(absl::StrCat("  warning: slowed by ", absl::StrJoin(health.slowed_by, ", ")));
  }
  if (health.errors_since_boot.value_or(0) > 0) {
    lines.push_back(absl::StrCat("  warning: ", FormatCount(*health.errors_since_boot, "error"),
                                 " of its memory since boot that ECC could not correct"));
  } else if (health.errors_ever.value_or(0) > 0) {
    lines.push_back(absl::StrCat("  ", FormatCount(*health.errors_ever, "error"),
                                 " of its memory before this boot that ECC could not correct"));
  }
  if (health.nvlinks_down > 0) {
    lines.push_back(absl::StrCat("  warning: ", FormatCount(health.nvlinks_down, "NVLink"),
                                 " of it not active"));
  }
  for (const topology::GpuProcess& process : health.processes) {
    lines.push_back(absl::StrCat(
        "  in use by ", process.name.empty() ? "a process" : process.name, " (pid ", process.pid,
        process.bytes > 0 ? absl::StrCat("), which has ", FormatBytes(process.bytes)) : ")"));
  }
  return lines;
}

}  // namespace skein::client
