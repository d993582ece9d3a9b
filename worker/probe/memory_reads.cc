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

// What threads that read a MiB at least have of a rate of all.
double OfEachThread(double bytes_per_s, int64_t bytes, int threads) {
  return bytes_per_s / static_cast<double>(std::min<int64_t>(threads, bytes / kLeastOfThread));
}

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
    const absl::Time begin = absl::Now();
    std::vector<double> samples;
    for (int i = 0; i < kSamples; ++i) {
      if (i >= kLeastSamples && absl::Now() - begin > kBudget) break;
      samples.push_back(OfEachThread(Sample(bytes, pass), bytes, threads));
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

void TimeReadsBehind(int threads, const ProbeHooks& hooks, absl::FunctionRef<double(int64_t)> pass,
                     absl::FunctionRef<void(int64_t)> put_out,
                     std::vector<topology::ReadRate>& reads) {
  constexpr int kPasses = 8;
  constexpr double kLittle = 1.5;  // times as fast: caches hold some of the set, not most
  const double largest = reads.back().together_bytes_per_s;
  for (topology::ReadRate& read : reads) {
    if (hooks.meet) hooks.meet();
    read.behind_bytes_per_s = std::min(largest, read.together_bytes_per_s);
    read.missed_again = 1;
    if (read.together_bytes_per_s < kLittle * largest) continue;
    const int64_t bytes = read.working_set_bytes;
    std::vector<double> seconds[kPasses];  // of a byte
    const absl::Time begin = absl::Now();
    for (int sample = 0; sample < kSamples; ++sample) {
      if (sample >= kLeastSamples && absl::Now() - begin > kBudget) break;
      put_out(bytes);
      for (std::vector<double>& of_pass : seconds) {
        of_pass.push_back(1 / OfEachThread(pass(bytes), bytes, threads));
      }
    }
    const double held = 1 / read.together_bytes_per_s;
    double missed[kPasses];
    for (int i = 0; i < kPasses; ++i) {
      missed[i] = std::max(0.0, Median(std::move(seconds[i])) - held);
    }
    read.behind_bytes_per_s = std::min(read.together_bytes_per_s, 1 / (held + missed[0]));
    // By least squares.
    double before = 0, again = 0;
    for (int i = 0; i + 1 < kPasses; ++i) {
      before += missed[i] * missed[i];
      again += missed[i] * missed[i + 1];
    }
    if (before > 0) read.missed_again = std::min(1.0, again / before);
  }
}

}  // namespace skein::worker
