#include "worker/bench/gpu_bench.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/status_macros.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/cuda_rates.h"
#include "topology/host/cores.h"
#include "worker/bench/bench_model.h"
#include "worker/bench/progress.h"

namespace skein::worker {
namespace {

constexpr int kPrefillRuns = 7;
constexpr int kWarmUpSteps = 2;  // what is chosen at the first time

absl::Duration Median(std::vector<absl::Duration> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

absl::StatusOr<absl::Duration> TimePrefill(BenchModel& model, int batch) {
  std::vector<absl::Duration> times;
  for (int run = 0; run <= kPrefillRuns; ++run) {  // the first one is the warm-up
    ShowProgress(absl::StrFormat("prefill %d of %d", run, kPrefillRuns));
    SKEIN_ASSIGN_OR_RETURN(const absl::Duration time, model.TimeStep(model.PrefillOrder(0)));
    if (run > 0) times.push_back(time);
  }
  for (int32_t slot = 1; slot < batch; ++slot) {
    SKEIN_RETURN_IF_ERROR(model.TimeStep(model.PrefillOrder(slot)).status());
  }
  return Median(times);
}

// Of a step, over all of them.
absl::StatusOr<absl::Duration> TimeDecode(BenchModel& model, int steps) {
  ShowProgress(absl::StrFormat("decode of %d", steps));
  absl::Time begin;
  model.stage().Begin(model.DecodeOrder());
  for (int step = 0; step < steps; ++step) {
    if (step + 1 < steps) model.stage().Begin(model.DecodeOrder());
    SKEIN_RETURN_IF_ERROR(model.Finish());
    if (step + 1 == kWarmUpSteps) begin = absl::Now();
  }
  return (absl::Now() - begin) / (steps - kWarmUpSteps);
}

}  // namespace

absl::Status RunGpuBench(const BenchOptions& options, const RankDevice& device) {
  int threads = options.threads;
  if (threads == 0) {
    SKEIN_ASSIGN_OR_RETURN(threads, topology::AffinityCores());
  }
  SKEIN_ASSIGN_OR_RETURN(const kernels::CudaRates rates, kernels::MeasureCudaRates(device.gpu));
  SKEIN_ASSIGN_OR_RETURN(auto backend,
                         kernels::MakeCudaBackend({.device = device.gpu, .threads = threads}));
  const absl::Time begin = absl::Now();
  SKEIN_ASSIGN_OR_RETURN(
      const std::unique_ptr<BenchModel> model,
      BenchModel::Load(options, threads, DeviceKind::kCuda, std::move(backend), ShowProgress));
  const absl::Duration load = absl::Now() - begin;
  SKEIN_ASSIGN_OR_RETURN(const absl::Duration prefill, TimePrefill(*model, options.batch));
  SKEIN_ASSIGN_OR_RETURN(const absl::Duration decode, TimeDecode(*model, options.decode_tokens));
  ShowProgress("");

  const StepCost& cost = model->cost();
  const double context = options.prompt_tokens + options.decode_tokens / 2.0;
  const double bytes = static_cast<double>(cost.weight_bytes) +
                       options.batch * context * static_cast<double>(model->BytesPerPosition());
  const double decode_s = absl::ToDoubleSeconds(decode);
  const double fraction = bytes / decode_s / rates.read_bytes_per_s;
  // Of attention, the causal half.
  const model::ModelConfig& config = model->config();
  const double tokens = options.prompt_tokens;
  const double flops = cost.flops_per_row * tokens + cost.flops_per_output +
                       2.0 * tokens * tokens * static_cast<double>(config.num_layers) *
                           static_cast<double>(config.num_heads * config.head_dim);
  const double prefill_s = absl::ToDoubleSeconds(prefill);
  absl::PrintF("%s on %s: %.2f TB/s read, %.0f TFLOP/s of bf16 products; loaded in %.2f s\n",
               options.model, device.device.name, rates.read_bytes_per_s / 1e12,
               rates.flops_per_s / 1e12, absl::ToDoubleSeconds(load));
  absl::PrintF(
      "  decode, batch %-3d %8.1f tok/s, %.3f ms a step (mean of %d), %.2f GB: %.0f%% of the read "
      "rate\n",
      options.batch, options.batch / decode_s, decode_s * 1e3, options.decode_tokens - kWarmUpSteps,
      bytes / 1e9, fraction * 100);
  absl::PrintF(
      "  prefill of %-5d %8.0f tok/s, %.2f ms (median of %d), %.2f TFLOP: %.0f%% of the products' "
      "rate\n",
      options.prompt_tokens, tokens / prefill_s, prefill_s * 1e3, kPrefillRuns, flops / 1e12,
      flops / prefill_s / rates.flops_per_s * 100);
  if (fraction < options.min_read_fraction) {
    return absl::FailedPreconditionError(
        absl::StrFormat("decode reads at %.0f%% of the memory's read bandwidth, asked were %.0f%%",
                        fraction * 100, options.min_read_fraction * 100));
  }
  return absl::OkStatus();
}

}  // namespace skein::worker
