#include "topology/host/near_cpus.h"

#include <errno.h>
#include <sched.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <system_error>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "base/status_util.h"

namespace skein::topology {
namespace {

constexpr int kMaxCpus = CPU_SETSIZE;

absl::Status BindTo(const cpu_set_t& set) {
  absl::Status own;
  std::error_code unreadable;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task", unreadable)) {
    int thread = 0;
    if (!absl::SimpleAtoi(task.path().filename().string(), &thread)) continue;
    // One that has ended meanwhile needs none.
    if (sched_setaffinity(thread, sizeof(set), &set) != 0 && errno != ESRCH) {
      own = ErrnoStatus(errno, "sched_setaffinity");
    }
  }
  return own;
}

}  // namespace

Cpus CpusNear(std::string_view pci_address, const std::string& root) {
  const std::string address =
      absl::AsciiStrToLower(absl::string_view(pci_address.data(), pci_address.size()));
  if (address.empty() || address.find('/') != std::string::npos) return {};
  return ParseCpus(
      ReadFileOrEmpty(absl::StrCat(root, "/sys/bus/pci/devices/", address, "/local_cpulist")));
}

Binding ChooseBinding(const Cpus& allowed, const Cpus& near, std::string_view device) {
  const std::string name(device);
  if (near.empty()) {
    return {.says = absl::StrCat("nothing tells which processors are near ", name,
                                 ": threads run on any")};
  }
  Cpus both;
  std::set_intersection(allowed.begin(), allowed.end(), near.begin(), near.end(),
                        std::back_inserter(both));
  if (both == allowed) return {};
  if (both.empty()) {
    return {.says = absl::StrCat("this rank is bound to processors ", FormatCpus(allowed),
                                 ", all of them far from ", name, ", which is near ",
                                 FormatCpus(near), ": start it with --bind-to none"),
            .warns = true};
  }
  return {
      .cpus = both,
      .says = absl::StrCat("threads are bound to processors ", FormatCpus(both), ", near ", name)};
}

absl::StatusOr<Cpus> AllowedCpus() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return ErrnoStatus(errno, "sched_getaffinity");
  Cpus cpus;
  for (int cpu = 0; cpu < kMaxCpus; ++cpu) {
    if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
  }
  return cpus;
}

absl::Status BindThreads(const Cpus& cpus) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int cpu : cpus) CPU_SET(cpu, &set);
  return BindTo(set);
}

absl::Status UnbindThreads() {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (int cpu = 0; cpu < kMaxCpus; ++cpu) CPU_SET(cpu, &set);
  return BindTo(set);
}

}  // namespace skein::topology
