#include "worker/probe/token_probe.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/dtype.h"
#include "base/status_macros.h"
#include "parallel/comm/gather_strings.h"
#include "worker/bench/bench_model.h"
#include "worker/bench/bench_ranks.h"
#include "worker/probe/decode_times.h"
#include "worker/probe/probe_model.h"
#include "worker/probe/samples.h"

namespace skein::worker {
namespace {

constexpr int32_t kRows[] = {1, 8, 64};  // of a micro-batch
constexpr int kSamples = 21;

// A stage takes long enough for its host to have the next batch at hand.
ProbeShape ShapeOf(bool gpu, int64_t stages) {
  ProbeShape shape = gpu ? kShapeOf8B : ProbeShape{512, 1536, 8, 64};
  shape.layers = stages;
  return shape;
}

// Of each of kRows, as a step of one micro-batch or of several.
struct Times {
  double seconds[std::size(kRows)] = {};
  double spread = 0;
};

absl::StatusOr<Times> TimeModel(BenchRanks& ranks, BenchDevice& device, int32_t stages) {
  const int32_t most = kRows[std::size(kRows) - 1] * stages;
  SKEIN_ASSIGN_OR_RETURN(
      const auto model,
      BenchModel::Load({.config = ConfigOf(ShapeOf(device.is_gpu(), stages), DType::kBF16),
                        .sequences = most,
                        .most_rows = most,
                        .most_tokens = kSamples + 8},
                       device, ranks));
  Times times;
  for (size_t i = 0; i < std::size(kRows); ++i) {
    // One row is one micro-batch, whatever the stages: a sequence is in one at a time.
    const int32_t sequences = kRows[i] == 1 ? 1 : kRows[i] * stages;
    SKEIN_RETURN_IF_ERROR(model->TimeStep(model->StartOrder(sequences)).status());
    SKEIN_ASSIGN_OR_RETURN(std::vector<double> seconds, TimeDecodes(*model, sequences, kSamples));
    const Sampled sampled = Summarise(std::move(seconds));
    times.seconds[i] = sampled.median;
    times.spread = std::max(times.spread, sampled.spread);
  }
  return times;
}

}  // namespace

absl::StatusOr<topology::ExchangeCurve> ProbeTokenReturn(comm::MpiRuntime& mpi, BenchDevice& device,
                                                         const TokenProbeOptions& options) {
  const auto& places = options.plan.ranks;
  const auto partner = std::find_if(places.begin(), places.end(), [&](const plan::RankPlan& rank) {
    return rank.rank != mpi.rank() && rank.dp_rank == places[mpi.rank()].dp_rank;
  });
  const auto ranks = BenchRanks::Of(mpi, options.plan, options.device_comm);
  SKEIN_ASSIGN_OR_RETURN(const auto nobody, BenchRanks::Start({}));
  const auto agree = [&](const absl::Status& mine) { return comm::FirstError(mpi.world(), mine); };
  const auto time = [&](BenchRanks& of, int32_t stages, Times& times) -> absl::Status {
    SKEIN_ASSIGN_OR_RETURN(times, TimeModel(of, device, stages));
    return absl::OkStatus();
  };
  const bool idle = partner == places.end();
  Times alone, together;
  SKEIN_RETURN_IF_ERROR(agree(idle ? absl::OkStatus() : time(*nobody, /*stages=*/1, alone)));
  SKEIN_RETURN_IF_ERROR(agree(idle ? ranks->Connect(device.device, /*deterministic=*/false)
                                   : time(*ranks, /*stages=*/2, together)));
  std::vector<Times> all(mpi.size());
  SKEIN_RETURN_IF_ERROR(
      ranks->Gather({reinterpret_cast<const std::byte*>(&alone), sizeof(Times)},
                    {reinterpret_cast<std::byte*>(all.data()), all.size() * sizeof(Times)}));
  topology::ExchangeCurve curve = {.exchange = topology::Exchange::kTokenReturn, .ranks = 2};
  if (idle) return curve;
  const double hop_bytes = static_cast<double>(DTypeBytes(DType::kBF16, 1)) *
                           static_cast<double>(ShapeOf(device.is_gpu(), 1).hidden);
  for (size_t i = 0; i < std::size(kRows); ++i) {
    const double stages = alone.seconds[i] + all[partner->rank].seconds[i];
    const double hop =
        absl::ToDoubleSeconds(options.hop.latency) + hop_bytes * kRows[i] / options.hop.bytes_per_s;
    absl::Duration time = absl::Seconds(std::max(together.seconds[i] - stages - hop, 0.0));
    // More tokens take no less, whatever the noise.
    if (!curve.times.empty()) time = std::max(time, curve.times.back().time);
    curve.times.push_back({kRows[i] * int64_t{sizeof(int32_t)}, time});
  }
  curve.spread = std::max(alone.spread, together.spread);
  return curve;
}

}  // namespace skein::worker
