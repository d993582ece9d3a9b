#include "worker/bench/bench_device.h"

#include <algorithm>
#include <cstdio>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status_macros.h"
#include "kernels/cpu/ceilings.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/cuda_rates.h"
#include "topology/host/cores.h"
#include "worker/host_backend.h"

namespace skein::worker {
namespace {

absl::StatusOr<Ceilings> CpuCeilings(int threads) {
  constexpr int kPasses = 5;
  const ThreadPool::Cores cores = topology::CoresOfThreads(threads);
  SKEIN_ASSIGN_OR_RETURN(kernels::ReadProbe probe,
                         kernels::ReadProbe::Create(threads, BytesBeyondCaches(), cores));
  std::vector<double> rates;
  for (int pass = 0; pass < kPasses; ++pass) rates.push_back(probe.Pass());
  SKEIN_ASSIGN_OR_RETURN(const double arithmetic, kernels::MeasureArithmetic(threads, cores));
  SKEIN_ASSIGN_OR_RETURN(const double of_bytes, kernels::MeasureByteArithmetic(threads, cores));
  return Ceilings{.bytes_per_s = Median(std::move(rates)),
                  .operations_per_s = arithmetic,
                  .byte_operations_per_s = of_bytes};
}

absl::StatusOr<Ceilings> GpuCeilings(int gpu) {
  SKEIN_ASSIGN_OR_RETURN(const kernels::CudaRates rates, kernels::MeasureCudaRates(gpu));
  return Ceilings{.bytes_per_s = rates.read_bytes_per_s, .operations_per_s = rates.flops_per_s};
}

}  // namespace

int64_t BytesBeyondCaches() {
  constexpr int64_t kLeast = int64_t{128} << 20, kMost = int64_t{1} << 30;
  // A part of a set stays in a cache even where it is read from end to end.
  constexpr int64_t kTimes = 8;
  static const int64_t cached = topology::AffinityCacheBytes().value_or(0);
  if (cached == 0) return kMost;
  return std::clamp(kTimes * std::min(cached, kMost), kLeast, kMost);
}

absl::StatusOr<BenchDevice> OpenBenchDevice(const BenchDeviceOptions& options, BenchRanks& ranks) {
  BenchDevice bench;
  SKEIN_ASSIGN_OR_RETURN(bench.device, ranks.Find(options.device));
  if (!bench.device.no_gpu.empty() && ranks.prints()) {
    std::fprintf(stderr, "computing on the CPU, no GPU: %s\n", bench.device.no_gpu.c_str());
  }
  SKEIN_RETURN_IF_ERROR(CheckProfile(options.profile_steps, bench.device));
  SKEIN_RETURN_IF_ERROR(CheckDecodeForm(options.decode, bench.device));
  bench.threads = options.threads;
  SKEIN_ASSIGN_OR_RETURN(const int cores, topology::AffinityCores());
  if (bench.threads == 0) bench.threads = std::max(1, cores / ranks.local_size());
  bench.crowded = !bench.is_gpu() && bench.threads * ranks.local_size() > cores;
  bench.machine = {.kind = std::string(DeviceKindName(bench.device.device.kind)),
                   .device = bench.device.device.name};
  if (!bench.is_gpu()) ranks.ShareCores(bench.threads);
  ShowProgress("measuring the machine");
  SKEIN_RETURN_IF_ERROR(ranks.Barrier());
  if (bench.is_gpu()) {
    SKEIN_ASSIGN_OR_RETURN(bench.machine.ceilings, GpuCeilings(bench.device.gpu));
    std::function<void(std::string_view)> remark;
    if (ranks.prints()) {
      remark = [](std::string_view text) {
        std::fprintf(stderr, "%s\n", std::string(text).c_str());
      };
    }
    SKEIN_ASSIGN_OR_RETURN(bench.backend,
                           kernels::MakeCudaBackend({.device = bench.device.gpu,
                                                     .threads = bench.threads,
                                                     .profile_steps = options.profile_steps,
                                                     .decode = options.decode,
                                                     .remark = remark}));
    return bench;
  }
  bench.machine.threads = bench.threads;
  SKEIN_ASSIGN_OR_RETURN(bench.machine.ceilings, CpuCeilings(bench.threads));
  SKEIN_ASSIGN_OR_RETURN(bench.backend, MakeHostBackend(bench.threads));
  return bench;
}

}  // namespace skein::worker
