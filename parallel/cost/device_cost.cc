#include "parallel/cost/device_cost.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "topology/has_rates.h"

namespace skein::cost {
namespace {

using topology::DeviceRates;
using topology::Host;
using topology::Path;
using topology::ReadRate;

constexpr char kWhereRatesComeFrom[] =
    ": take those of a preset with --like=PRESET, or write them into a file of `skein topo --json`";

// How far a working set is on its way from one that is known to the next, in doublings: of what
// lies between, a cache holds less and less.
double DoublingsBetween(int64_t below, int64_t above, int64_t working_set_bytes) {
  const auto doublings = [](int64_t bytes) { return std::log2(static_cast<double>(bytes)); };
  return (doublings(working_set_bytes) - doublings(below)) / (doublings(above) - doublings(below));
}

// Times are between those of rates, not rates.
double RateBetween(double below, double above, double part) {
  return 1 / ((1 - part) / below + part / above);
}

// What reads say of a working set: `between` two of them, or that of the nearest.
template <typename Between>
double OfReads(const DeviceRates& rates, int64_t working_set_bytes, double ReadRate::* field,
               const Between& between) {
  const auto above = std::find_if(rates.reads.begin(), rates.reads.end(), [&](const auto& read) {
    return read.working_set_bytes >= working_set_bytes;
  });
  if (above == rates.reads.end()) return rates.reads.back().*field;
  if (above == rates.reads.begin()) return (*above).*field;
  const auto below = above - 1;
  return between(
      (*below).*field, (*above).*field,
      DoublingsBetween(below->working_set_bytes, above->working_set_bytes, working_set_bytes));
}

// As ReadBytesPerS, of one core.
double CoreReadsBytesPerS(const DeviceRates& rates, int64_t working_set_bytes, bool together) {
  return OfReads(rates, working_set_bytes,
                 together ? &ReadRate::together_bytes_per_s : &ReadRate::alone_bytes_per_s,
                 RateBetween);
}

// The same of what was measured of fewer working sets than reads were, beside others: as far as the
// time of reads beside others is on its way, where that tells.
double PartBetween(const DeviceRates& rates, int64_t below, int64_t above,
                   int64_t working_set_bytes) {
  constexpr double kTells = 1.2;  // of two times: beyond the noise of both
  const auto time = [&](int64_t set) {
    return 1 / CoreReadsBytesPerS(rates, set, /*together=*/true);
  };
  if (rates.reads.empty() || time(above) < kTells * time(below)) {
    return DoublingsBetween(below, above, working_set_bytes);
  }
  const double part = (time(working_set_bytes) - time(below)) / (time(above) - time(below));
  return std::clamp(part, 0.0, 1.0);
}

using Products = absl::Span<const topology::ProductRate>;

// How little `other` is like a quantised type: blocks count first, then bits.
std::pair<bool, double> Distance(DType dtype, DType other) {
  const double bytes[] = {model::ElementBytes({model::TypeShare{dtype}}),
                          model::ElementBytes({model::TypeShare{other}})};
  return {BlockElements(dtype) != BlockElements(other), std::abs(bytes[0] - bytes[1])};
}

// The type among the rates that stands for another one.
DType StandInFor(const DeviceRates& rates, DType dtype) {
  std::optional<DType> best;
  for (const topology::ProductRate& product : rates.products) {
    if (product.dtype == dtype) return dtype;
    if (!IsQuantized(dtype) || !IsQuantized(product.dtype)) continue;
    if (product.dtype == DType::kFp8) continue;  // which alone is no integers
    if (!best.has_value() || Distance(dtype, product.dtype) < Distance(dtype, *best)) {
      best = product.dtype;
    }
  }
  return best.value_or(rates.products.front().dtype);
}

Products OfDType(const DeviceRates& rates, DType dtype) {
  const auto is_of = [dtype](const topology::ProductRate& product) {
    return product.dtype == dtype;
  };
  const auto begin = std::find_if(rates.products.begin(), rates.products.end(), is_of);
  const auto end = std::find_if_not(begin, rates.products.end(), is_of);
  return absl::MakeConstSpan(rates.products).subspan(begin - rates.products.begin(), end - begin);
}

// The first ones, which have one working set.
template <typename Point>
absl::Span<const Point> OfFirstWorkingSet(absl::Span<const Point> points) {
  const auto end = std::find_if_not(points.begin(), points.end(), [&](const Point& point) {
    return point.working_set_bytes == points.front().working_set_bytes;
  });
  return points.first(end - points.begin());
}

// What `time_of` the points of one working set says, between those of two. `points` are by working
// sets; those that caches do not hold stand last, with the working set 0.
template <typename Point, typename TimeOf>
double TimeOfWorkingSet(const DeviceRates& rates, absl::Span<const Point> points,
                        int64_t working_set_bytes, const TimeOf& time_of) {
  absl::Span<const Point> at = OfFirstWorkingSet(points);
  double time = time_of(at);
  while (at.front().working_set_bytes != 0 && at.front().working_set_bytes < working_set_bytes &&
         at.size() < points.size()) {
    points.remove_prefix(at.size());
    const absl::Span<const Point> above = OfFirstWorkingSet(points);
    const int64_t holds = above.front().working_set_bytes;
    const double next = time_of(above);
    if (holds > working_set_bytes) {
      const double part =
          PartBetween(rates, at.front().working_set_bytes, holds, working_set_bytes);
      time += part * (next - time);
    } else {
      time = next;
    }
    at = above;
  }
  return time;
}

// The points that `rows` lies between, and how far; the nearest one twice where they are fewer or
// more than are known. `points` are by rows, and not empty.
template <typename Point>
struct Around {
  const Point& below;
  const Point& above;
  double part = 0;
};
template <typename Point>
Around<Point> AroundRows(absl::Span<const Point> points, int64_t rows) {
  const auto above = std::find_if(points.begin(), points.end(),
                                  [&](const Point& point) { return point.rows >= rows; });
  if (above == points.begin()) return {*above, *above};
  if (above == points.end()) return {points.back(), points.back()};
  const auto below = above - 1;
  return {*below, *above,
          static_cast<double>(rows - below->rows) / static_cast<double>(above->rows - below->rows)};
}

// By rows, of one working set: how long all rows take, per operation of one row.
double TimeOfRows(Products products, int64_t rows) {
  const auto time = [](const topology::ProductRate& product) {
    return static_cast<double>(product.rows) / product.operations_per_s;
  };
  const auto [below, above, part] = AroundRows(products, rows);
  // Fewer rows than are known take as long as those; more take as long each.
  const double each = time(above) * static_cast<double>(rows) / static_cast<double>(above.rows);
  if (rows >= above.rows) return each;
  const double line = time(below) + part * (time(above) - time(below));
  if (&below == &products.front()) return line;
  // Few rows are bound by reads, more by arithmetic: up to there time goes on as before, and from
  // there each row takes as long. Both are below the line.
  const topology::ProductRate& before = *(&below - 1);
  const double slope = (time(below) - time(before)) / static_cast<double>(below.rows - before.rows);
  const double goes_on =
      time(below) + std::max(0.0, slope) * static_cast<double>(rows - below.rows);
  return std::min(line, std::max(goes_on, each));
}

bool HasLink(const Host& host, Path path) {
  return std::any_of(host.links.begin(), host.links.end(), [&](const auto& link) {
    return link.first == path && link.second.bytes_per_s > 0;
  });
}

}  // namespace

absl::Status CheckComplete(const topology::Topology& topology) {
  const size_t hosts = topology.hosts.size();
  if (hosts > 1 && topology.fabric.link.bytes_per_s == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("nothing is said of what connects ", hosts, " hosts", kWhereRatesComeFrom));
  }
  for (size_t at = 0; at < hosts; ++at) {
    const Host& host = topology.hosts[at];
    if (host.name.empty() || host.cores < 1) {
      return absl::InvalidArgumentError(
          absl::StrCat("nothing is said of the ", host.name.empty() ? "name" : "cores", " of ",
                       hosts > 1 ? absl::StrCat("host ", at) : "the host", kWhereRatesComeFrom));
    }
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
    if (of.gpus.empty() && host.memory_bytes == 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("nothing is known of the memory of host ", host.name, kWhereRatesComeFrom));
    }
  }
  return absl::OkStatus();
}

CoreShare ShareOfCores(int32_t cores, int32_t threads, int32_t ranks, int32_t active_ranks) {
  const int32_t busy = threads * active_ranks;
  return {.threads = threads,
          .of_a_core = std::min(1.0, static_cast<double>(cores) / busy),
          .together = busy > 1,
          .sets = std::max(1.0, static_cast<double>(threads) * ranks / cores)};
}

int32_t ActiveRanks(int32_t ranks, int32_t tp_size, int32_t pp_size, int64_t sequences) {
  const int64_t active = sequences < pp_size ? ranks * sequences / pp_size : ranks;
  return static_cast<int32_t>(std::max<int64_t>(active, std::min(ranks, tp_size)));
}

bool CardsAreAlike(const topology::Gpu& a, const topology::Gpu& b) {
  // Chips of one kind differ by some percent, and so do what drivers leave of their memory.
  const auto within = [](double x, double y, double share) {
    return std::abs(x - y) <= share * std::max(x, y);
  };
  return a.model == b.model &&
         within(static_cast<double>(a.memory_bytes), static_cast<double>(b.memory_bytes), 0.02) &&
         within(a.rates.reads.back().alone_bytes_per_s, b.rates.reads.back().alone_bytes_per_s,
                0.1);
}

const DeviceRates& RatesOf(const topology::Topology& topology, const Site& site) {
  const Host& host = topology.hosts[site.host];
  return site.gpu < 0 ? host.core_rates : host.interconnect.gpus[site.gpu].rates;
}

double ReadBytesPerS(const DeviceRates& rates, int64_t working_set_bytes, const CoreShare& share) {
  return CoreReadsBytesPerS(rates, working_set_bytes, share.together) * share.threads *
         share.of_a_core;
}

Missed MissedBehindOthers(const DeviceRates& rates, int64_t working_set_bytes,
                          const CoreShare& share) {
  const auto bytes = static_cast<double>(working_set_bytes);
  const double held = bytes / CoreReadsBytesPerS(rates, working_set_bytes, share.together);
  if (rates.reads.front().behind_bytes_per_s == 0) {
    const auto all = static_cast<int64_t>(share.sets * bytes);
    const double behind = bytes / CoreReadsBytesPerS(rates, all, share.together);
    return {.first = absl::Seconds((behind - held) / share.threads)};
  }
  const auto share_between = [](double below, double above, double part) {
    return below + part * (above - below);
  };
  const double behind =
      bytes / OfReads(rates, working_set_bytes, &ReadRate::behind_bytes_per_s, RateBetween);
  return {.first = absl::Seconds(std::max(0.0, behind - held) / share.threads),
          .again = OfReads(rates, working_set_bytes, &ReadRate::missed_again, share_between)};
}

topology::Overhead OverheadOf(const DeviceRates& rates, int64_t rows) {
  if (rates.overheads.empty()) return {.rows = rows};
  const auto [below, above, part] = AroundRows(absl::MakeConstSpan(rates.overheads), rows);
  return {.rows = rows,
          .step = below.step + part * (above.step - below.step),
          .layer = below.layer + part * (above.layer - below.layer)};
}

topology::AttentionRate AttentionOf(const DeviceRates& rates, int64_t working_set_bytes,
                                    int64_t rows, const CoreShare& share) {
  using Attention = topology::AttentionRate;
  // Of what takes no time the rate is 0.
  const auto rate_of = [&](double Attention::* rate) {
    const auto time_of = [&](absl::Span<const Attention> points) {
      const auto time = [&](const Attention& point) {
        return point.*rate > 0 ? 1 / (point.*rate) : 0;
      };
      const auto [below, above, part] = AroundRows(points, rows);
      return time(below) + part * (time(above) - time(below));
    };
    const double time =
        TimeOfWorkingSet(rates, absl::MakeConstSpan(rates.attention), working_set_bytes, time_of);
    return time > 0 ? share.threads * share.of_a_core / time : 0;
  };
  return {.rows = rows,
          .bytes_per_s = rate_of(&Attention::bytes_per_s),
          .operations_per_s = rate_of(&Attention::operations_per_s),
          .working_set_bytes = working_set_bytes};
}

double OperationsPerS(const DeviceRates& rates, absl::Span<const model::TypeShare> types,
                      int64_t working_set_bytes, int64_t rows, const CoreShare& share) {
  double time = 0;
  for (const model::TypeShare& of : types) {
    const Products products = OfDType(rates, StandInFor(rates, of.dtype));
    time += of.share * TimeOfWorkingSet(rates, products, working_set_bytes,
                                        [&](Products of_set) { return TimeOfRows(of_set, rows); });
  }
  return static_cast<double>(rows) * share.threads * share.of_a_core / time;
}

}  // namespace skein::cost
