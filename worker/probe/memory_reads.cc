#include "worker/probe/memory_reads.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/bench/report.h"
#include "base/units.h"
#include "worker/probe/samples.h"

namespace skein::worker {
namespace {

constexpr int64_t kLeastOfThread = int64_t{1} << 20;
constexpr int kSamples = 5;
constexpr int kLeastSamples = 2;
constexpr absl::Duration kBudget = absl::Milliseconds(25);  // of one working set
constexpr absl::Duration kSample = absl::Milliseconds(2);   // at least

// The median of passes, until they have taken kSample.
double Sample(int64_t bytes, absl::FunctionRef<double(int64_t)> pass) {
  std::vector<double> rates;
  const absl::Time begin = absl::Now();
  do {
    rates.push_back(pass(bytes));
  } while (absl::Now() - begin < kSample);
  return Median(std::move(rates));
}

}  // namespace

TimedReads TimeReads(const std::vector<int64_t>& working_sets, int threads, const ProbeHooks& hooks,
                     absl::FunctionRef<double(int64_t)> pass) {
  TimedReads timed;
  for (const int64_t bytes : working_sets) {
    if (hooks.progress) hooks.progress(absl::StrCat("reads of ", FormatBytes(bytes)));
    pass(bytes);
    if (hooks.meet) hooks.meet();
    const auto used = static_cast<double>(std::min<int64_t>(threads, bytes / kLeastOfThread));
    const absl::Time begin = absl::Now();
    std::vector<double> samples;
    for (int i = 0; i < kSamples; ++i) {
      if (i >= kLeastSamples && absl::Now() - begin > kBudget) break;
      samples.push_back(Sample(bytes, pass) / used);
    }
    const Sampled sampled = Summarise(std::move(samples));
    timed.bytes_per_s.push_back(sampled.median);
    timed.spread = std::max(timed.spread, sampled.spread);
  }
  return timed;
}

std::vector<topology::ReadRate> ReadRates(const std::vector<int64_t>& working_sets,
                                          const TimedReads& alone, const TimedReads& together) {
  std::vector<topology::ReadRate> rates;
  for (size_t i = 0; i < working_sets.size(); ++i) {
    const double at_once = together.bytes_per_s[i];
    rates.push_back({working_sets[i], std::max(alone.bytes_per_s[i], at_once), at_once});
  }
  return rates;
}

}  // namespace skein::worker
