#include "worker/probe/layer_probe.h"

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "base/dtype.h"
#include "base/status_macros.h"
#include "parallel/cost/device_cost.h"
#include "parallel/cost/layer_work.h"
#include "worker/bench/bench_model.h"
#include "worker/probe/gpu_overheads.h"
#include "worker/probe/probe_model.h"
#include "worker/probe/samples.h"
#include "worker/probe/shape_times.h"

namespace skein::worker {
namespace {

using topology::DeviceRates;

// Its products are short beside what it costs to begin them.
constexpr ProbeShape kNothing = {64, 64, 1, 64, 1};
constexpr int64_t kManyLayers = 9;
// Layers of half an 8B's width, four times as many: as many keys and values, and as many weights
// but for 0.5%.
constexpr ProbeShape kHalfOf8B = {2048, 8064, 16, 64, 4 * kShapeOf8B.layers};
// A 1B's layer with half its MLP: beyond caches, but for the largest.
constexpr ProbeShape kLargeOnCpu = {2048, 4096, 32, 64, 1};
// Some 2, 6 and 12 MB of bf16, for models that stay in caches.
constexpr ProbeShape kSmall = {256, 768, 4, 64, 1};
constexpr ProbeShape kHalf = {512, 1536, 8, 64, 1};
constexpr ProbeShape kMiddle = {512, 1536, 8, 64, 2};
// Its layers hold as many weights as kHalf's. Its products are more, and pass more values.
constexpr ProbeShape kNarrow = {256, 768, 4, 64, 4};
// Steps of both, which are compared.
constexpr int32_t kPassingRows = 8;
constexpr int kPassingSamples = 9;

// Those that take unlike times to unpack; like ones stand in for the others (cost::OperationsPerS).
constexpr DType kQuantized[] = {DType::kQ8_0, DType::kQ4_0, DType::kFp8, DType::kQ3_K,
                                DType::kQ4_K, DType::kQ5_K, DType::kQ6_K};

// Times do not go straight from row to row: kernels take some rows at once, the last of them fewer.
constexpr int32_t kCpuRows[] = {1, 2, 8, 16, 64};
static_assert(kCpuRows[0] == 1 && kCpuRows[2] == kPassingRows);  // which are compared
// Of other dtypes, for which there is less time.
constexpr int32_t kFewCpuRows[] = {1, 4, 16, 64};
// Of weights beyond caches. More rows are bound by arithmetic as the last of these are.
constexpr int32_t kLargeRows[] = {1, 4, 8, 16};
// Steps of up to 16 rows are one kernel, larger ones are not, so that times jump there.
constexpr int32_t kGpuRows[] = {1, 8, 16, 32, 64, 256};
constexpr int32_t kGpuPrompts[] = {512, 2048};
// Products have whole tiles of rows and whole rounds of the device's blocks: times jump behind 256,
// 512 and 1,024 rows, by a half, and rise little up to the next jump.
constexpr int32_t kGpuJumps[] = {257, 512, 513, 1024, 1025, 2048};
static_assert(kGpuJumps[1] == kGpuPrompts[0] && kGpuJumps[5] == kGpuPrompts[1]);
// Rows on cores that are timed in each round: more take long.
constexpr int32_t kMostAgain = 8;
constexpr int32_t kMostQuantizedAgain = 4;

// Virtual machines show the cache of all of their host.
constexpr int64_t kMostLarge = int64_t{256} << 20;

int64_t LayerBytes(const ProbeShape& shape, DType dtype) {
  return DTypeBytes(dtype, ConfigOf(shape, dtype).ParameterCount()) / shape.layers;
}

class LayerProbe {
 public:
  LayerProbe(BenchDevice& device, const LayerProbeOptions& options, StepTimer& timer)
      : device_(device), options_(options), timer_(timer) {}

  absl::StatusOr<DeviceRates> Run() {
    rates_.origin = topology::Origin::kMeasured;
    SKEIN_RETURN_IF_ERROR(device_.is_gpu() ? TimeGpu() : TimeCores());
    return std::move(rates_);
  }

 private:
  // Layers that hold next to nothing would be no measure: where there is something to read, kernels
  // begin, and wait for each other, beside reads.
  absl::Status TimeGpu() {
    std::vector<ShapeSteps> decodes(4, {.shape = kShapeOf8B,
                                        .decodes = {std::begin(kGpuRows), std::end(kGpuRows)},
                                        .rounds = kRounds});
    decodes[1].shape.layers *= 2;
    decodes[2].shape = kHalfOf8B;
    decodes[3].shape = decodes[1].shape;
    decodes[3].dtype = DType::kF16;
    // Not of the same models, which would need pages for all sequences to be as long.
    std::vector<ShapeSteps> prompts = decodes;
    for (ShapeSteps& steps : prompts) {
      steps.decodes.clear();
      steps.prompts = {std::begin(kGpuPrompts), std::end(kGpuPrompts)};
    }
    for (ShapeSteps* const steps : {&prompts[1], &prompts[3]}) {
      steps->prompts = {std::begin(kGpuJumps), std::end(kGpuJumps)};
    }
    SKEIN_ASSIGN_OR_RETURN(std::vector<ShapeTimes> times, Time(decodes));
    SKEIN_ASSIGN_OR_RETURN(const std::vector<ShapeTimes> of_prompts, Time(prompts));
    for (size_t i = 0; i < times.size(); ++i) {
      times[i].points.insert(times[i].points.end(), of_prompts[i].points.begin(),
                             of_prompts[i].points.end());
    }
    // Half as wide products jump elsewhere.
    ShapeTimes smooth = times[1];
    std::erase_if(smooth.points, [&](const ShapeTimes::Point& point) {
      return absl::c_none_of(times[0].points,
                             [&](const auto& other) { return other.rows == point.rows; });
    });
    rates_.overheads = GpuOverheads(times[0], smooth, times[2]);
    AddProducts(times[1]);
    AddProducts(times[3]);
    return absl::OkStatus();
  }

  absl::StatusOr<std::vector<ShapeTimes>> Time(absl::Span<const ShapeSteps> shapes) {
    SKEIN_ASSIGN_OR_RETURN(std::vector<ShapeTimes> times, TimeShapes(timer_, shapes));
    for (const ShapeTimes& of : times) {
      for (const ShapeTimes::Point& point : of.points) {
        rates_.spread = std::max(rates_.spread, point.spread);
      }
    }
    return times;
  }

  absl::Status TimeCores() {
    std::vector<ShapeSteps> all;
    ProbeShape nothing = kNothing;
    for (const int64_t layers : {int64_t{1}, kManyLayers}) {
      nothing.layers = layers;
      all.push_back({.shape = nothing, .decodes = {1}, .rounds = kRounds});
    }
    const size_t first_of_products = all.size();
    const auto add = [&](const ProbeShape& shape, DType dtype, int rounds, int32_t most_again) {
      const absl::Span<const int32_t> rows =
          dtype == DType::kBF16 ? absl::MakeConstSpan(kCpuRows) : absl::MakeConstSpan(kFewCpuRows);
      all.push_back({.shape = shape,
                     .dtype = dtype,
                     .decodes = {rows.begin(), rows.end()},
                     .rounds = rounds,
                     .most_again = most_again});
    };
    add(kSmall, DType::kBF16, kRounds, kMostAgain);
    // Each beside the other, since they are compared.
    const size_t narrow = all.size();
    all.push_back({.shape = kNarrow,
                   .decodes = {1, kPassingRows},
                   .rounds = kRounds,
                   .samples = kPassingSamples});
    add(kHalf, DType::kBF16, kRounds, kMostAgain);
    all.back().samples = kPassingSamples;
    add(kMiddle, DType::kBF16, kRounds, kMostAgain);
    for (const DType dtype : {DType::kF32, DType::kF16}) {
      for (const ProbeShape& shape : {kSmall, kHalf}) add(shape, dtype, /*rounds=*/1, 0);
    }
    // Wherever the weights are: few rows are bound by reads then, which are known.
    for (const DType dtype : kQuantized) add(kHalf, dtype, kRounds, kMostQuantizedAgain);
    ProbeShape large = kLargeOnCpu;
    large.layers = std::max<int64_t>(1, LargeBytes() / LayerBytes(large, DType::kBF16));
    all.push_back({.shape = large,
                   .decodes = {std::begin(kLargeRows), std::end(kLargeRows)},
                   .rounds = kRounds,
                   .most_again = kMostAgain});
    SKEIN_ASSIGN_OR_RETURN(std::vector<ShapeTimes> times, Time(all));
    SetOverheads(times[0], times[1]);
    SetPassing(times[narrow], times[narrow + 1]);
    times.erase(times.begin() + narrow);
    AddProductsOfCores(absl::MakeConstSpan(times).subspan(first_of_products));
    return absl::OkStatus();
  }

  void SetOverheads(const ShapeTimes& one, const ShapeTimes& many) {
    for (size_t i = 0; i < one.points.size(); ++i) {
      const double seconds = one.points[i].seconds;
      const double layer = std::max(0.0, (many.points[i].seconds - seconds) / (kManyLayers - 1));
      rates_.overheads.push_back({.rows = one.points[i].rows,
                                  .step = absl::Seconds(std::max(0.0, seconds - layer)),
                                  .layer = absl::Seconds(layer)});
    }
  }

  // What layers cost as such and what they pass between products, where threads share the work: two
  // models that read and multiply as much differ by these alone. Layers of next to nothing are not
  // shared.
  void SetPassing(const ShapeTimes& narrow, const ShapeTimes& wide) {
    const auto rounds_of = [](const ShapeTimes& times, int32_t rows) {
      const auto point = std::find_if(times.points.begin(), times.points.end(),
                                      [rows](const auto& of) { return of.rows == rows; });
      // Without its output, which is twice as wide in one of them.
      const StepCost& cost = times.cost;
      std::vector<double> rounds = point->rounds;
      for (double& seconds : rounds) {
        seconds *= cost.flops_per_row / (cost.flops_per_row + cost.flops_per_output);
      }
      return rounds;
    };
    const auto longer = [&](int32_t rows) {
      return MedianDifference(rounds_of(narrow, rows), rounds_of(wide, rows));
    };
    const auto passed = [](const ProbeShape& shape) {
      return static_cast<double>(shape.layers) *
             cost::PassedValues(ConfigOf(shape, DType::kBF16), /*tp_size=*/1);
    };
    const double values = passed(kNarrow) - passed(kHalf);  // of a row
    const double one = longer(1);
    const double many = longer(kPassingRows);
    const double passing = std::max(0.0, (many - one) / (kPassingRows - 1));  // a row
    const double layer = (one - passing) / (kNarrow.layers - kHalf.layers);
    if (passing > 0) rates_.passed_values_per_s = values / passing;
    for (topology::Overhead& overhead : rates_.overheads) {
      overhead.layer = std::max(overhead.layer, absl::Seconds(layer));
    }
  }

  // `times` are by dtype; the last ones are of weights beyond caches.
  void AddProductsOfCores(absl::Span<const ShapeTimes> times) {
    AddProducts(times.back());
    const std::vector<topology::ProductRate> large = std::exchange(rates_.products, {});
    for (size_t i = 0; i + 1 < times.size(); ++i) {
      AddProducts(times[i]);
      const DType dtype = times[i].steps.dtype;
      if (!IsQuantized(dtype) && times[i + 1].steps.dtype != dtype) AddLarge(dtype, large);
    }
  }

  // Weights of which caches keep next to nothing from step to step: a small part of a set stays
  // there even where it is read from end to end.
  int64_t LargeBytes() const { return std::min(8 * options_.cache_bytes, kMostLarge); }

  // Adds products with weights beyond caches, as `large` has them of its dtype. The newest set is
  // in a cache. What rows take longer beyond caches grows with a dtype's bytes. More rows than
  // `large` has are bound by arithmetic, and take less: in larger products threads wait for each
  // other less often, whatever the dtype.
  void AddLarge(DType dtype, const std::vector<topology::ProductRate>& large) {
    const topology::ProductRate newest = rates_.products.back();
    if (in_cache_ == 0) in_cache_ = newest.working_set_bytes;
    // Seconds of an operation.
    const auto cached = [&](DType of, int64_t set, int64_t rows) {
      return 1 / cost::OperationsPerS(rates_, {model::TypeShare{of}}, set, rows, {});
    };
    const auto relative = static_cast<double>(DTypeBytes(dtype, 1)) /
                          static_cast<double>(DTypeBytes(large.front().dtype, 1));
    std::vector<topology::ProductRate> added;
    double of_cached = 0;
    for (topology::ProductRate rate : large) {
      const double longer = 1 / rate.operations_per_s - cached(rate.dtype, in_cache_, rate.rows);
      const double in_cache = cached(dtype, newest.working_set_bytes, rate.rows);
      rate.dtype = dtype;
      // Whatever the noise of the measurements, it is no more than twice as fast.
      rate.operations_per_s =
          1 / std::max(in_cache + (longer > 0 ? relative * longer : longer), in_cache / 2);
      of_cached = rate.operations_per_s * in_cache;
      added.push_back(rate);
    }
    for (const int32_t rows : kCpuRows) {
      if (rows <= large.back().rows) continue;
      topology::ProductRate rate = added.back();
      rate.rows = rows;
      rate.operations_per_s = of_cached / cached(dtype, newest.working_set_bytes, rows);
      added.push_back(rate);
    }
    rates_.products.insert(rates_.products.end(), added.begin(), added.end());
  }

  // How fast products were, by what their steps took beside what steps cost as such.
  void AddProducts(const ShapeTimes& times) {
    const StepCost& cost = times.cost;
    const ProbeShape& shape = times.steps.shape;
    const DType dtype = times.steps.dtype;
    const auto layers = static_cast<double>(shape.layers);
    for (const ShapeTimes::Point& point : times.points) {
      const double operations =
          point.rows * (cost.flops_per_row + point.context * cost.flops_per_pair);
      const topology::Overhead overhead = cost::OverheadOf(rates_, point.rows);
      double begun = absl::ToDoubleSeconds(overhead.step + shape.layers * overhead.layer);
      if (rates_.passed_values_per_s > 0) {
        begun += point.rows * layers * cost::PassedValues(ConfigOf(shape, dtype), /*tp_size=*/1) /
                 rates_.passed_values_per_s;
      }
      // What a step costs as such is part of it, whatever the noise of either measurement.
      const double multiplied = std::max(point.seconds - begun, point.seconds / 4);
      rates_.products.push_back({.dtype = dtype,
                                 .working_set_bytes = device_.is_gpu() ? 0 : cost.weight_bytes,
                                 .rows = point.rows,
                                 .operations_per_s = operations / multiplied / Cores()});
    }
  }

  int Cores() const { return device_.is_gpu() ? 1 : device_.threads; }

  BenchDevice& device_;
  const LayerProbeOptions& options_;
  StepTimer& timer_;
  DeviceRates rates_;
  int64_t in_cache_ = 0;  // a working set of the dtype that was measured beyond caches, too
};

}  // namespace

absl::StatusOr<DeviceRates> ProbeLayers(BenchDevice& device, const LayerProbeOptions& options) {
  SKEIN_ASSIGN_OR_RETURN(StepTimer timer, StepTimer::Start(device, options.hooks));
  return LayerProbe(device, options, timer).Run();
}

}  // namespace skein::worker
