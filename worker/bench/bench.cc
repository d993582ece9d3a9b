#include "worker/bench/bench.h"

#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/device_kind.h"
#include "base/status_macros.h"
#include "base/units.h"
#include "kernels/cpu/ceilings.h"
#include "kernels/cpu/cpu_backend.h"
#include "topology/host/cores.h"
#include "worker/bench/bench_model.h"
#include "worker/bench/gpu_bench.h"
#include "worker/bench/progress.h"
#include "worker/device.h"

namespace skein::worker {
namespace {

constexpr int64_t kProbeBytes = int64_t{1} << 30;     // more than caches hold
constexpr int64_t kCachedBytes = int64_t{256} << 20;  // what they may hold
constexpr int kPrefillRuns = 3;

template <typename T>
T Median(std::vector<T> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

// On the CPU.
class Bench {
 public:
  explicit Bench(const BenchOptions& options) : options_(options), threads_(options.threads) {}

  absl::Status Run() {
    if (threads_ == 0) {
      SKEIN_ASSIGN_OR_RETURN(threads_, topology::AffinityCores());
    }
    SKEIN_ASSIGN_OR_RETURN(auto backend, kernels::MakeCpuBackend({.threads = threads_}));
    SKEIN_ASSIGN_OR_RETURN(model_, BenchModel::Load(options_, threads_, DeviceKind::kCpu,
                                                    std::move(backend), ShowProgress));
    cached_ =
        DecodeBytes(options_.decode_tokens) <= static_cast<double>(sysconf(_SC_LEVEL3_CACHE_SIZE));
    SKEIN_ASSIGN_OR_RETURN(const absl::Duration prefill, TimePrefill());
    SKEIN_RETURN_IF_ERROR(TimeDecode());
    if (cached_) SKEIN_RETURN_IF_ERROR(TimeCachedRead());
    SKEIN_ASSIGN_OR_RETURN(const double arithmetic, kernels::MeasureArithmetic(threads_));
    return Report(prefill, arithmetic);
  }

 private:
  absl::StatusOr<absl::Duration> TimePrefill() {
    std::vector<absl::Duration> times;
    for (int run = 0; run <= kPrefillRuns; ++run) {  // the first one is the warm-up
      ShowProgress(absl::StrFormat("prefill %d of %d", run, kPrefillRuns));
      SKEIN_ASSIGN_OR_RETURN(const absl::Duration time, model_->TimeStep(model_->PrefillOrder(0)));
      if (run > 0) times.push_back(time);
    }
    for (int32_t slot = 1; slot < options_.batch; ++slot) {
      SKEIN_RETURN_IF_ERROR(model_->TimeStep(model_->PrefillOrder(slot)).status());
    }
    return Median(times);
  }

  // Steps and plain reads take turns; where a cache holds what steps read, they are left to it.
  absl::Status TimeDecode() {
    SKEIN_ASSIGN_OR_RETURN(kernels::ReadProbe probe,
                           kernels::ReadProbe::Create(threads_, kProbeBytes));
    reads_.push_back(probe.Pass());
    for (int step = 0; step < options_.decode_tokens; ++step) {
      ShowProgress(absl::StrFormat("decode %d of %d", step + 1, options_.decode_tokens));
      SKEIN_ASSIGN_OR_RETURN(const absl::Duration time, model_->TimeStep(model_->DecodeOrder()));
      decodes_.push_back(time);
      if (!cached_) reads_.push_back(probe.Pass());
    }
    return absl::OkStatus();
  }

  // Of as many bytes as a step reads, over and over.
  absl::Status TimeCachedRead() {
    constexpr int kPasses = 101;
    const int64_t bytes = std::max(static_cast<int64_t>(DecodeBytes(options_.decode_tokens / 2)),
                                   int64_t{threads_} << 20);  // a MiB each, the least
    SKEIN_ASSIGN_OR_RETURN(kernels::ReadProbe probe, kernels::ReadProbe::Create(threads_, bytes));
    std::vector<double> reads;
    for (int pass = 0; pass < kPasses; ++pass) reads.push_back(probe.Pass());
    cached_read_ = Median(reads);
    return absl::OkStatus();
  }

  // The bytes that the decode step `step` reads: weights, and keys and values of the context.
  double DecodeBytes(int step) const {
    const int64_t context = options_.prompt_tokens + step + 1;
    return static_cast<double>(model_->cost().weight_bytes +
                               options_.batch * context * model_->BytesPerPosition());
  }

  // The share of the memory's read bandwidth around it at which a step reads: the median.
  double ReadFraction() const {
    std::vector<double> fractions;
    for (int step = 0; step < options_.decode_tokens; ++step) {
      const double rate = DecodeBytes(step) / absl::ToDoubleSeconds(decodes_[step]);
      fractions.push_back(rate / ((reads_[step] + reads_[step + 1]) / 2));
    }
    return Median(fractions);
  }

  absl::Status Report(absl::Duration prefill, double arithmetic) const {
    ShowProgress("");
    const StepCost& cost = model_->cost();
    const double decode_s = absl::ToDoubleSeconds(Median(decodes_));
    const double prefill_s = absl::ToDoubleSeconds(prefill);
    const double bytes = DecodeBytes(options_.decode_tokens / 2);
    const double fraction = cached_ ? 0 : ReadFraction();
    const double flops = cost.flops_per_row * options_.prompt_tokens + cost.flops_per_output;
    const auto [low, high] = std::minmax_element(reads_.begin(), reads_.end());
    absl::PrintF("%s, %d threads\n", options_.model, threads_);
    absl::PrintF("  read bandwidth   %s (median of plain reads of %s, %d in all; %.1f to %.1f)\n",
                 FormatBytesPerSecond(Median(reads_)), FormatBytes(kProbeBytes), reads_.size(),
                 *low / 1e9, *high / 1e9);
    absl::PrintF("  arithmetic       %.0f GFLOP/s (multiply-adds of registers)\n",
                 arithmetic / 1e9);
    const double step_flops = options_.batch * (cost.flops_per_row + cost.flops_per_output);
    const std::string bound =
        cached_ ? absl::StrFormat(
                      "%s, which caches may hold: %s, %.0f%% of plain reads of as much (%s); "
                      "%.0f GFLOP/s, %.0f%% of the arithmetic",
                      FormatBytes(bytes), FormatBytesPerSecond(bytes / decode_s),
                      bytes / decode_s / cached_read_ * 100, FormatBytesPerSecond(cached_read_),
                      step_flops / decode_s / 1e9, step_flops / decode_s / arithmetic * 100)
                : absl::StrFormat(
                      "bound by reading %s: %s, %.0f%% of the bandwidth right before "
                      "and after",
                      FormatBytes(bytes), FormatBytesPerSecond(bytes / decode_s), fraction * 100);
    absl::PrintF("  decode, batch %-3d %.2f tok/s, %.2f ms a step (median of %d); %s\n",
                 options_.batch, options_.batch / decode_s, decode_s * 1e3, decodes_.size(), bound);
    absl::PrintF(
        "  prefill of %-5d %.1f tok/s, %.0f ms; bound by arithmetic: %.0f GFLOP/s, "
        "%.0f%% of it\n",
        options_.prompt_tokens, options_.prompt_tokens / prefill_s, prefill_s * 1e3,
        flops / prefill_s / 1e9, flops / prefill_s / arithmetic * 100);
    if (cached_ && options_.min_read_fraction > 0) {
      return absl::FailedPreconditionError(
          absl::StrCat("--min-read-fraction: what a step of ", options_.model,
                       " reads may stay in a cache; take a larger model"));
    }
    if (fraction < options_.min_read_fraction) {
      return absl::FailedPreconditionError(absl::StrFormat(
          "decode reads at %.0f%% of the memory's read bandwidth, asked were %.0f%%",
          fraction * 100, options_.min_read_fraction * 100));
    }
    return absl::OkStatus();
  }

  const BenchOptions options_;
  int threads_;
  std::unique_ptr<BenchModel> model_;
  bool cached_ = false;                  // what a step reads
  double cached_read_ = 0;               // bytes per second, where it is
  std::vector<absl::Duration> decodes_;  // of the steps
  std::vector<double> reads_;            // bytes per second before the first step and after each
};

}  // namespace

absl::Status RunBench(const BenchOptions& options) {
  SKEIN_ASSIGN_OR_RETURN(const RankDevice device, ChooseDevice({.asked = options.device}));
  if (device.device.kind == DeviceKind::kCuda) return RunGpuBench(options, device);
  if (!device.no_gpu.empty()) {
    std::fprintf(stderr, "computing on the CPU, no GPU: %s\n", device.no_gpu.c_str());
  }
  return Bench(options).Run();
}

}  // namespace skein::worker
