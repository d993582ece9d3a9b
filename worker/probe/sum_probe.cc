#include "worker/probe/sum_probe.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "base/dtype.h"
#include "base/status_macros.h"
#include "kernels/ops/sizes.h"
#include "parallel/comm/gather_strings.h"
#include "parallel/cost/layer_work.h"
#include "worker/bench/bench_model.h"
#include "worker/bench/bench_ranks.h"
#include "worker/probe/decode_times.h"
#include "worker/probe/probe_model.h"
#include "worker/probe/samples.h"

namespace skein::worker {
namespace {

constexpr int32_t kGpuRows[] = {1, 16, 64};  // one kernel runs 16 at most
constexpr int32_t kCpuRows[] = {1, 4};
constexpr int kGpuSamples = 21;
constexpr int kCpuSamples = 4;
// Many enough that what a step of shards has once counts for little: its draws are exchanged.
constexpr int64_t kGpuLayers = 8;
constexpr int kLeastCpuLayersOfShard = 2;
constexpr int kMostCpuLayersOfShard = 16;  // whatever a system tells of its caches
constexpr ProbeShape kCpuLayer = {256, 768, 8, 32, 1, 1};
constexpr int64_t kSumsOfLayer = 2;
constexpr int kCachesOfShard = 3;

ProbeShape ShapeOf(const BenchDevice& device, int ranks, int32_t cpu_layers_of_shard) {
  if (!device.is_gpu()) {
    ProbeShape shape = kCpuLayer;
    shape.layers = cpu_layers_of_shard * ranks;
    return shape;
  }
  ProbeShape shape = kShapeOf8B;
  shape.layers = kGpuLayers;
  return shape;
}

// The most that a rank tells: all ranks of a model have as many layers.
absl::StatusOr<int32_t> MostOf(comm::MpiRuntime& mpi, int32_t mine) {
  std::vector<int32_t> all(mpi.size());
  SKEIN_RETURN_IF_ERROR(mpi.world().AllGather(HostView(absl::MakeConstSpan(&mine, 1)),
                                              HostView(absl::MakeSpan(all)), kHostStream));
  return *absl::c_max_element(all);
}

// What one of so many ranks has of it.
ProbeShape ShardOf(ProbeShape shape, int ranks) {
  shape.heads /= ranks;
  shape.intermediate /= ranks;
  return shape;
}

absl::Span<const int32_t> RowsOf(const BenchDevice& device) {
  return device.is_gpu() ? absl::MakeConstSpan(kGpuRows) : absl::MakeConstSpan(kCpuRows);
}

// Steps of a model, of each number of rows, in rounds.
class Steps {
 public:
  static absl::StatusOr<std::unique_ptr<Steps>> Load(BenchRanks& ranks, BenchDevice& device,
                                                     const ProbeShape& shape) {
    const int32_t most = RowsOf(device).back();
    auto steps = std::unique_ptr<Steps>(new Steps(device));
    SKEIN_ASSIGN_OR_RETURN(steps->model_, BenchModel::Load({.config = ConfigOf(shape, DType::kBF16),
                                                            .sequences = most,
                                                            .most_rows = most,
                                                            .most_tokens = steps->samples() + 8},
                                                           device, ranks));
    return steps;
  }

  absl::Status TimeRound() {
    for (size_t i = 0; i < rows().size(); ++i) {
      SKEIN_RETURN_IF_ERROR(model_->TimeStep(model_->StartOrder(rows()[i])).status());
      SKEIN_ASSIGN_OR_RETURN(std::vector<double> seconds,
                             TimeDecodes(*model_, rows()[i], samples()));
      const Sampled sampled = Summarise(std::move(seconds));
      rounds_[i].push_back(sampled.median);
      spread_ = std::max(spread_, sampled.spread);
    }
    return absl::OkStatus();
  }

  // The median of each round.
  const std::vector<double>& rounds(size_t of_rows) const { return rounds_[of_rows]; }
  double spread() const { return spread_; }

 private:
  explicit Steps(const BenchDevice& device) : device_(device), rounds_(rows().size()) {}

  absl::Span<const int32_t> rows() const { return RowsOf(device_); }
  int samples() const { return device_.is_gpu() ? kGpuSamples : kCpuSamples; }

  const BenchDevice& device_;
  std::unique_ptr<BenchModel> model_;
  std::vector<std::vector<double>> rounds_;
  double spread_ = 0;
};

// What a step together takes longer than one alone, which ranks that share a core take in turn. A
// GPU's host delays steps now and then, and nothing makes them shorter; cores are slower for tenths
// of seconds, in which both are.
double Longer(const std::vector<double>& together, std::vector<double> alone, double in_turn,
              bool is_gpu) {
  for (double& seconds : alone) seconds *= in_turn;
  return is_gpu ? *absl::c_min_element(together) - *absl::c_min_element(alone)
                : MedianDifference(together, alone);
}

}  // namespace

bool CanProbeSums(int ranks) {
  return ranks > 1 && kShapeOf8B.heads / kShapeOf8B.queries_of_key % ranks == 0;
}

int32_t CpuLayersOfShard(int64_t core_cache_bytes) {
  const double layers =
      std::ceil(static_cast<double>(kCachesOfShard) * static_cast<double>(core_cache_bytes) /
                static_cast<double>(cost::LayerWeightBytes(ConfigOf(kCpuLayer, DType::kBF16), 1)));
  return static_cast<int32_t>(
      std::clamp<double>(layers, kLeastCpuLayersOfShard, kMostCpuLayersOfShard));
}

absl::StatusOr<topology::ExchangeCurve> ProbeSums(comm::MpiRuntime& mpi, BenchDevice& device,
                                                  const SumProbeOptions& options) {
  const auto& places = options.plan.ranks;
  const bool idle = std::count_if(places.begin(), places.end(), [&](const plan::RankPlan& rank) {
                      return rank.dp_rank == places[mpi.rank()].dp_rank;
                    }) != options.ranks;
  SKEIN_ASSIGN_OR_RETURN(const int32_t cpu_layers,
                         MostOf(mpi, CpuLayersOfShard(options.core_cache_bytes)));
  const ProbeShape shape = ShapeOf(device, options.ranks, cpu_layers);
  const auto ranks = BenchRanks::Of(mpi, options.plan, options.device_comm);
  SKEIN_ASSIGN_OR_RETURN(const auto nobody, BenchRanks::Start({}));
  std::unique_ptr<Steps> alone, together;
  const auto agree = [&](const absl::Status& mine) { return comm::FirstError(mpi.world(), mine); };
  const auto load = [&](BenchRanks& of, const ProbeShape& model,
                        std::unique_ptr<Steps>& steps) -> absl::Status {
    SKEIN_ASSIGN_OR_RETURN(steps, Steps::Load(of, device, model));
    return absl::OkStatus();
  };
  SKEIN_RETURN_IF_ERROR(agree(!idle && options.has_core
                                  ? load(*nobody, ShardOf(shape, options.ranks), alone)
                                  : absl::OkStatus()));
  SKEIN_RETURN_IF_ERROR(agree(idle ? ranks->Connect(device.device, /*deterministic=*/false)
                                   : load(*ranks, shape, together)));
  // In turn, since cores are faster in some tenths of a second than in others.
  for (int round = 0; round < kRounds; ++round) {
    for (Steps* const steps : {alone.get(), together.get()}) {
      SKEIN_RETURN_IF_ERROR(agree(steps != nullptr ? steps->TimeRound() : absl::OkStatus()));
    }
  }
  topology::ExchangeCurve curve = {.exchange = topology::Exchange::kAllReduce,
                                   .ranks = options.ranks};
  if (alone == nullptr) return curve;
  const DType dtype = kernels::ActivationDType(device.device.device.kind, DType::kBF16);
  const absl::Span<const int32_t> rows = RowsOf(device);
  for (size_t i = 0; i < rows.size(); ++i) {
    const double longer =
        Longer(together->rounds(i), alone->rounds(i), options.ranks_of_a_core, device.is_gpu());
    // A sum is some of the step, whatever the noise.
    const double least = *absl::c_min_element(together->rounds(i)) / 100;
    absl::Duration of_sum =
        absl::Seconds(std::max(longer, least) / static_cast<double>(kSumsOfLayer * shape.layers));
    if (!curve.times.empty()) of_sum = std::max(of_sum, curve.times.back().time);
    curve.times.push_back({DTypeBytes(dtype, rows[i] * shape.hidden), of_sum});
  }
  curve.spread = std::max(alone->spread(), together->spread());
  return curve;
}

void SetSumsOfSteps(const topology::ExchangeCurve& of_steps,
                    std::vector<topology::ExchangeCurve>& curves) {
  if (of_steps.times.empty()) return;
  for (topology::ExchangeCurve& curve : curves) {
    if (curve.exchange != of_steps.exchange || curve.across || curve.ranks != of_steps.ranks ||
        curve.alone != of_steps.alone) {
      continue;
    }
    std::vector<topology::ExchangeTime> times = of_steps.times;
    for (const topology::ExchangeTime& time : curve.times) {
      if (time.bytes <= of_steps.times.back().bytes) continue;
      times.push_back({time.bytes, std::max(time.time, times.back().time)});
    }
    curve.times = std::move(times);
    curve.spread = std::max(curve.spread, of_steps.spread);
  }
}

}  // namespace skein::worker
