#include "topology/figures/figures.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "topology/has_rates.h"
#include "topology/pci_address.h"

namespace skein::topology {
namespace {

const Host& HostOf(const Topology& given, const std::string& name) {
  const auto named = std::find_if(given.hosts.begin(), given.hosts.end(),
                                  [&](const Host& host) { return host.name == name; });
  return named == given.hosts.end() ? given.hosts.front() : *named;
}

const Gpu* GpuLike(const std::vector<Gpu>& given, const Gpu& mine) {
  const auto same = [&](const Gpu& gpu) {
    return gpu.model == mine.model && PciAddress(gpu.bus_id) == PciAddress(mine.bus_id);
  };
  auto found = std::find_if(given.begin(), given.end(), same);
  if (found == given.end()) {
    found = std::find_if(given.begin(), given.end(),
                         [&](const Gpu& gpu) { return gpu.model == mine.model; });
  }
  return found == given.end() || !HasRates(found->rates) ? nullptr : &*found;
}

}  // namespace

absl::Status TakeFigures(const Topology& given, Topology& mine) {
  Topology taken = mine;
  Host& to = taken.hosts.front();
  const Host& from = HostOf(given, to.name);
  for (Gpu& gpu : to.interconnect.gpus) {
    const Gpu* const like = GpuLike(from.interconnect.gpus, gpu);
    if (like == nullptr) {
      return absl::FailedPreconditionError(
          absl::StrCat("it has no rates of a ", gpu.model, " on host ", from.name));
    }
    gpu.rates = like->rates;
    gpu.to_host = like->to_host;
  }
  if (to.interconnect.gpus.empty() && !HasRates(from.core_rates)) {
    return absl::FailedPreconditionError(
        absl::StrCat("it has no rates of a core of host ", from.name));
  }
  to.core_rates = from.core_rates;
  to.links = from.links;
  // A host that lends figures to another has defects of its own.
  to.interconnect.slow_pairs.clear();
  if (from.name == to.name) TakeSlowPairs(from.interconnect, to.interconnect);
  to.exchanges = from.exchanges;
  taken.fabric = given.fabric;
  mine = std::move(taken);
  return absl::OkStatus();
}

}  // namespace skein::topology
