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

std::vector<double> TimeRefills(const std::vector<int64_t>& working_sets, int threads,
                                const TimedReads& in_cache, const ProbeHooks& hooks,
                                absl::FunctionRef<double(int64_t)> pass,
                                absl::FunctionRef<void(int64_t)> put_out) {
  constexpr int kPasses = 8;
  constexpr double kTells = 1.5;  // of two times: beyond the noise of both
  std::vector<double> shares;
  for (size_t i = 0; i < working_sets.size(); ++i) {
    const int64_t bytes = working_sets[i];
    // Each of the ranks that meet sees caches of its own.
    if (hooks.meet) hooks.meet();
    if (in_cache.bytes_per_s[i] < kTells * in_cache.bytes_per_s.back()) {
      shares.push_back(1);
      continue;
    }
    std::vector<double> samples[kPasses];
    const absl::Time begin = absl::Now();
    for (int sample = 0; sample < kSamples; ++sample) {
      if (sample >= kLeastSamples && absl::Now() - begin > kBudget) break;
      put_out(bytes);
      for (std::vector<double>& of_pass : samples) {
        of_pass.push_back(1 / OfEachThread(pass(bytes), bytes, threads));
      }
    }
    const double held = 1 / in_cache.bytes_per_s[i];
    double missed[kPasses];
    for (int k = 0; k < kPasses; ++k) {
      missed[k] = std::max(0.0, Median(std::move(samples[k])) - held);
    }
    // The share by least squares: each pass misses it of what the one before has missed.
    double of = 0, again = 0;
    for (int k = 0; k + 1 < kPasses; ++k) {
      of += missed[k] * missed[k];
      again += missed[k] * missed[k + 1];
    }
    const bool tells = missed[0] + held > kTells * held;
    shares.push_back(tells ? std::min(1.0, again / of) : 0);
  }
  return shares;
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
