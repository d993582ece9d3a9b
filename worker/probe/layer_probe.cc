#include "worker/probe/layer_probe.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "base/dtype.h"
#include "base/status_macros.h"
#include "model/config/model_config.h"
#include "parallel/cost/device_cost.h"
#include "worker/bench/bench_model.h"
#include "worker/bench/bench_ranks.h"
#include "worker/probe/decode_times.h"
#include "worker/probe/samples.h"

namespace skein::worker {
namespace {

using topology::DeviceRates;

constexpr int64_t kQueriesOfKey = 4;

struct Shape {
  int64_t hidden = 0;
  int64_t intermediate = 0;
  int64_t heads = 0;
  int64_t head_dim = 0;
  int64_t layers = 0;
  int64_t queries_of_key = kQueriesOfKey;
};

// Its products are short beside what it costs to begin them.
constexpr Shape kNothing = {64, 64, 1, 64, 1};
constexpr int64_t kManyLayers = 9;
// Of 1B's and 8B's shape, narrower for a CPU: what is multiplied is far beyond caches.
constexpr Shape kLargeOnCpu = {1536, 4608, 24, 64, 1};
constexpr Shape kLargeOnGpu = {4096, 14336, 32, 128, 2};
// Some 2 and 14 MB of bf16, for models that stay in caches.
constexpr Shape kSmall = {256, 768, 4, 64, 1};
constexpr Shape kMiddle = {512, 1536, 8, 64, 2};

constexpr int32_t kCpuRows[] = {1, 4, 16, 64};
// Of weights beyond caches. What more rows compute takes longer than to read these.
constexpr int32_t kReadBoundRows[] = {1, 4};
constexpr int32_t kGpuRows[] = {1, 8, 64, 256};
constexpr int32_t kGpuPrompts[] = {512, 2048};
// Of steps that hold next to nothing. A GPU's few rows go by one kernel, and more by a graph; of
// cores' many rows even these products take their time.
constexpr int32_t kCpuOverheadRows[] = {1};
constexpr int32_t kGpuOverheadRows[] = {1, 8, 64, 256};

// Of decodes whose contexts take their time. On cores a key is read by one query or by four, with
// as many bytes of keys and values: what more queries take is arithmetic. A GPU's reads hide it.
// On cores a row is attended to by itself, whatever others do, but for what is fetched ahead of it.
constexpr int32_t kCpuAttentionRows = 8;  // at least: a multiple of threads
constexpr int32_t kGpuAttentionRows[] = {1, 8, 64};
constexpr int32_t kContext = 768;
constexpr int32_t kPromptRows = 256;  // of a step of the prompts that make them

// Virtual machines show the cache of all of their host.
constexpr int64_t kMostLarge = int64_t{256} << 20;

constexpr int kLeastSamples = 3;
constexpr int kMostSamples = 41;
constexpr absl::Duration kBudget = absl::Milliseconds(30);  // of one point

model::ModelConfig ConfigOf(const Shape& shape, DType dtype) {
  model::ModelConfig config;
  config.architecture = "LlamaForCausalLM";
  config.vocab_size = 256;
  config.hidden_size = shape.hidden;
  config.intermediate_size = shape.intermediate;
  config.num_layers = shape.layers;
  config.num_heads = shape.heads;
  config.num_kv_heads = std::max<int64_t>(1, shape.heads / shape.queries_of_key);
  config.head_dim = shape.head_dim;
  config.max_position_embeddings = 4096;
  config.dtype = dtype;
  return config;
}

int64_t LayerBytes(const Shape& shape, DType dtype) {
  return DTypeBytes(dtype, ConfigOf(shape, dtype).ParameterCount()) / shape.layers;
}

class LayerProbe {
 public:
  LayerProbe(BenchDevice& device, const LayerProbeOptions& options)
      : device_(device), options_(options) {}

  absl::StatusOr<DeviceRates> Run() {
    SKEIN_ASSIGN_OR_RETURN(alone_, BenchRanks::Start({}));
    rates_.origin = topology::Origin::kMeasured;
    SKEIN_RETURN_IF_ERROR(TimeNothing());
    SKEIN_RETURN_IF_ERROR(TimeAttention());
    for (const DType dtype : device_.is_gpu()
                                 ? std::vector<DType>{DType::kBF16}
                                 : std::vector<DType>{DType::kBF16, DType::kF32, DType::kF16}) {
      if (device_.is_gpu()) {
        SKEIN_RETURN_IF_ERROR(TimeShape(kLargeOnGpu, dtype, kGpuRows));
        continue;
      }
      SKEIN_RETURN_IF_ERROR(TimeShape(kSmall, dtype, kCpuRows));
      const size_t of_middle = rates_.products.size();
      SKEIN_RETURN_IF_ERROR(TimeShape(kMiddle, dtype, kCpuRows));
      Shape large = kLargeOnCpu;
      large.layers = std::max<int64_t>(1, LargeBytes() / LayerBytes(large, dtype));
      SKEIN_RETURN_IF_ERROR(TimeShape(large, dtype, kReadBoundRows));
      AddRowsBoundByArithmetic(of_middle);
    }
    return std::move(rates_);
  }

 private:
  absl::StatusOr<std::unique_ptr<BenchModel>> Load(const Shape& shape, DType dtype,
                                                   int32_t sequences, int32_t rows,
                                                   int32_t context = 0) {
    if (options_.progress) {
      options_.progress(
          absl::StrCat("layers of ", shape.hidden, " columns in ", std::string(DTypeName(dtype))));
    }
    return BenchModel::Load({.config = ConfigOf(shape, dtype),
                             .sequences = sequences,
                             .most_rows = std::max(rows, sequences),
                             .most_tokens = std::max(rows, context + 2 * kMostSamples) + 8},
                            device_, *alone_);
  }

  // Seconds of a step.
  absl::StatusOr<double> TimeRows(BenchModel& model, int32_t rows) {
    SKEIN_RETURN_IF_ERROR(model.TimeStep(model.StartOrder(rows)).status());
    SKEIN_ASSIGN_OR_RETURN(const absl::Duration first, model.TimeStep(model.DecodeOrder(rows)));
    SKEIN_ASSIGN_OR_RETURN(std::vector<double> seconds,
                           TimeDecodes(model, rows, SamplesFor(first)));
    return Note(std::move(seconds));
  }

  absl::StatusOr<double> TimePrompt(BenchModel& model, int32_t rows) {
    SKEIN_ASSIGN_OR_RETURN(const absl::Duration first, model.TimeStep(model.PrefillOrder(0, rows)));
    std::vector<double> seconds;
    for (int i = 0; i < SamplesFor(first); ++i) {
      SKEIN_ASSIGN_OR_RETURN(const absl::Duration time,
                             model.TimeStep(model.PrefillOrder(0, rows)));
      seconds.push_back(absl::ToDoubleSeconds(time));
    }
    return Note(std::move(seconds));
  }

  static int SamplesFor(absl::Duration one) {
    const double fit = absl::FDivDuration(kBudget, std::max(one, absl::Microseconds(1)));
    return static_cast<int>(std::clamp<double>(fit, kLeastSamples, kMostSamples));
  }

  double Note(std::vector<double> samples) {
    const Sampled sampled = Summarise(std::move(samples));
    rates_.spread = std::max(rates_.spread, sampled.spread);
    return sampled.median;
  }

  absl::Status TimeNothing() {
    const auto rows = device_.is_gpu() ? absl::MakeConstSpan(kGpuOverheadRows)
                                       : absl::MakeConstSpan(kCpuOverheadRows);
    std::vector<double> one, many;  // seconds, by rows
    for (const auto& [layers, seconds] : {std::pair(int64_t{1}, &one), {kManyLayers, &many}}) {
      Shape shape = kNothing;
      shape.layers = layers;
      SKEIN_ASSIGN_OR_RETURN(const auto model, Load(shape, DType::kBF16, rows.back(), rows.back()));
      for (const int32_t count : rows) {
        SKEIN_ASSIGN_OR_RETURN(seconds->emplace_back(), TimeRows(*model, count));
      }
    }
    for (size_t i = 0; i < rows.size(); ++i) {
      const double layer = std::max(0.0, (many[i] - one[i]) / (kManyLayers - 1));
      rates_.overheads.push_back({.rows = rows[i],
                                  .step = absl::Seconds(std::max(0.0, one[i] - layer)),
                                  .layer = absl::Seconds(layer)});
    }
    return absl::OkStatus();
  }

  // The seconds that contexts of so many positions add to a step, by rows.
  absl::StatusOr<std::vector<double>> TimeContexts(BenchModel& model,
                                                   absl::Span<const int32_t> rows,
                                                   int32_t context) {
    std::vector<double> added;
    for (const int32_t count : rows) {
      SKEIN_ASSIGN_OR_RETURN(const double brief, TimeRows(model, count));
      for (int32_t slot = 0; slot < count; ++slot) {
        SKEIN_RETURN_IF_ERROR(model.Prefill(slot, context));
      }
      SKEIN_ASSIGN_OR_RETURN(const absl::Duration first, model.TimeStep(model.DecodeOrder(count)));
      SKEIN_ASSIGN_OR_RETURN(std::vector<double> seconds,
                             TimeDecodes(model, count, SamplesFor(first)));
      const double longer = Note(std::move(seconds));
      added.push_back(std::max(longer - brief, longer / 20));
    }
    return added;
  }

  absl::Status TimeAttention() {
    const int32_t of_cores[] = {(kCpuAttentionRows + device_.threads - 1) / device_.threads *
                                device_.threads};
    const auto rows =
        device_.is_gpu() ? absl::MakeConstSpan(kGpuAttentionRows) : absl::MakeConstSpan(of_cores);
    Shape shape = device_.is_gpu() ? kLargeOnGpu : kSmall;
    SKEIN_ASSIGN_OR_RETURN(const auto shared,
                           Load(shape, DType::kBF16, rows.back(), kPromptRows, kContext));
    SKEIN_ASSIGN_OR_RETURN(const std::vector<double> all, TimeContexts(*shared, rows, kContext));
    // With reads R and arithmetic A, all = R + A; with a fourth of the queries it is R + A / 4.
    std::vector<double> with_fewer = all;
    if (!device_.is_gpu()) {
      constexpr auto kShort = static_cast<int32_t>(kContext / kQueriesOfKey);
      shape.queries_of_key = 1;
      SKEIN_ASSIGN_OR_RETURN(const auto own,
                             Load(shape, DType::kBF16, rows.back(), kPromptRows, kShort));
      SKEIN_ASSIGN_OR_RETURN(with_fewer, TimeContexts(*own, rows, kShort));
    }
    for (size_t i = 0; i < rows.size(); ++i) {
      const double positions = static_cast<double>(rows[i]) * kContext;
      const double bytes = positions * static_cast<double>(shared->cost().kv_bytes);
      const double operations = positions * shared->cost().flops_per_pair;
      const double arithmetic = std::clamp(
          (all[i] - with_fewer[i]) * kQueriesOfKey / (kQueriesOfKey - 1), 0.0, all[i] * 0.95);
      rates_.attention.push_back(
          {.rows = rows[i],
           .bytes_per_s = bytes / (all[i] - arithmetic) / Cores(),
           .operations_per_s = arithmetic > 0 ? operations / arithmetic / Cores() : 0,
           .working_set_bytes =
               device_.is_gpu() ? 0 : static_cast<int64_t>(bytes) + shared->cost().weight_bytes});
    }
    return absl::OkStatus();
  }

  // Weights of which caches keep next to nothing from step to step: a small part of a set stays
  // there even where it is read from end to end.
  int64_t LargeBytes() const { return std::min(8 * options_.cache_bytes, kMostLarge); }

  // The newest set takes many rows at the rates of the one whose products begin at `from`.
  void AddRowsBoundByArithmetic(size_t from) {
    std::vector<topology::ProductRate>& products = rates_.products;
    const topology::ProductRate newest = products.back();
    for (size_t i = from; i < from + std::size(kCpuRows); ++i) {
      topology::ProductRate rate = products[i];
      if (rate.rows <= newest.rows) continue;
      rate.working_set_bytes = newest.working_set_bytes;
      products.push_back(rate);
    }
  }

  absl::Status TimeShape(const Shape& shape, DType dtype, absl::Span<const int32_t> rows) {
    const auto prompts =
        device_.is_gpu() ? absl::MakeConstSpan(kGpuPrompts) : absl::Span<const int32_t>();
    const int32_t most = prompts.empty() ? rows.back() : prompts.back();
    SKEIN_ASSIGN_OR_RETURN(const auto model, Load(shape, dtype, rows.back(), most));
    const auto add = [&](int32_t count, double seconds, double context) {
      const StepCost& cost = model->cost();
      const double operations = count * (cost.flops_per_row + context * cost.flops_per_pair);
      const topology::Overhead overhead = cost::OverheadOf(rates_, count);
      const double begun = absl::ToDoubleSeconds(overhead.step + shape.layers * overhead.layer);
      // What a step costs as such is part of it, whatever the noise of either measurement.
      const double multiplied = std::max(seconds - begun, seconds / 4);
      rates_.products.push_back({.dtype = dtype,
                                 .working_set_bytes = device_.is_gpu() ? 0 : cost.weight_bytes,
                                 .rows = count,
                                 .operations_per_s = operations / multiplied / Cores()});
    };
    for (const int32_t count : rows) {
      SKEIN_ASSIGN_OR_RETURN(const double seconds, TimeRows(*model, count));
      add(count, seconds, kMostSamples / 2.0);
    }
    for (const int32_t count : prompts) {
      SKEIN_ASSIGN_OR_RETURN(const double seconds, TimePrompt(*model, count));
      add(count, seconds, count / 2.0);
    }
    return absl::OkStatus();
  }

  int Cores() const { return device_.is_gpu() ? 1 : device_.threads; }

  BenchDevice& device_;
  const LayerProbeOptions& options_;
  std::unique_ptr<BenchRanks> alone_;
  DeviceRates rates_;
};

}  // namespace

absl::StatusOr<DeviceRates> ProbeLayers(BenchDevice& device, const LayerProbeOptions& options) {
  return LayerProbe(device, options).Run();
}

}  // namespace skein::worker
