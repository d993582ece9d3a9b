#include "parallel/cost/device_cost.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace skein::cost {
namespace {

using topology::DeviceRates;
using topology::Host;
using topology::Path;

constexpr char kWhereRatesComeFrom[] =
    ": take those of a preset with --like=PRESET, or write them into a file of `skein topo --json`";

bool HasRates(const DeviceRates& rates) { return !rates.reads.empty() && !rates.products.empty(); }

bool HasLink(const Host& host, Path path) {
  return std::any_of(host.links.begin(), host.links.end(), [&](const auto& link) {
    return link.first == path && link.second.bytes_per_s > 0;
  });
}

}  // namespace

absl::Status CheckRates(const topology::Topology& topology) {
  for (const Host& host : topology.hosts) {
    const topology::Interconnect& of = host.interconnect;
    for (size_t i = 0; i < of.gpus.size(); ++i) {
      const std::string name = absl::StrCat(of.gpus[i].name, " of host ", host.name);
      if (!HasRates(of.gpus[i].rates)) {
        return absl::InvalidArgumentError(
            absl::StrCat("nothing is known of how fast ", name, " is", kWhereRatesComeFrom));
      }
      if (of.gpus[i].memory_bytes == 0) {
        return absl::InvalidArgumentError(
            absl::StrCat("nothing is known of the memory of ", name, kWhereRatesComeFrom));
      }
      for (size_t j = 0; j < i; ++j) {
        const Path path = of.OfGpus(static_cast<int>(i), static_cast<int>(j)).path;
        if (HasLink(host, path)) continue;
        return absl::InvalidArgumentError(absl::StrCat(
            "nothing is known of how fast ", std::string(PathName(path)), " is, which connects ",
            of.gpus[j].name, " and ", name, kWhereRatesComeFrom));
      }
    }
    if (of.gpus.empty() && (!HasRates(host.core_rates) || !HasLink(host, Path::kSelf))) {
      return absl::InvalidArgumentError(
          absl::StrCat("nothing is known of how fast the cores of host ", host.name, " are",
                       kWhereRatesComeFrom));
    }
  }
  return absl::OkStatus();
}

const DeviceRates& RatesOf(const topology::Topology& topology, const Site& site) {
  const Host& host = topology.hosts[site.host];
  return site.gpu < 0 ? host.core_rates : host.interconnect.gpus[site.gpu].rates;
}

double ReadBytesPerS(const DeviceRates& rates, int64_t working_set_bytes, const CoreShare& share) {
  const auto fits = [&](const topology::ReadRate& read) {
    return read.working_set_bytes >= working_set_bytes;
  };
  const auto found = std::find_if(rates.reads.begin(), rates.reads.end(), fits);
  const topology::ReadRate& read = found == rates.reads.end() ? rates.reads.back() : *found;
  const double of_core = share.together ? read.together_bytes_per_s : read.alone_bytes_per_s;
  return of_core * share.threads * share.of_a_core;
}

double OperationsPerS(const DeviceRates& rates, DType dtype, int64_t rows, const CoreShare& share) {
  const auto is_of = [](DType wanted) {
    return [wanted](const topology::ProductRate& product) { return product.dtype == wanted; };
  };
  auto at = std::find_if(rates.products.begin(), rates.products.end(), is_of(dtype));
  if (at == rates.products.end()) at = rates.products.begin();
  const auto end = std::find_if_not(at, rates.products.end(), is_of(at->dtype));
  const auto above = std::find_if(
      at, end, [&](const topology::ProductRate& product) { return product.rows >= rows; });
  double rate = 0;
  if (above == end) {
    rate = (end - 1)->operations_per_s;
  } else if (above == at) {
    // Fewer rows than are known take as long as those.
    rate = at->operations_per_s * static_cast<double>(rows) / static_cast<double>(at->rows);
  } else {
    const auto below = above - 1;
    const double part =
        static_cast<double>(rows - below->rows) / static_cast<double>(above->rows - below->rows);
    rate = below->operations_per_s + part * (above->operations_per_s - below->operations_per_s);
  }
  return rate * share.threads * share.of_a_core;
}

}  // namespace skein::cost
