#include "topology/figures/figures_key.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/file.h"
#include "base/version.h"

namespace skein::topology {
namespace {

// Raise it when what is measured, or how, changes.
constexpr int kEdition = 20;

// The first line of a file of the kernel.
std::string FirstLine(const char* path) {
  const std::string text = ReadFileOrEmpty(path);
  return text.substr(0, text.find('\n'));
}

}  // namespace

FiguresOf FiguresOfThisHost(const Host& host, int ranks) {
  const bool on_gpus = !host.interconnect.gpus.empty();
  return {.version = kVersion,
          .edition = kEdition,
          .host = &host,
          .kernel = FirstLine("/proc/sys/kernel/osrelease"),
          .driver = on_gpus ? FirstLine("/proc/driver/nvidia/version") : "",
          .local_ranks = ranks,
          .ranks = ranks};
}

std::string FiguresKey(const FiguresOf& of) {
  const Host& host = *of.host;
  std::string key =
      absl::StrFormat("skein %s, probe %d: %s on %s, %d cores, %s; ranks %d of %d; %s",
                      std::string(of.version), of.edition, host.name, host.cpu, host.cores,
                      of.kernel, of.local_ranks, of.ranks, std::string(of.device_comm));
  const Interconnect& all = host.interconnect;
  for (size_t i = 0; i < all.gpus.size(); ++i) {
    absl::StrAppend(&key, "; ", all.gpus[i].model, " at ", all.gpus[i].bus_id);
    // An NVLink may go down.
    for (size_t j = 0; j < i; ++j) {
      absl::StrAppend(&key, j == 0 ? ": " : " ", ToString(all.connections[i][j]));
    }
  }
  if (!of.driver.empty()) absl::StrAppend(&key, "; ", of.driver);
  std::vector<std::string> hosts = of.hosts;
  std::sort(hosts.begin(), hosts.end());
  hosts.erase(std::unique(hosts.begin(), hosts.end()), hosts.end());
  if (hosts.size() < 2) return key;
  absl::StrAppend(&key, "; hosts ", absl::StrJoin(hosts, " "));
  for (const Nic& nic : of.nics) {
    absl::StrAppend(&key, "; ", nic.name, " ", nic.device, " at ", nic.bus_id, " of ",
                    nic.bytes_per_s, " B/s");
  }
  if (!of.networks.empty()) absl::StrAppend(&key, "; over ", of.networks);
  return key;
}

}  // namespace skein::topology
