#include "worker/probe/sum_probe.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/dtype.h"
#include "base/status_macros.h"
#include "kernels/ops/sizes.h"
#include "worker/bench/bench_model.h"
#include "worker/bench/bench_ranks.h"
#include "worker/probe/alone_and_together.h"
#include "worker/probe/decode_times.h"
#include "worker/probe/probe_model.h"
#include "worker/probe/samples.h"

namespace skein::worker {
namespace {

constexpr int32_t kRows[] = {1, 16, 64};  // one kernel runs 16 at most
constexpr int kSamples = 21;
// Many enough that what a step of shards has once counts for little: its draws are exchanged.
constexpr int64_t kLayers = 8;
constexpr int64_t kSumsOfLayer = 2;

ProbeShape ShapeOf(const BenchDevice& device) {
  ProbeShape shape = device.is_gpu() ? kShapeOf8B : ProbeShape{256, 1024, 8, 32, 1};
  shape.layers = kLayers;
  return shape;
}

// What one of so many ranks has of it.
ProbeShape ShardOf(ProbeShape shape, int ranks) {
  shape.heads /= ranks;
  shape.intermediate /= ranks;
  return shape;
}

struct Times {
  double seconds[std::size(kRows)] = {};
  double spreads[std::size(kRows)] = {};

  double spread() const { return *std::max_element(std::begin(spreads), std::end(spreads)); }
};

absl::StatusOr<Times> TimeModel(BenchRanks& ranks, BenchDevice& device, const ProbeShape& shape) {
  const int32_t most = kRows[std::size(kRows) - 1];
  SKEIN_ASSIGN_OR_RETURN(const auto model,
                         BenchModel::Load({.config = ConfigOf(shape, DType::kBF16),
                                           .sequences = most,
                                           .most_rows = most,
                                           .most_tokens = kSamples + 8},
                                          device, ranks));
  Times times;
  for (int round = 0; round < kRounds; ++round) {
    for (size_t i = 0; i < std::size(kRows); ++i) {
      SKEIN_RETURN_IF_ERROR(model->TimeStep(model->StartOrder(kRows[i])).status());
      SKEIN_ASSIGN_OR_RETURN(std::vector<double> seconds, TimeDecodes(*model, kRows[i], kSamples));
      const Sampled sampled = Summarise(std::move(seconds));
      if (round > 0 && sampled.median >= times.seconds[i]) continue;
      times.seconds[i] = sampled.median;
      times.spreads[i] = sampled.spread;
    }
  }
  return times;
}

}  // namespace

bool CanProbeSums(int ranks) {
  return ranks > 1 && kShapeOf8B.heads / kShapeOf8B.queries_of_key % ranks == 0;
}

absl::StatusOr<topology::ExchangeCurve> ProbeSums(comm::MpiRuntime& mpi, BenchDevice& device,
                                                  const SumProbeOptions& options) {
  const auto& places = options.plan.ranks;
  const bool idle = std::count_if(places.begin(), places.end(), [&](const plan::RankPlan& rank) {
                      return rank.dp_rank == places[mpi.rank()].dp_rank;
                    }) != options.ranks;
  const ProbeShape shape = ShapeOf(device);
  const auto ranks = BenchRanks::Of(mpi, options.plan, options.device_comm);
  Times alone, together;
  const auto time = [&](BenchRanks& of, const ProbeShape& model, Times& times) -> absl::Status {
    SKEIN_ASSIGN_OR_RETURN(times, TimeModel(of, device, model));
    return absl::OkStatus();
  };
  SKEIN_RETURN_IF_ERROR(AloneThenTogether(
      mpi, device, *ranks, idle,
      [&](BenchRanks& of) { return time(of, ShardOf(shape, options.ranks), alone); },
      [&](BenchRanks& of) { return time(of, shape, together); }));
  topology::ExchangeCurve curve = {.exchange = topology::Exchange::kAllReduce,
                                   .ranks = options.ranks};
  if (idle) return curve;
  const DType dtype = kernels::ActivationDType(device.device.device.kind, DType::kBF16);
  for (size_t i = 0; i < std::size(kRows); ++i) {
    // A sum is some of the step, whatever the noise.
    const double longer =
        std::max(together.seconds[i] - alone.seconds[i], together.seconds[i] / 100);
    absl::Duration of_sum = absl::Seconds(longer / (kSumsOfLayer * kLayers));
    if (!curve.times.empty()) of_sum = std::max(of_sum, curve.times.back().time);
    curve.times.push_back({DTypeBytes(dtype, kRows[i] * shape.hidden), of_sum});
  }
  curve.spread = std::max(alone.spread(), together.spread());
  return curve;
}

topology::ExchangeCurve WithSumsOfSteps(topology::ExchangeCurve measured,
                                        const topology::ExchangeCurve& of_steps) {
  if (of_steps.times.empty()) return measured;
  topology::ExchangeCurve curve = of_steps;
  for (const topology::ExchangeTime& time : measured.times) {
    if (time.bytes <= curve.times.back().bytes) continue;
    curve.times.push_back({time.bytes, std::max(time.time, curve.times.back().time)});
  }
  measured.times = std::move(curve.times);
  measured.spread = std::max(measured.spread, of_steps.spread);
  return measured;
}

}  // namespace skein::worker
