#include "worker/probe/layer_probe.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "base/dtype.h"
#include "base/status_macros.h"
#include "base/units.h"
#include "parallel/cost/device_cost.h"
#include "parallel/cost/layer_work.h"
#include "worker/bench/bench_model.h"
#include "worker/probe/probe_model.h"

namespace skein::worker {
namespace {

using topology::DeviceRates;

// Its products are short beside what it costs to begin them.
constexpr ProbeShape kNothing = {64, 64, 1, 64, 1};
constexpr int64_t kManyLayers = 9;
// Layers of half an 8B's width: as many weights in four times as many.
constexpr ProbeShape kHalfOf8B = {kShapeOf8B.hidden / 2, kShapeOf8B.intermediate / 2,
                                  kShapeOf8B.heads, kShapeOf8B.head_dim / 2, 4 * kShapeOf8B.layers};
// A 1B's: what is multiplied is beyond caches, but for the largest.
constexpr ProbeShape kLargeOnCpu = {2048, 8192, 32, 64, 1};
// Some 2, 6 and 12 MB of bf16, for models that stay in caches.
constexpr ProbeShape kSmall = {256, 768, 4, 64, 1};
constexpr ProbeShape kHalf = {512, 1536, 8, 64, 1};
constexpr ProbeShape kMiddle = {512, 1536, 8, 64, 2};
// Its layers hold as many weights as kMiddle's. Its products are more, and pass more values.
constexpr ProbeShape kNarrow = {256, 768, 4, 64, 8};
// Steps of both, which are compared.
constexpr int32_t kPassingRows = 16;
constexpr int kPassingSamples = 5;
constexpr int kPassingRounds = 5;

// Those that take unlike times to unpack; like ones stand in for the others (cost::OperationsPerS).
constexpr DType kQuantized[] = {DType::kQ8_0, DType::kQ4_0, DType::kFp8, DType::kQ3_K,
                                DType::kQ4_K, DType::kQ5_K, DType::kQ6_K};

constexpr int32_t kCpuRows[] = {1, 4, 16, 64};
// Of weights beyond caches. More rows are bound by arithmetic as the last of these are.
constexpr int32_t kLargeRows[] = {1, 4, 8, 16};
constexpr int32_t kGpuRows[] = {1, 8, 64, 256};
constexpr int32_t kGpuPrompts[] = {512, 2048};
// Of steps that hold next to nothing. Of cores' many rows even these products take their time.
constexpr int32_t kCpuOverheadRows[] = {1};

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
    SKEIN_RETURN_IF_ERROR(TimeNothing());
    if (device_.is_gpu()) {
      SKEIN_RETURN_IF_ERROR(TimeLayersOfGpu());
    } else {
      SKEIN_RETURN_IF_ERROR(TimePassing());
      SKEIN_RETURN_IF_ERROR(TimeDTypesOfCores());
    }
    rates_.spread = timer_.spread();
    return std::move(rates_);
  }

 private:
  absl::Status TimeNothing() {
    const auto rows =
        device_.is_gpu() ? absl::MakeConstSpan(kGpuRows) : absl::MakeConstSpan(kCpuOverheadRows);
    ProbeShape shape = kNothing;
    shape.layers = 1;
    SKEIN_ASSIGN_OR_RETURN(const Times one, TimesOf(shape, DType::kBF16, rows));
    shape.layers = kManyLayers;
    SKEIN_ASSIGN_OR_RETURN(const Times many, TimesOf(shape, DType::kBF16, rows));
    for (size_t i = 0; i < one.points.size(); ++i) {
      const double seconds = one.points[i].seconds;
      const double layer = std::max(0.0, (many.points[i].seconds - seconds) / (kManyLayers - 1));
      rates_.overheads.push_back({.rows = one.points[i].rows,
                                  .step = absl::Seconds(std::max(0.0, seconds - layer)),
                                  .layer = absl::Seconds(layer)});
    }
    return absl::OkStatus();
  }

  // What a layer of next to nothing costs is no measure of others: where there is something to
  // read, kernels begin, and wait for each other, beside reads. Two models that read and multiply
  // as much, in unlike layers, differ by what layers cost as such.
  absl::Status TimeLayersOfGpu() {
    SKEIN_ASSIGN_OR_RETURN(const Times wide, TimesOf(kShapeOf8B, DType::kBF16, kGpuRows));
    SKEIN_ASSIGN_OR_RETURN(const Times narrow, TimesOf(kHalfOf8B, DType::kBF16, kGpuRows));
    for (size_t i = 0; i < rates_.overheads.size(); ++i) {
      const double longer = narrow.points[i].seconds - wide.points[i].seconds;
      rates_.overheads[i].layer =
          absl::Seconds(std::max(0.0, longer / (kHalfOf8B.layers - kShapeOf8B.layers)));
    }
    AddProducts(kShapeOf8B, DType::kBF16, wide);
    return absl::OkStatus();
  }

  // What layers cost as such and what they pass between products, where threads share the work: two
  // models that read and multiply as much differ by these alone. Layers of next to nothing are not
  // shared.
  absl::Status TimePassing() {
    timer_.Say("what products pass");
    const ProbeSizes sizes = {.sequences = kPassingRows};
    SKEIN_ASSIGN_OR_RETURN(const auto narrow, timer_.Load(kNarrow, DType::kBF16, sizes));
    SKEIN_ASSIGN_OR_RETURN(const auto wide, timer_.Load(kMiddle, DType::kBF16, sizes));
    // The least of some rounds, seconds: what disturbs one of two steps is in their difference.
    struct Least {
      BenchModel& model;
      int32_t rows = 1;
      double seconds = std::numeric_limits<double>::infinity();
    };
    Least of_all[] = {{*narrow}, {*wide}, {*narrow, kPassingRows}, {*wide, kPassingRows}};
    for (int round = 0; round < kPassingRounds; ++round) {
      for (Least& least : of_all) {
        SKEIN_ASSIGN_OR_RETURN(
            const StepTime step,
            timer_.Decodes(least.model, least.rows, /*positions=*/0, kPassingSamples));
        // Without its output, which is twice as wide as the other one's.
        const StepCost& cost = least.model.cost();
        const double of_layers = cost.flops_per_row / (cost.flops_per_row + cost.flops_per_output);
        least.seconds = std::min(least.seconds, step.seconds * of_layers);
      }
    }
    const auto passed = [](const ProbeShape& shape) {
      return static_cast<double>(shape.layers) *
             cost::PassedValues(ConfigOf(shape, DType::kBF16), /*tp_size=*/1);
    };
    const double values = passed(kNarrow) - passed(kMiddle);  // of a row
    const double one = of_all[0].seconds - of_all[1].seconds;
    const double many = of_all[2].seconds - of_all[3].seconds;
    const double passing = std::max(0.0, (many - one) / (kPassingRows - 1));  // a row
    const double layer = (one - passing) / (kNarrow.layers - kMiddle.layers);
    if (passing > 0) rates_.passed_values_per_s = values / passing;
    for (topology::Overhead& overhead : rates_.overheads) {
      overhead.layer = std::max(overhead.layer, absl::Seconds(layer));
    }
    return absl::OkStatus();
  }

  absl::Status TimeDTypesOfCores() {
    std::vector<topology::ProductRate> large;
    for (const DType dtype : {DType::kBF16, DType::kF32, DType::kF16}) {
      SKEIN_RETURN_IF_ERROR(TimeShape(kSmall, dtype, kCpuRows));
      if (dtype == DType::kBF16) SKEIN_RETURN_IF_ERROR(TimeShape(kHalf, dtype, kCpuRows));
      SKEIN_RETURN_IF_ERROR(TimeShape(kMiddle, dtype, kCpuRows));
      if (large.empty()) {
        ProbeShape shape = kLargeOnCpu;
        shape.layers = std::max<int64_t>(1, LargeBytes() / LayerBytes(shape, dtype));
        const size_t of_large = rates_.products.size();
        SKEIN_RETURN_IF_ERROR(TimeShape(shape, dtype, kLargeRows));
        large.assign(rates_.products.begin() + of_large, rates_.products.end());
        rates_.products.resize(of_large);
      }
      AddLarge(dtype, large);
    }
    // Wherever the weights are: few rows are bound by reads then, which are known.
    for (const DType dtype : kQuantized) {
      SKEIN_RETURN_IF_ERROR(TimeShape(kHalf, dtype, kCpuRows));
    }
    return absl::OkStatus();
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

  // Steps of one model.
  struct Times {
    struct Point {
      int32_t rows = 0;
      double seconds = 0;
      double context = 0;  // positions that a row attended to, on average
    };
    StepCost cost;
    std::vector<Point> points;  // decodes by rows, then prompts
  };

  // Of decodes, and on GPUs of prompts.
  absl::StatusOr<Times> TimesOf(const ProbeShape& shape, DType dtype,
                                absl::Span<const int32_t> rows) {
    timer_.Say(absl::StrCat(FormatCount(shape.layers, "layer"), " of ", shape.hidden,
                            " columns in ", std::string(DTypeName(dtype))));
    const auto prompts =
        device_.is_gpu() ? absl::MakeConstSpan(kGpuPrompts) : absl::Span<const int32_t>();
    SKEIN_ASSIGN_OR_RETURN(
        const auto model,
        timer_.Load(shape, dtype,
                    {.sequences = rows.back(), .rows = prompts.empty() ? 1 : prompts.back()}));
    Times times{.cost = model->cost()};
    for (int round = 0; round < (device_.is_gpu() ? kGpuRounds : 1); ++round) {
      std::vector<Times::Point> points;
      for (const int32_t count : rows) {
        SKEIN_ASSIGN_OR_RETURN(const StepTime step, timer_.Decodes(*model, count));
        points.push_back({count, step.seconds, step.context});
      }
      for (const int32_t count : prompts) {
        SKEIN_ASSIGN_OR_RETURN(const double seconds, timer_.Prompt(*model, count));
        points.push_back({count, seconds, count / 2.0});
      }
      if (round == 0) times.points = points;
      for (size_t i = 0; i < points.size(); ++i) {
        if (points[i].seconds < times.points[i].seconds) times.points[i] = points[i];
      }
    }
    return times;
  }

  absl::Status TimeShape(const ProbeShape& shape, DType dtype, absl::Span<const int32_t> rows) {
    SKEIN_ASSIGN_OR_RETURN(const Times times, TimesOf(shape, dtype, rows));
    AddProducts(shape, dtype, times);
    return absl::OkStatus();
  }

  // How fast products were, by what their steps took beside what steps cost as such.
  void AddProducts(const ProbeShape& shape, DType dtype, const Times& times) {
    const StepCost& cost = times.cost;
    const auto layers = static_cast<double>(shape.layers);
    for (const Times::Point& point : times.points) {
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
